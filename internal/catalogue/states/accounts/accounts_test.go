package accounts

import (
	"slices"
	"testing"

	"brine/internal/catalogue/modules/accounts"
	modcore "brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
)

func table(name string) statetest.Table {
	m := &host.Machine{}
	return statetest.Table{Name: "testdata/" + name, States: append(slices.Clone(Modules()), core.Modules()...),
		Functions: slices.Concat(accounts.Modules(m), files.Modules(m), modcore.Modules())}
}

// TestAccounts adds, changes and removes real users and groups.
func TestAccounts(t *testing.T) {
	statetest.Needs(t, "useradd", "gpasswd", "chage")
	statetest.Run(t, table("accounts"))
}

func TestAccountsRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/accounts") }

// TestSSH changes keys of users and hosts.
func TestSSH(t *testing.T) {
	statetest.Needs(t, "useradd", "ssh-keygen")
	statetest.Run(t, table("ssh"))
}

func TestSSHRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/ssh") }

// TestParity covers rare arguments and errors.
func TestParity(t *testing.T) {
	statetest.Needs(t, "useradd", "gpasswd", "chage", "ssh-keygen")
	statetest.Run(t, table("parity"))
}

func TestParityRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/parity") }
