package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// savedAt returns the ids of the targets that users saved, by name, with their values.
func savedAt(m *node) (ids map[string]string, tgts map[string]string, err error) {
	out, errs, _ := m.Run(brine, "salt-run", "--out=json", "saved.list", "target")
	var shown struct {
		Saved []struct {
			ID, Name string
			Data     struct{ Tgt string }
		}
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		return nil, nil, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	ids, tgts = map[string]string{}, map[string]string{}
	for _, s := range shown.Saved {
		ids[s.Name], tgts[s.Name] = s.ID, s.Data.Tgt
	}
	return ids, tgts, nil
}

func saveAt(t *testing.T, m *node, name, tgt string) {
	t.Helper()
	if out, errs, code := m.Run(brine, "salt-run", "saved.put_public", "target", name, "data={tgt: '"+tgt+"'}"); code != 0 {
		t.Fatal(out, errs)
	}
}

func unsaveAt(t *testing.T, m *node, name string) {
	t.Helper()
	ids, _, err := savedAt(m)
	must(t, err)
	if out, errs, code := m.Run(brine, "salt-run", "saved.remove_any", ids[name]); code != 0 {
		t.Fatal(out, errs)
	}
}

// allSaved waits until masters show these targets, and no others.
func allSaved(t *testing.T, what, want string, at ...*node) {
	t.Helper()
	for _, m := range at {
		eventually.Nil(t, soon, m.Name+" shows what is saved "+what, func() error {
			_, tgts, err := savedAt(m)
			if got := fmt.Sprint(tgts); err == nil && got != want {
				err = errors.New(got)
			}
			return err
		})
	}
}

// TestSavedRecords: in a cluster and between hot masters, what a user removed does not come back from a master that changed it without knowing
// of that, nor from one whose disk is set back to before the removal. Both masters then have what was saved last.
func TestSavedRecords(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	for name, masters := range map[string]func(t *testing.T) []*node{
		"cluster": func(t *testing.T) []*node { return newApart(t, 2, "").start().masters },
		"hot": func(t *testing.T) []*node {
			one, two := daemontest.Host(), daemontest.Host()
			a := daemontest.NewMaster(t, brine, one, one, "hot_masters: ["+two+"]\n").Start()
			b := daemontest.NewMaster(t, brine, two, two, "hot_masters: ["+one+"]\n")
			for _, name := range []string{"etc/salt/pki/master/master.pem", "etc/salt/pki/master/master.pub"} {
				b.Write(name, a.Read(name))
			}
			return []*node{a, b.Start()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := masters(t)
			one, two := all[0], all[1]
			for _, name := range []string{"gone", "kept", "old"} {
				saveAt(t, one, name, "1")
			}
			allSaved(t, "at first", "map[gone:1 kept:1 old:1]", all...)

			// The second one changes what the first one removes later, and the other way round for what stays.
			one.Kill()
			saveAt(t, two, "gone", "2")
			two.Kill()
			copied := filepath.Join(t.TempDir(), "copy")
			copyAll := func(from, to string) {
				t.Helper()
				if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			copyAll(two.Path("var/cache/salt/master"), copied)
			one.Start()
			unsaveAt(t, one, "gone")
			saveAt(t, one, "kept", "3")
			two.Start()
			allSaved(t, "after both are back", "map[kept:3 old:1]", all...)

			unsaveAt(t, two, "old")
			allSaved(t, "after a removal", "map[kept:3]", all...)
			two.Kill()
			must(t, os.RemoveAll(two.Path("var/cache/salt/master")))
			copyAll(copied, two.Path("var/cache/salt/master"))
			one.Kill()
			two.Start()
			if _, tgts, err := savedAt(two); err != nil || !strings.Contains(fmt.Sprint(tgts), "old:1") {
				t.Fatalf("this is no old copy: %v %v", tgts, err)
			}
			saveAt(t, two, "new", "4")
			one.Start()
			allSaved(t, "after the disk was set back", "map[kept:3 new:4]", all...)
			saveAt(t, one, "gone", "5")
			allSaved(t, "saved again", "map[gone:5 kept:3 new:4]", all...)
		})
	}
}
