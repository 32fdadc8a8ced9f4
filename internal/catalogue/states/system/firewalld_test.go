package system

import (
	"testing"

	"brine/internal/catalogue/states/statetest"
	"brine/test/tools"
)

// TestFirewalld controls a real firewalld in separate namespaces.
func TestFirewalld(t *testing.T) {
	tools.Slow(t)
	tools.Need(t, "firewalld", "firewall-cmd")
	tools.Need(t, "dbus", "dbus-daemon")
	statetest.Run(t, table("firewalld"))
}

func TestFirewalldRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/firewalld") }
