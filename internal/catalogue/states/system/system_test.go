package system

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	modcore "brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/network"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/modules/system"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/test/tools"
)

func table(name string) statetest.Table {
	m := &host.Machine{}
	return statetest.Table{Name: "testdata/" + name, States: append(slices.Clone(Modules()), core.Modules()...),
		Functions: slices.Concat(system.Modules(m), files.Modules(m), network.Modules(network.Sources{Machine: m}), modcore.Modules(), shell.Modules())}
}

// TestCron changes crontabs with a script as crontab(1).
func TestCron(t *testing.T) { statetest.Run(t, table("cron")) }

func TestCronRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/cron") }

// TestSettings changes the hosts file, the time zone and other settings, with
// files instead of kernel parameters, and scripts instead of timedatectl(1)
// and update-locale(8).
func TestSettings(t *testing.T) {
	statetest.Needs(t, "/usr/share/zoneinfo/Europe/Berlin")
	statetest.Run(t, table("settings"))
}

func TestSettingsRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/settings") }

// TestParity covers rare arguments and errors.
func TestParity(t *testing.T) { statetest.Run(t, table("parity")) }

func TestParityRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/parity") }

// TestLocale changes /etc/locale.gen, with a script instead of locale-gen(8).
func TestLocale(t *testing.T) {
	statetest.Needs(t, "/usr/share/i18n/SUPPORTED")
	statetest.Run(t, table("locale"))
}

func TestLocaleRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/locale") }

// TestMount mounts tmpfs file systems.
func TestMount(t *testing.T) { statetest.Run(t, table("mount")) }

func TestMountRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/mount") }

// TestAlias changes /etc/aliases.
func TestAlias(t *testing.T) { statetest.Run(t, table("alias")) }

func TestAliasRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/alias") }

// TestIptables changes the packet filter of a separate network namespace.
func TestIptables(t *testing.T) {
	iptables := tools.Need(t, "iptables", "iptables")
	if os.Getuid() == 0 {
		// The root user of a container may not be allowed to change packet filters, even in a new
		// namespace.
		list := exec.Command(iptables, "-S")
		list.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
		if out, err := list.CombinedOutput(); err != nil {
			tools.Without(t, fmt.Sprintf("packet filters cannot be changed here: %v: %s", err, out))
		}
	}
	statetest.Run(t, table("iptables"))
}

func TestIptablesRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/iptables") }

// TestIpset changes the IP sets of a separate network namespace.
func TestIpset(t *testing.T) {
	ipset := tools.Need(t, "ipset", "ipset")
	if os.Getuid() == 0 {
		// The kernel may lack the module, and a container the privilege.
		list := exec.Command(ipset, "create", "probe", "hash:ip")
		list.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
		if out, err := list.CombinedOutput(); err != nil {
			tools.Without(t, fmt.Sprintf("IP sets cannot be made here: %v: %s", err, out))
		}
	}
	statetest.Run(t, table("ipset"))
}

func TestIpsetRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/ipset") }

// TestSELinux changes a policy that scripts keep instead of SELinux.
func TestSELinux(t *testing.T) {
	tools.Slow(t)
	statetest.Run(t, table("selinux"))
}

func TestSELinuxRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/selinux") }

// TestOdd covers missing and odd arguments of host, timezone and locale, and requisites.
func TestOdd(t *testing.T) {
	statetest.Needs(t, "/usr/share/zoneinfo/Europe/Berlin", "/usr/share/i18n/SUPPORTED")
	statetest.Run(t, table("odd"))
}

func TestOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd") }

// TestMountOdd covers missing and odd arguments of mount, and requisites.
func TestMountOdd(t *testing.T) { statetest.Run(t, table("mount_odd")) }

func TestMountOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/mount_odd") }
