package pki

import (
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/stocktest"
)

const table, signatures = "testdata/x509.json", "testdata/x509-signatures.json"

func registry(t *testing.T) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(nil, append(core.Modules(), x509Module())...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestX509LikeSalt(t *testing.T) {
	t.Parallel()
	options := fn.Tree{Dict: stocktest.Options(t, table)}
	stocktest.Compare(t, table, registry(t), func() *fn.Call { return &fn.Call{Config: options} })
	stocktest.Signatures(t, signatures, []fn.Module{x509Module()}, nil)
}

func TestX509RecordingIsTrue(t *testing.T) {
	stocktest.Verify(t, table)
	stocktest.Verify(t, signatures)
}
