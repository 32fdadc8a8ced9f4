package packages

import (
	"errors"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/packages"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/test/tools"
)

func table(name string) statetest.Table {
	return statetest.Table{Name: "testdata/" + name, States: append(Modules(), core.Modules()...), Functions: packages.Modules(&host.Machine{})}
}

// TestHelm installs releases with a script as helm(1).
func TestHelm(t *testing.T) {
	tab := table("helm")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	statetest.Run(t, tab)
}

func TestHelmRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/helm") }

// TestAPT installs, holds and removes packages that it builds itself, with the
// real apt and dpkg.
func TestAPT(t *testing.T) {
	statetest.Needs(t, "apt-get", "dpkg-deb", "/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt")
	statetest.Run(t, table("apt"))
}

func TestAPTRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/apt") }

// TestParity covers rare arguments and errors of the states pkg.
func TestParity(t *testing.T) {
	tools.Slow(t)
	statetest.Needs(t, "apt-get", "dpkg-deb", "/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt")
	statetest.Run(t, table("parity"))
}

// TestOddHolds holds packages that are not installed, and were removed.
func TestOddHolds(t *testing.T) {
	statetest.Needs(t, "apt-get", "dpkg-deb", "/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt")
	statetest.Run(t, table("odd_holds"))
}

func TestOddHoldsRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd_holds") }

func TestParityRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/parity") }

// TestUnnamed checks that name may be null if pkgs has the names.
func TestUnnamed(t *testing.T) {
	statetest.Needs(t, "apt-get", "dpkg-deb", "/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt")
	statetest.Run(t, table("unnamed"))
}

func TestUnnamedRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/unnamed") }

// TestNothingNamed checks the error if neither name nor pkgs names a package.
func TestNothingNamed(t *testing.T) {
	if _, err := (words{}).list(); !errors.Is(err, errNoName) {
		t.Errorf("list: %v", err)
	}
	if _, err := holdList(nil, nil, nil); !errors.Is(err, errNoName) {
		t.Errorf("holdList: %v", err)
	}
}

// TestRepositories changes apt's sources.
func TestRepositories(t *testing.T) { statetest.Run(t, table("repo")) }

func TestRepositoriesRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/repo") }

// TestPip uses a script instead of pip.
func TestPip(t *testing.T) {
	tab := table("pip")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	statetest.Run(t, tab)
}

func TestPipRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/pip") }

// TestPipOdd covers odd arguments with the same script.
func TestPipOdd(t *testing.T) {
	tab := table("pip_odd")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	statetest.Run(t, tab)
}

func TestPipOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/pip_odd") }

// TestVirtualenv creates environments with the real virtualenv, venv and pip,
// and installs packages that it has written itself.
func TestVirtualenv(t *testing.T) {
	tools.Slow(t)
	statetest.Needs(t, "virtualenv")
	tools.NeedPython(t, "python3-venv", "ensurepip")
	tab := table("virtualenv")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	statetest.Run(t, tab)
}

func TestVirtualenvRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/virtualenv") }

// TestGem installs packages that it has written itself with the real gem.
func TestGem(t *testing.T) {
	tools.Slow(t)
	statetest.Needs(t, "/usr/bin/gem")
	tab := table("gem")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	statetest.Run(t, tab)
}

func TestGemRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/gem") }

// TestNPM installs packages that it has written itself with the real npm.
func TestNPM(t *testing.T) {
	tools.Slow(t)
	statetest.Needs(t, "npm")
	tab := table("npm")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	statetest.Run(t, tab)
}

func TestNPMRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/npm") }

// TestOddInstallers covers missing and odd arguments of gem, npm and virtualenv, with scripts as gem and npm.
func TestOddInstallers(t *testing.T) {
	tab := table("odd_installers")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	statetest.Run(t, tab)
}

func TestOddInstallersRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd_installers") }

// TestAlternatives changes the program that a common name refers to.
func TestAlternatives(t *testing.T) {
	statetest.Needs(t, "update-alternatives", "/var/lib/dpkg")
	statetest.Run(t, table("alternatives"))
}

func TestAlternativesRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/alternatives") }

// TestRepositoryKeys uses a script instead of apt-key(8).
func TestRepositoryKeys(t *testing.T) {
	statetest.Needs(t, "gpg")
	statetest.Run(t, table("keys"))
}

func TestRepositoryKeysRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/keys") }

// TestDebconf uses scripts instead of debconf's programs.
func TestDebconf(t *testing.T) { statetest.Run(t, table("debconf")) }

func TestDebconfRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/debconf") }

// TestPipName checks that results of pip.installed with pkgs have the packages as their name,
// as in Salt, also if the state fails.
func TestPipName(t *testing.T) {
	a := pipInstalledArgs{Name: "x", Pkgs: value.ListOf("one == 1.0", "two")}
	a.User = "brine-no-such-user"
	p, err := pipInstalled(t.Context(), &state.Env{Call: &fn.Call{}}, a)
	if err == nil || p.Extra.Str("name") != "one == 1.0;two" {
		t.Errorf("%v, %v", p.Extra, err)
	}
	a.Pkgs = nil
	if p, _ := pipInstalled(t.Context(), &state.Env{Call: &fn.Call{}}, a); p.Extra != nil {
		t.Errorf("without pkgs: %v", p.Extra)
	}
}
