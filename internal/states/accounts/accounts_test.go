package accounts

import (
	"slices"
	"testing"

	"brine/internal/host"
	"brine/internal/modules/accounts"
	modcore "brine/internal/modules/core"
	"brine/internal/modules/files"
	"brine/internal/states/core"
	"brine/internal/states/statetest"
)

func table(name string) statetest.Table {
	m := &host.Machine{}
	return statetest.Table{Name: "testdata/" + name, States: append(slices.Clone(Modules()), core.Modules()...), Functions: slices.Concat(accounts.Modules(m), files.Modules(m), modcore.Modules())}
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
