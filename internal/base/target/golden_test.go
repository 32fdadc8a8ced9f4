package target_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/test/tools"
)

// golden holds results of Salt's own matchers, recorded by golden.py.
type golden struct {
	Nodegroups map[string]any
	Bare       string
	Subjects   []goldenSubject
	Cases      []goldenCase
}

type goldenSubject struct {
	ID     string
	Grains any
	Pillar any
}

type goldenCase struct {
	Type, Delimiter string
	Expr            any
	Match           []string
	Expected        []string
	Missing         []string
}

func readGolden(t testing.TB) golden {
	t.Helper()
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var g golden
	if err := dec.Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

// model turns decoded JSON into values: whole numbers are ints, and
// {":pairs": [[k, v]]} is a dict with keys that JSON does not have.
func model(v any) any {
	switch x := v.(type) {
	case json.Number:
		if i, err := x.Int64(); err == nil {
			return i
		}
		if !strings.ContainsAny(x.String(), ".eE") {
			b, _ := new(big.Int).SetString(x.String(), 10)
			return b
		}
		f, _ := x.Float64()
		return f
	case []any:
		l := &value.List{}
		for _, it := range x {
			l.Append(model(it))
		}
		return l
	case map[string]any:
		d := value.NewDict(len(x))
		if pairs, ok := x[":pairs"].([]any); ok {
			for _, p := range pairs {
				d.Set(model(p.([]any)[0]), model(p.([]any)[1]))
			}
			return d
		}
		for k, w := range x {
			d.Set(k, model(w))
		}
		return d
	}
	return v
}

func (g golden) subjects() []target.Data {
	var out []target.Data
	for _, s := range g.Subjects {
		out = append(out, target.Data{MinionID: s.ID, GrainData: model(s.Grains).(*value.Dict), PillarData: model(s.Pillar).(*value.Dict)})
	}
	return out
}

func TestMinionSideAsSalt(t *testing.T) {
	g := readGolden(t)
	subjects := g.subjects()
	compared := 0
	for _, c := range g.Cases {
		if c.Match == nil {
			continue
		}
		compared++
		m, err := target.Nodegroups(g.Nodegroups).Parse(c.Type, model(c.Expr), c.Delimiter)
		got := []string{}
		for _, s := range subjects {
			if m.Match(s) {
				got = append(got, s.ID())
			}
		}
		if err != nil && len(got) > 0 {
			t.Errorf("%s %v: an error and a match", c.Type, c.Expr)
		}
		if !slices.Equal(got, c.Match) {
			t.Errorf("%s %v (delimiter %q): got %v, Salt %v, error %v", c.Type, c.Expr, c.Delimiter, got, c.Match, err)
		}
	}
	if compared < 150 {
		t.Errorf("only %d cases", compared)
	}
}

func TestMasterSideAsSalt(t *testing.T) {
	g := readGolden(t)
	data := map[string]target.Data{}
	ids := []string{g.Bare}
	for _, s := range g.subjects() {
		data[s.ID()] = s
		ids = append(ids, s.ID())
	}
	for _, c := range g.Cases {
		if c.Expected == nil {
			continue
		}
		m, err := target.Nodegroups(g.Nodegroups).Parse(c.Type, model(c.Expr), c.Delimiter)
		got, missing := m.Expected(ids, func(id string) (*value.Dict, *value.Dict) {
			return data[id].GrainData, data[id].PillarData
		})
		slices.Sort(got)
		if want, ok := masterDiffers[fmt.Sprint(c.Type, " ", c.Expr)]; ok {
			c.Expected = slices.Sorted(slices.Values(want))
		}
		if !slices.Equal(got, c.Expected) || !slices.Equal(missing, c.Missing) {
			t.Errorf("%s %v (delimiter %q): got %v missing %v, Salt %v missing %v, error %v", c.Type, c.Expr, c.Delimiter, got, missing, c.Expected, c.Missing, err)
		}
	}
}

// masterDiffers lists the targets for which Brine's master waits for other
// minions than Salt's. Targets without a delimiter or with a missing
// parenthesis match no minion in either, but Salt waits. If data is negated, a
// minion without data may match; Salt does not wait for it.
var masterDiffers = map[string][]string{
	"grain os":                             {},
	"grain roles":                          {},
	"grain *":                              {},
	"grain ":                               {},
	"grain_pcre os:(":                      {},
	"pillar top":                           {},
	"compound ( web1":                      {},
	"compound web1 or ( )x":                {},
	"compound G@@":                         {},
	"compound G@os or web1":                {"web1"},
	"compound not G@os":                    {"DB2", "app-10", "bare", "db1.example.com", "min[1]", "web1", "web2"},
	"compound not G@os:Debian":             {"DB2", "app-10", "bare", "db1.example.com", "min[1]", "web2"},
	"compound [not G@os:Debian GNU/Linux]": {"DB2", "bare", "db1.example.com", "min[1]", "web1", "web2"},
	"compound * and ( not G@os:Debian ) and ( not DB2 )": {"app-10", "bare", "db1.example.com", "min[1]", "web2"},
	"compound_pillar_exact G@os:D* and not I@top:x":      {"app-10", "bare"},
}

// TestGoldenIsTrue compares the recording with stock Salt.
func TestGoldenIsTrue(t *testing.T) {
	stock, python := tools.StockSalt(t)
	cmd := exec.Command(python, "-W", "ignore", "testdata/golden.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stock)
	cmd.Stderr = os.Stderr
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("testdata/golden.json is not what testdata/golden.py writes with this Salt")
	}
}
