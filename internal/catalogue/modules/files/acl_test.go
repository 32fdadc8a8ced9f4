package files

import (
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
)

const aclSignatures = "testdata/acl-signatures.json"

func TestACLSignatures(t *testing.T) {
	m := &host.Machine{}
	stocktest.Signatures(t, aclSignatures, []fn.Module{aclModule(m), openstackModule(m)}, nil)
}

func TestACLRecordingIsTrue(t *testing.T) { stocktest.Verify(t, aclSignatures) }
