package account

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/host"
)

func TestNames(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(m.Root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nbroken\nbad:x:7:seven::/:/bin/sh\nsalt:x:450:451::/opt:/bin/false\ntwin:x:450:9::/:/\n",
		"group":  "root:x:0:\nsalt:x:451:a,b\nshort\n",
	} {
		if err := os.WriteFile(m.Path("/etc/"+name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if u, ok := ByID(m, 450); !ok || u != (User{"salt", "x", 450, 451, "", "/opt", "/bin/false"}) {
		t.Errorf("%+v, %v", u, ok)
	}
	for _, uid := range []int{7, 1, -1} {
		if u, ok := ByID(m, uid); ok {
			t.Errorf("%d is %+v", uid, u)
		}
	}
	if g, ok := GroupName(m, 451); !ok || g != "salt" {
		t.Errorf("%q, %v", g, ok)
	}
	if g, ok := GroupName(m, 5); ok {
		t.Errorf("5 is %q", g)
	}
}

func machine(t *testing.T, files map[string]string) *host.Machine {
	t.Helper()
	m := &host.Machine{Root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(m.Root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(m.Path("/etc/"+name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestMemberships(t *testing.T) {
	m := machine(t, map[string]string{
		"passwd":        "a:x:1:10:A,1:/a:/bin/sh\nbad\n",
		"group":         "a:x:10:\nboth:x:10:\nc:x:11:b,a\nd:x:12:b\n",
		"nsswitch.conf": "group: files ldap\n", // of another machine: not used
	})
	u, ok := ByName(t.Context(), m, "a")
	if !ok || u.Comment != "A,1" {
		t.Errorf("%+v, %v", u, ok)
	}
	if us := Users(t.Context(), m); len(us) != 1 || us[0] != u {
		t.Errorf("%+v", us)
	}
	ms := ReadMemberships(t.Context(), m)
	if got := ms.Of(t.Context(), "a", u.GID); !slices.Equal(got, []string{"a", "both", "c"}) {
		t.Errorf("%v", got)
	}
	if got := ms.Of(t.Context(), "b", -1); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("%v", got)
	}
	if g, ok := GroupByName(t.Context(), m, "c"); !ok || g.GID != 11 || !slices.Equal(g.Members, []string{"b", "a"}) {
		t.Errorf("%+v, %v", g, ok)
	}
	for _, name := range []string{"", "10", "x", "-a"} {
		if g, ok := GroupByName(t.Context(), m, name); ok {
			t.Errorf("%q is %+v", name, g)
		}
	}
}

// TestHere finds root in the files and by getent(1).
func TestHere(t *testing.T) {
	m := &host.Machine{}
	u, ok := ByName(t.Context(), m, "root")
	if !ok || u.UID != 0 {
		t.Errorf("%+v, %v", u, ok)
	}
	if !slices.Contains(Users(t.Context(), m), u) {
		t.Error("root is not among all users")
	}
	for _, name := range []string{"0", "no-such-user", "--help"} {
		if u, ok := ByName(t.Context(), m, name); ok {
			t.Errorf("%q is %+v", name, u)
		}
	}
}

func TestSetPassword(t *testing.T) {
	m := machine(t, map[string]string{"shadow": "root:*:1:0:99999:7:::\na:!:5:0"})
	day := time.Unix(86400*20000+5, 0)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			if err := SetPassword(t.Context(), m, name, "$6$x$"+name, day); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text := m.Text("/etc/shadow")
	for _, want := range []string{"root:*:1:0:99999:7:::\n", "a:$6$x$a:20000:0:::::\n", "b:$6$x$b:20000::::::\n", "c:$6$x$c:20000::::::\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %q", want, text)
		}
	}
	if st, err := os.Stat(m.Path("/etc/shadow")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st, err)
	}
	if left := m.List("/etc"); !slices.Equal(left, []string{".pwd.lock", "shadow"}) {
		t.Errorf("left behind: %v", left)
	}
	all, err := Shadows(m)
	if err != nil || len(all) != 4 || all[0] != (Shadow{"root", "*", 1, 0, 99999, 7, -1, -1}) {
		t.Errorf("%+v, %v", all, err)
	}
	for _, bad := range [][2]string{{"a:b", "x"}, {"a", "x\ny"}} {
		if err := SetPassword(t.Context(), m, bad[0], bad[1], day); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestSetPasswordWaitsForTheLock(t *testing.T) {
	m := machine(t, map[string]string{"shadow": "a:!:5:0:::::\n"})
	lock, err := lockAccounts(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := SetPassword(ctx, m, "a", "x", time.Now()); err == nil || !strings.Contains(err.Error(), "holds the lock") {
		t.Errorf("%v", err)
	}
}

// TestChangedFiles changes the databases between two lookups: as useradd does,
// by another file, and in place.
func TestChangedFiles(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(m.Root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"anna", "berta", "clara", "doris"} {
		path := m.Path("/etc/passwd")
		write := path
		if i%2 == 1 {
			write += "+"
		}
		if err := os.WriteFile(write, []byte(name+":x:7:7::/:/bin/sh\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if write != path {
			if err := os.Rename(write, path); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if u, ok := ByID(m, 7); !ok || u.Name != name {
				t.Errorf("%+v, %v: want %s", u, ok, name)
			}
			if u, ok := ByName(t.Context(), m, name); !ok || u.UID != 7 {
				t.Errorf("%s is %+v, %v", name, u, ok)
			}
		}
	}
	if err := os.Remove(m.Path("/etc/passwd")); err != nil {
		t.Fatal(err)
	}
	if u, ok := ByID(m, 7); ok {
		t.Errorf("%+v is still there", u)
	}
}
