package target_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func ids(names ...string) []string { return names }

func mustParse(t testing.TB, typ string, expr any) target.Matcher {
	t.Helper()
	m, err := target.Parse(typ, expr, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	groups := target.Nodegroups{"a": "N@b", "b": "web1 or N@c", "c": "N@a", "empty": "", "num": 7, "miss": "N@nosuch"}
	for _, c := range []struct {
		typ  string
		expr any
		want string
	}{
		{"pcre", `(?=a`, `looking ahead`},
		{"pcre", `(?(1)a|b)`, "conditional"},
		{"pcre", `(?P=x)`, "reference to an earlier group"},
		{"pcre", `(?i`, `missing \)`},
		{"pcre", `(?#`, `missing \)`},
		{"pcre", `a\`, "backslash at the end"},
		{"pcre", `\p{L}`, `bad escape \\p`},
		{"pcre", `\Qx\E`, `bad escape \\Q`},
		{"pcre", `\xz`, "incomplete escape"},
		{"pcre", `[a`, `missing \]`},
		{"pcre", `a**`, "regular expression"},
		{"pcre", strings.Repeat("a", target.MaxRegexp+1), "longer than"},
		{"pcre", []string{"a"}, "must be a string, not list"},
		{"glob", nil, "must be a string, not NoneType"},
		{"list", 5, "must be a string or a list, not int"},
		{"grain", "os", `no ":" between`},
		{"grain", strings.Repeat("a:", 70), "too long"},
		{"ipcidr", "10.0.0.1/8", "neither an address nor a network"},
		{"nosuch", "x", `unknown target type "nosuch"`},
		{"nodegroup", "nosuch", `nodegroup "nosuch" is not defined`},
		{"nodegroup", "miss", `nodegroup "nosuch" is not defined`},
		{"nodegroup", "a", `nodegroup "a" contains itself: a > b > c > a`},
		{"nodegroup", "empty", "empty"},
		{"nodegroup", "num", "must be a string or a list, not int"},
		{"compound", 3, "must be a string or a list, not int"},
		{"compound", "", "it is empty"},
		{"compound", "and x", `cannot begin with "and"`},
		{"compound", "x y", `"y" cannot follow "x"`},
		{"compound", "x and", `it ends after "and"`},
		{"compound", "( x", "closing parenthesis is missing"},
		{"compound", "x )", `"\)" cannot follow "x"`},
		{"compound", "P@os:(", "missing closing"},
		{"compound", "R@%x", "range server"},
		{"compound", "N@nosuch or *", "not defined"},
		{"compound", strings.Repeat("( ", 200) + "x" + strings.Repeat(" )", 200), "more than 100"},
		{"compound", "x" + strings.Repeat(" or x", 20000), "too large"},
	} {
		m, err := groups.Parse(c.typ, c.expr, "")
		if err == nil {
			t.Errorf("%s %.40v: no error", c.typ, c.expr)
			continue
		}
		if k := salt.KindOf(err); k != salt.Invalid && k != salt.NotFound {
			t.Errorf("%s %.40v: kind %v", c.typ, c.expr, k)
		}
		if !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%s %.40v: %v, want %s", c.typ, c.expr, err, c.want)
		}
		if m.Match(target.Data{MinionID: "x"}) || m.Expect(target.Data{MinionID: "x"}) {
			t.Errorf("%s %.40v matches in spite of the error", c.typ, c.expr)
		}
	}
}

func TestListTakesBlanks(t *testing.T) {
	m := mustParse(t, "list", " web1  web2 ")
	if got := m.Listed(); !slices.Equal(got, ids("web1", "web2")) {
		t.Error(got)
	}
	m = mustParse(t, "list", "web1, web2,,web1")
	if got := m.Listed(); !slices.Equal(got, ids("web1", "web2")) {
		t.Error(got)
	}
}

func TestListKeepsItsOrder(t *testing.T) {
	m := mustParse(t, "list", "c,x,a")
	minions, missing := m.Expected(ids("a", "b", "c"), nil)
	if !slices.Equal(minions, ids("c", "a")) || !slices.Equal(missing, ids("x")) {
		t.Error(minions, missing)
	}
}

// TestNodegroupIsOneTerm checks that a nodegroup is one term of a larger target.
func TestNodegroupIsOneTerm(t *testing.T) {
	g := target.Nodegroups{"g": "a or b"}
	m, err := g.Parse("compound", "N@g and c*", "")
	if err != nil {
		t.Fatal(err)
	}
	if m.Match(target.Data{MinionID: "a"}) {
		t.Error("a matches: the nodegroup was taken apart")
	}
}

func TestExpandAsSent(t *testing.T) {
	g := target.Nodegroups{"flat": "G@os:Debian or x", "ids": []string{"a", "b"}, "rx": "web[12]", "outer": "N@flat and not N@ids", "deep": "N@outer"}
	for name, want := range map[string]string{
		"flat":  "G@os:Debian or x",
		"ids":   "L@a,b",
		"rx":    "E@web[12]",
		"outer": "( ( G@os:Debian or x ) and not L@a,b )",
		"deep":  "( ( ( G@os:Debian or x ) and not L@a,b ) )",
	} {
		words, err := g.Expand(name)
		if got := strings.Join(words, " "); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
	bomb := target.Nodegroups{"n0": "a or b"}
	for i := range 40 {
		bomb[fmt.Sprint("n", i+1)] = fmt.Sprintf("N@n%d or N@n%d", i, i)
	}
	if _, err := bomb.Expand("n40"); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Error("a nodegroup beyond the limit was expanded:", err)
	}
}

func TestUnknownDataIsNeitherYesNorNo(t *testing.T) {
	s := target.Data{MinionID: "m"}
	for expr, want := range map[string][2]bool{ // Match and Expect
		"G@os:x":                {false, true},
		"not G@os:x":            {false, true},
		"m or G@os:x":           {true, true},
		"x and G@os:x":          {false, false},
		"not m or not I@a:b":    {false, true},
		"m and not S@127.0.0.1": {false, true},
	} {
		m := mustParse(t, "compound", expr)
		if got := [2]bool{m.Match(s), m.Expect(s)}; got != want {
			t.Errorf("%s: %v, want %v", expr, got, want)
		}
	}
}

func TestNeedsData(t *testing.T) {
	for expr, want := range map[string]bool{"web* or not L@a": false, "web* and ( x or not G@a:b )": true, "not S@::1": true, "I@a:b": true, "E@x": false} {
		if got := mustParse(t, "compound", expr).NeedsData(); got != want {
			t.Errorf("%s: %v", expr, got)
		}
	}
}

func TestDataIsFetchedOnlyWhenNeeded(t *testing.T) {
	calls := 0
	data := func(string) (*value.Dict, *value.Dict) {
		calls++
		return value.DictOf("os", "x"), value.DictOf()
	}
	m := mustParse(t, "compound", "web* and G@os:x and not I@a:b")
	got, _ := m.Expected(ids("db1", "db2", "web1"), data)
	if calls != 1 || !slices.Equal(got, ids("web1")) {
		t.Errorf("%d calls, %v", calls, got)
	}
}

// TestHostileDataEnds checks that data and targets designed for exponential work cost a
// bounded number of steps.
func TestHostileDataEnds(t *testing.T) {
	level := value.DictOf("a", "x")
	for range 60 {
		next := value.NewDict(2)
		for i := 1; i < 20; i++ {
			next.Set(strings.TrimSuffix(strings.Repeat("a:", i), ":"), level)
		}
		level = next
	}
	m := mustParse(t, "grain", strings.Repeat("a:", 60)+"nope")
	if m.Match(target.Data{MinionID: "x", GrainData: level}) {
		t.Error("matched")
	}
	m = mustParse(t, "grain", strings.Repeat("*:", 60)+"nope")
	if m.Match(target.Data{MinionID: "x", GrainData: level}) {
		t.Error("matched")
	}
}

func TestGlobIsNotExponential(t *testing.T) {
	g := target.ParseGlob(strings.Repeat("a*", 2000) + "b")
	if g.Match(strings.Repeat("a", 20000)) {
		t.Error("matched")
	}
	if !target.ParseGlob("*").All() || target.ParseGlob("?*").All() {
		t.Error("All")
	}
}

func TestFullRegexp(t *testing.T) {
	re, err := target.CompileFullRegexp("web1|db1")
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]bool{"web1": true, "db1": true, "web11": false, "xdb1": false} {
		if re.MatchString(s) != want {
			t.Error(s)
		}
	}
}

func FuzzCompound(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	g := readGolden(f)
	for _, c := range g.Cases {
		if s, ok := c.Expr.(string); ok {
			f.Add(s)
		}
	}
	subjects := g.subjects()
	f.Fuzz(func(t *testing.T, expr string) {
		m, err := target.Nodegroups(g.Nodegroups).Parse("compound", expr, "")
		n, err2 := target.Nodegroups(g.Nodegroups).Parse("compound", strings.Fields(expr), "")
		if (err == nil) != (err2 == nil) {
			t.Fatalf("text: %v, words: %v", err, err2)
		}
		negated, err3 := target.Nodegroups(g.Nodegroups).Parse("compound", "not ( "+expr+" )", "")
		if err == nil && err3 != nil {
			t.Fatalf("cannot be negated: %v", err3)
		}
		for _, s := range subjects {
			if m.Match(s) != n.Match(s) {
				t.Fatal("text and words differ")
			}
			if err == nil && m.Match(s) == negated.Match(s) {
				t.Fatalf("%s both matches and does not", s.ID())
			}
		}
		bare := target.Data{MinionID: g.Bare}
		if m.Match(bare) && !m.Expect(bare) {
			t.Fatal("matches, but is not expected")
		}
	})
}

func FuzzParse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	g := readGolden(f)
	types := []string{"glob", "pcre", "list", "grain", "grain_pcre", "pillar", "pillar_pcre", "pillar_exact", "ipcidr", "nodegroup"}
	for _, c := range g.Cases {
		if s, ok := c.Expr.(string); ok {
			f.Add(byte(max(0, slices.Index(types, c.Type))), s, c.Delimiter)
		}
	}
	subjects := g.subjects()
	f.Fuzz(func(t *testing.T, typ byte, expr, delimiter string) {
		m, err := target.Nodegroups(g.Nodegroups).Parse(types[int(typ)%len(types)], expr, delimiter)
		for _, s := range subjects {
			if m.Match(s) && err != nil {
				t.Fatal("an error and a match")
			}
		}
	})
}

func benchIDs() []string {
	out := make([]string, 10_000)
	for i := range out {
		out[i] = fmt.Sprintf("web%05d.dc%d.example.com", i, i%7)
	}
	return out
}

func benchMatch(b *testing.B, typ, expr string) {
	all := benchIDs()
	m := mustParse(b, typ, expr)
	b.ReportAllocs()
	for b.Loop() {
		m.Expected(all, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/id")
}

func BenchmarkGlob(b *testing.B) { benchMatch(b, "glob", "web*.dc[1-3].example.*") }
func BenchmarkCompound(b *testing.B) {
	benchMatch(b, "compound", "web*5.dc* and not ( E@web0.* or *dc3* )")
}
func BenchmarkList(b *testing.B) { benchMatch(b, "list", strings.Join(benchIDs()[:500], ",")) }

func BenchmarkGrain(b *testing.B) {
	s := readGolden(b).subjects()[0]
	m := mustParse(b, "compound", "G@os:Ubuntu or G@ec2:tags:env:prod")
	b.ReportAllocs()
	for b.Loop() {
		m.Match(s)
	}
}
