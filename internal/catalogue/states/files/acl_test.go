package files

import (
	"slices"
	"testing"

	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/test/tools"
)

func modulesTable(name string) statetest.Table {
	m := &host.Machine{}
	return statetest.Table{Name: "testdata/" + name, States: Modules(m), Functions: slices.Concat(files.Modules(m), shell.Modules())}
}

// TestACL changes access control lists of real files.
func TestACL(t *testing.T) {
	tools.Need(t, "acl", "setfacl")
	statetest.Run(t, modulesTable("acl"))
}

func TestACLRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/acl") }

// TestOpenstackConfig lets crudini, on which openstack-config is based, change
// a file.
func TestOpenstackConfig(t *testing.T) {
	tools.Need(t, "crudini", "crudini")
	statetest.Run(t, modulesTable("openstack"))
}

func TestOpenstackConfigRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/openstack") }
