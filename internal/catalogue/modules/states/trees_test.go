package states

import (
	"os"
	"path"
	"testing"

	"brine/internal/py/json"
	"brine/internal/py/value"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestTreesAsSalt compares compiled trees with the recordings of stock Salt.
func TestTreesAsSalt(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/trees.txtar")
	if err != nil {
		t.Fatal(err)
	}
	trees := map[string]map[string]string{}
	for _, f := range archive.Files {
		name, file := path.Split(f.Name)
		name = path.Clean(name)
		if trees[name] == nil {
			trees[name] = map[string]string{}
		}
		if file != "x.sls" && file != "top.sls" {
			file = f.Name
		}
		trees[name][file] = string(f.Data)
	}
	b, err := os.ReadFile("testdata/trees.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	recorded := v.(*value.Dict)
	if recorded.Len() != len(trees) {
		t.Fatalf("%d trees, %d recorded", len(trees), recorded.Len())
	}
	for k, w := range recorded.All() {
		name, want := value.Str(k), w.(*value.Dict)
		t.Run(name, func(t *testing.T) {
			m := newMinion(t, trees[name])
			o := m.run("state.show_low_sls", "x")
			if _, isTop := trees[name]["top.sls"]; isTop {
				o = m.run("state.show_top")
			}
			if want.Bool("fails") {
				if o.Retcode == 0 {
					t.Errorf("shows %s, Salt fails", value.Repr(o.Return))
				}
				return
			}
			got, err := json.Dump(o.Return, json.Format{SortKeys: true})
			if err != nil {
				t.Fatal(err)
			}
			salts, err := json.Dump(want.At("shows"), json.Format{SortKeys: true})
			if err != nil {
				t.Fatal(err)
			}
			if o.Retcode != 0 || got != salts {
				t.Errorf("exit code %d, shows\n%s, Salt\n%s", o.Retcode, got, salts)
			}
		})
	}
}
