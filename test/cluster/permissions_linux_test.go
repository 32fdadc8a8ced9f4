package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestKeysWithoutPermission: the directories of keys of a member that does not run as root change hands while it runs. Its salt-key reports
// no success for what did not happen, no key is lost on another member, and the doctor names the files. When the permissions are back,
// all members have the same decisions.
func TestKeysWithoutPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	t.Parallel()
	a := newApart(t, 2, "")
	one, weak := a.masters[0], a.masters[1]
	// The other user reaches the program and the directories of the node.
	must(t, os.Chmod(weak.Dir, 0o755))
	for _, dir := range []string{"cluster", "etc", "var", "run"} {
		must(t, os.MkdirAll(weak.Path(dir), 0o755))
	}
	bin := daemontest.ShortDir(t)
	must(t, os.Chmod(bin, 0o755))
	brinePath := brine.Command(t.Context(), t, "salt-master").Path
	if err := os.Link(brinePath, filepath.Join(bin, filepath.Base(brinePath))); err != nil {
		t.Skip(err)
	}
	chown := func(path string, uid int) {
		t.Helper()
		must(t, filepath.WalkDir(path, func(p string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(p, uid, uid))
		}))
	}
	weak.Write("master", strings.Replace(weak.Read("master"), "user: root\n", "", 1))
	chown(weak.Dir, 65534)
	weak.Within = []string{setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", `b="$1"; shift; exec "` + bin + `/${b##*/}" "$@"`, "sh"}
	a.start()
	a.pend(one, "c0", "c1", "c2", "c3")
	isState(t, weak, "c3", "minions_pre")
	dirs, err := filepath.Glob(weak.Path("cluster/minions*"))
	must(t, err)
	tries := func() {
		t.Helper()
		for _, args := range [][]string{{"-a", "c0"}, {"-d", "c1"}, {"-r", "c2"}} {
			out, errs, code := weak.Run(brine, "salt-key", append([]string{"-y"}, args...)...)
			if code == 0 || !strings.Contains(out+errs, "permission denied") {
				t.Errorf("salt-key %v: exit code %d, %s%s", args, code, out, errs)
			}
		}
		for _, id := range []string{"c0", "c1", "c2"} {
			isState(t, one, id, "minions_pre")
		}
	}

	// Another user owns the directories: the master can read them only.
	for _, dir := range dirs {
		must(t, os.Chmod(dir, 0o755))
		chown(dir, 0)
	}
	tries()
	if _, errs, code := one.Run(brine, "salt-key", "-y", "-r", "c3"); code != 0 {
		t.Fatal(errs)
	}
	eventually.Nil(t, soon, "the doctor names the files that are not written", func() error {
		out, errs, code := one.Run(brine, "ha", "doctor", "--out=json")
		if code != 1 || !containsAll(out, weak.Name, "its files of the kind key are not what is recorded", "permission denied") {
			return errors.New(out + errs)
		}
		return nil
	})
	isState(t, weak, "c3", "minions_pre")

	// The master can do nothing there.
	for _, dir := range dirs {
		must(t, os.Chmod(dir, 0))
	}
	tries()
	isState(t, one, "c3", "minions_rejected")

	for _, dir := range dirs {
		chown(dir, 65534)
		must(t, os.Chmod(dir, 0o700))
	}
	isState(t, weak, "c3", "minions_rejected")
	if _, errs, code := weak.Run(brine, "salt-key", "-y", "-a", "c0"); code != 0 {
		t.Fatal(errs)
	}
	for _, m := range a.masters {
		for id, want := range map[string]string{"c0": "minions", "c1": "minions_pre", "c2": "minions_pre", "c3": "minions_rejected"} {
			isState(t, m, id, want)
		}
	}
	a.equal(one, 2, map[string]int{"key": 4})
}
