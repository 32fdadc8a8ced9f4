package selfcheck

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/cli/frame"
)

// TestSelfCheck damages an installation, in one way at a time.
func TestSelfCheck(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Skip("this user has no name: ", err)
	}
	for name, c := range map[string]struct {
		damage func(root string) error
		want   string
	}{
		"whole":   {func(string) error { return nil }, "OK: 3 files of 1 packages\n"},
		"content": {func(root string) error { return os.WriteFile(root+"/usr/bin/brine", []byte("other"), 0o755) }, "/usr/bin/brine: its content differs"},
		"mode":    {func(root string) error { return os.Chmod(root+"/usr/bin/brine", 0o777) }, "/usr/bin/brine: has mode 777 instead of 755"},
		"setuid":  {func(root string) error { return os.Chmod(root+"/usr/bin/brine", 0o755|os.ModeSetuid) }, "has mode 4755 instead of 755"},
		"missing": {func(root string) error { return os.Remove(root + "/usr/bin/brine") }, "/usr/bin/brine: no such file"},
		"no link": {func(root string) error { return os.Remove(root + "/usr/bin/salt") }, "/usr/bin/salt: no such file"},
		"masked": {func(root string) error {
			return os.Symlink("/dev/null", root+"/etc/systemd/system/salt-minion.service")
		}, "is masked"},
		"key":     {func(root string) error { return os.Chmod(root+"/etc/salt/pki/minion/minion.pem", 0o644) }, "minion.pem: has mode 644"},
		"pki":     {func(root string) error { return os.Chmod(root+"/etc/salt/pki/minion", 0o777) }, "pki/minion: has mode 777"},
		"options": {func(root string) error { return os.WriteFile(root+"/etc/salt/minion", []byte("user: [\n"), 0o600) }, "etc/salt/minion"},
		"unknown": {func(root string) error {
			return os.WriteFile(root+"/etc/salt/minion", []byte("user: no-such-user\n"), 0o600)
		}, "user no-such-user"},
		"packages": {func(root string) error { return os.RemoveAll(root + "/usr/share/brine/manifest") }, "not from packages"},
	} {
		root := t.TempDir()
		text := "program"
		put(t, root, "usr/bin/brine", text, 0o755)
		put(t, root, "lib/systemd/system/salt-minion.service", "unit", 0o644)
		put(t, root, "usr/share/brine/manifest/brine", fmt.Sprintf("file 755 %x /usr/bin/brine\nlink - brine /usr/bin/salt\nfile 644 %x %s\n",
			sha256.Sum256([]byte(text)), sha256.Sum256([]byte("unit")), "/lib/systemd/system/salt-minion.service"), 0o644)
		put(t, root, "etc/systemd/system/other.service", "", 0o644)
		put(t, root, "etc/salt/minion", "user: "+me.Username+"\n", 0o600)
		put(t, root, "etc/salt/pki/minion/minion.pem", "key", 0o600)
		if err := os.Symlink("brine", root+"/usr/bin/salt"); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(root+"/etc/salt/pki/minion", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := c.damage(root); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		env := frame.OSEnv()
		env.Stdout = &out
		code := Applet().Run(t.Context(), env, []string{"--root", root})
		if !strings.Contains(out.String(), c.want) || (code == 0) != (name == "whole") || name != "whole" && !strings.Contains(out.String(), "1 fault(s)") {
			t.Errorf("%s: code %d, %s", name, code, out.String())
		}
	}
}

// TestKeysOfASyndic: the keys of a minion may belong to the user of the syndic beside it, and to no
// other one.
func TestKeysOfASyndic(t *testing.T) {
	me, err := user.Current()
	if err != nil || me.Username == "" {
		t.Skip("this user has no name: ", err)
	}
	var other *user.User
	for _, name := range []string{"root", "nobody", "daemon"} {
		if u, err := user.Lookup(name); err == nil && u.Uid != me.Uid {
			other = u
		}
	}
	if other == nil {
		t.Skip("there is no other user")
	}
	for options, fine := range map[string]bool{
		"user: " + me.Username:                                                          false,
		"syndic_master: top\nuser: " + me.Username:                                      true,
		"syndic_master: top\nuser: " + other.Username:                                   false,
		"syndic_master: top\nuser: " + other.Username + "\nsyndic_user: " + me.Username: true,
	} {
		root := t.TempDir()
		put(t, root, "usr/share/brine/manifest/brine", "", 0o644)
		put(t, root, "etc/salt/minion", "user: "+other.Username+"\n", 0o600)
		put(t, root, "etc/salt/master", options+"\n", 0o600)
		put(t, root, "etc/salt/pki/minion/minion.pem", "key", 0o600)
		if err := os.Chmod(root+"/etc/salt/pki/minion", 0o700); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		env := frame.OSEnv()
		env.Stdout = &out
		Applet().Run(t.Context(), env, []string{"--root", root})
		if strings.Contains(out.String(), "run chown") == fine {
			t.Errorf("%q: %s", options, out.String())
		}
	}
}

func put(t *testing.T, root, path, text string, mode os.FileMode) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
