package badinput

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/daemontest"
)

// evil are ids that must never become the name of a file.
var evil = []string{
	"", ".", "..", ".hidden", "../../../../evil", "/etc/evil", "a/b", "a/../../b", `a\b`, "a\x00b", "a\nb", "a\x1b[2Jb", "\xff\xfe", strings.Repeat("x", 300),
}

// listing is all files below a directory, with their sizes.
func listing(t *testing.T, dir string, except ...string) string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err != nil || slices.ContainsFunc(except, func(e string) bool { return strings.HasPrefix(rel, e) }) {
			return nil
		}
		info, err := d.Info()
		if err == nil {
			out = append(out, fmt.Sprint(rel, " ", info.Mode(), " ", info.Size()*int64(b2i(info.Mode().IsRegular()))))
		}
		return nil
	}))
	return strings.Join(out, "\n")
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestIDsInSignIns sends ids that are paths to a master that accepts everything, and expects no
// file to be created.
func TestIDsInSignIns(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	key := newKey(t)
	good := newBare(t, m, "good", key)
	must(t, good.signIn(nil))
	before := listing(t, m.Dir, "out", "var/cache/salt/master/brine", "var/cache/salt/master/jobs", "var/log")
	for _, id := range evil {
		b := newBare(t, m, id, key)
		if err := b.signIn(nil); err == nil {
			t.Errorf("%.20q is signed in", id)
		}
		if err := b.signIn(func(load *value.Dict) { load.Set("id", []byte(id)) }); err == nil {
			t.Errorf("%.20q as bytes is signed in", id)
		}
		// The same in the requests of an accepted minion: in its own id, in that of the envelope,
		// and in that of a job.
		jid := newJID()
		for what, change := range map[string]func(*value.Dict){
			"load": func(l *value.Dict) { l.Set("id", id) },
			"jid":  func(l *value.Dict) { l.Set("jid", id) },
			"fun":  func(l *value.Dict) { l.Set("fun", id) },
		} {
			if _, err := good.send(good.sealed(good.returns(jid, what), change)); err != nil {
				t.Errorf("%s %.20q: %v", what, id, err)
			}
		}
		env := good.sealed(good.returns(newJID(), "envelope"), nil)
		env.Set("id", id)
		if answer, err := good.send(env); err != nil || answer == nil {
			t.Errorf("envelope %.20q: %v %v", id, answer, err)
		}
		if answer, err := good.send(good.sealed(value.DictOf("cmd", "_mine", "data", value.DictOf(id, id), "clear", true), nil)); err != nil {
			t.Errorf("mine %.20q: %v %v", id, answer, err)
		}
	}
	if _, err := good.open(good.send(good.sealed(good.event("last"), nil))); err != nil {
		t.Error(err)
	}
	after := listing(t, m.Dir, "out", "var/cache/salt/master/brine", "var/cache/salt/master/jobs", "var/log", "var/cache/salt/master/minions/good")
	if before += "\n"; after+"\n" != before {
		for l := range strings.Lines(after + "\n") {
			if !strings.Contains(before, l) && !strings.HasSuffix(strings.TrimSpace(l), "drwxr-x--- 0") && !strings.HasSuffix(strings.TrimSpace(l), "drwxr-xr-x 0") {
				t.Errorf("new or changed: %s", l)
			}
		}
	}
	if _, err := os.Stat("/etc/evil"); err == nil {
		t.Error("a file was made in /etc")
	}
	// Each is refused with a log line that is safe to show on a terminal.
	for l := range strings.Lines(m.Log()) {
		if strings.ContainsAny(strings.TrimSuffix(l, "\n"), "\x00\x1b\r") || len(l) > 6000 {
			t.Errorf("a line of the log: %.200q", l)
		}
	}
	m.Logged("begins with a dot", "contains a slash, backslash or control character", "longer than 255 bytes")
}

// TestIDsOfSaltKey passes names that are paths to salt-key.
func TestIDsOfSaltKey(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	m.Kill()
	for _, state := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied"} {
		put(t, m.Path(masterPKI+"/"+state+"/"+state), newKey(t).Public().PEM(), 0o644)
		put(t, m.Path(masterPKI+"/"+state+"/.key"), []byte("dot file"), 0o644)
	}
	put(t, m.Path("etc/salt/precious"), []byte("x"), 0o644)
	except := []string{"out", "var", "etc/salt/pki/master/minions_"}
	before := listing(t, m.Dir, except...)
	for _, flag := range []string{"-a", "-r", "-d", "-p", "-f"} {
		for _, id := range append(evil, "../minions/minions", "../../precious", "../*", "*/../*", ".*", "..*") {
			if strings.Contains(id, "\x00") || id == "" && flag != "-d" {
				continue // cannot be an argument, or has no meaning
			}
			out, errs, code := m.Run(brine, "salt-key", "-y", "--include-all", flag, id)
			if strings.Contains(out+errs, "dot file") || strings.Contains(out+errs, "panic") || code < 0 {
				t.Errorf("%s %.20q: %d %s %s", flag, id, code, out, errs)
			}
			if strings.Contains(out, "-----BEGIN") && flag == "-p" {
				t.Errorf("%s %.20q shows a key: %s", flag, id, out)
			}
		}
	}
	if after := listing(t, m.Dir, except...); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	for _, state := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied"} {
		if _, err := os.Stat(m.Path(masterPKI + "/" + state + "/" + state)); err != nil {
			t.Error(err)
		}
	}
	// Names of keys to create must not leave their directory either.
	dir := m.Path("made")
	must(t, os.Mkdir(dir, 0o700))
	for _, name := range evil {
		if strings.Contains(name, "\x00") {
			continue
		}
		if out, errs, code := m.Run(brine, "salt-key", "--gen-keys-dir", dir, "--gen-keys="+name); code == 0 && name != "" {
			t.Errorf("--gen-keys=%.20q: %s %s", name, out, errs)
		}
	}
	if made, _ := os.ReadDir(dir); len(made) > 0 {
		t.Errorf("made %v", made)
	}
	if after := listing(t, m.Dir, append(except, "made")...); after != before {
		t.Errorf("--gen-keys made\n%s", after)
	}
}

// TestIDsKeptByMinions starts a minion with invalid content in its file minion_id.
func TestIDsKeptByMinions(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"../evil", ".hidden", "a/b", "a\x1bb"} {
		dir := daemontest.ShortDir(t)
		put(t, filepath.Join(dir, "minion"), []byte("root_dir: "+dir+"\n"), 0o600)
		put(t, filepath.Join(dir, "etc/salt/minion_id"), []byte(id+"\n"), 0o600)
		for _, p := range [][]string{{"salt-minion"}, {"salt-call", "--local", "test.ping"}} {
			out, code := program(t, p[0], append([]string{"-c", dir}, p[1:]...)...)
			if code != 1 {
				t.Errorf("%q: %s ends with %d", id, p[0], code)
			}
			demand(t, p[0], out, filepath.Join(dir, "etc/salt/minion_id")+": ", "minion id ")
		}
	}
	dir := daemontest.ShortDir(t)
	put(t, filepath.Join(dir, "minion"), []byte("root_dir: "+dir+"\n"), 0o600)
	for _, id := range evil {
		if id == "" || strings.Contains(id, "\x00") {
			continue
		}
		if out, code := program(t, "salt-call", "-c", dir, "--local", "--id", id, "test.ping"); code != 1 || !strings.Contains(out, "minion id ") {
			t.Errorf("salt-call --id %.20q ends with %d: %s", id, code, out)
		}
	}
	if made, _ := os.ReadDir(dir); len(made) != 1 {
		t.Errorf("made %v", made)
	}
}
