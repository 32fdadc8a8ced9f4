package top

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// texts is a source of top files: ENV is a top file, ENV/NAME an included one.
type texts map[string]string

func (s texts) Envs(context.Context) ([]string, error) {
	var out []string
	for k := range s {
		if !strings.Contains(k, "/") {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (s texts) States(_ context.Context, env string) ([]string, error) {
	var out []string
	for k := range s {
		if name, ok := strings.CutPrefix(k, env+"/"); ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (s texts) Top(_ context.Context, env string) (any, bool, error) {
	t, ok := s[env]
	if !ok || t == "" {
		return nil, false, nil
	}
	v, err := yaml.Load([]byte(t), env)
	return v, true, err
}

func (s texts) SLS(_ context.Context, name, env string) (any, error) {
	return yaml.Load([]byte(s[env+"/"+name]), name)
}

// TestMatches tests the strategies, options and forms of targets on small sets of
// files. The expected results follow the documented rules of Salt.
func TestMatches(t *testing.T) {
	two := texts{
		"base": "base:\n  '*': [b1]\n  'web*': [b2]\ndev:\n  '*': [from-base]\n",
		"dev":  "dev:\n  '*': [d1]\nbase:\n  '*': [b1, from-dev]\nqa:\n  '*': [never]\n",
		"qa":   "qa:\n  'G@os:Debian': [q1]\n", "none": "",
	}
	for _, c := range []struct {
		name    string
		files   texts
		o       Options
		saltenv string
		want    string
	}{
		{"merge", two, Options{Strategy: "merge"}, "", "base: b1 b2; dev: from-base; qa: q1"},
		{"unknown", two, Options{Strategy: "nonsense"}, "", "base: b1 b2; dev: from-base; qa: q1"},
		{"same", two, Options{Strategy: "same", DefaultTop: "base"}, "", "base: b1 b2; dev: d1; qa: q1"},
		{"same, default_top dev", texts{"dev": "dev:\n  '*': [d]\nnone:\n  '*': [n]\n", "none": ""}, Options{Strategy: "same", DefaultTop: "dev"}, "",
			"dev: d; none: n"},
		{"merge_all", two, Options{Strategy: "merge_all"}, "", "base: b1 from-dev b2; dev: from-base d1; qa: never q1"},
		{"env_order", two, Options{Strategy: "merge_all", EnvOrder: []string{"dev", "base", "nosuch"}}, "",
			"dev: d1 from-base; base: b1 from-dev b2; qa: never"},
		{"state_top_saltenv", two, Options{Strategy: "merge", StateTopSaltenv: "qa"}, "", "qa: q1"},
		{"saltenv", two, Options{Strategy: "merge"}, "dev", "dev: d1"},
		{"include", texts{"base": "include: ['x.*']\nbase:\n  '*': [a]\n", "base/x.one": "base:\n  'web*': [b]\n"}, Options{Strategy: "merge"}, "",
			"base: a b"},
		{"match", texts{"base": "base:\n  'os:Deb*': [{match: grain}, a]\n  'os:Red*': [{match: grain}, b]\n  'db*': [c]\n"}, Options{Strategy: "merge"}, "",
			"base: a"},
		{"subfilter", texts{"base": "base:\n  'web*':\n    - a\n    - subfilter: {'G@os:Debian': [b], 'G@os:Red': [c]}\n    - qa: d\n"},
			Options{Strategy: "merge"}, "", "base: a b; qa: d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			files, err := Gather(t.Context(), c.files, c.o, c.saltenv)
			if err != nil {
				t.Fatal(err)
			}
			merged, err := Merge(files, c.o, log)
			if err != nil {
				t.Fatal(err)
			}
			m := Matcher{Subject: target.Data{MinionID: "web1", GrainData: value.DictOf("os", "Debian")}, Avail: func(env string) bool { return env == "qa" }}
			got, err := m.Matches(merged, c.saltenv)
			var parts []string
			for _, g := range got {
				parts = append(parts, fmt.Sprintf("%s: %s", g.Saltenv, strings.Join(g.SLS, " ")))
			}
			if text := strings.Join(parts, "; "); text != c.want || err != nil {
				t.Errorf("got %s (%v), want %s", text, err, c.want)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"base: [1]\n":                       "No targets found",
		"- 1\n":                             "not a map",
		"base: {'*': [{match: nosuch}, a]}": "nosuch",
	} {
		files, err := Gather(t.Context(), texts{"base": text}, Options{Strategy: "merge"}, "")
		if err == nil {
			var merged *value.Dict
			if merged, err = Merge(files, Options{Strategy: "merge"}, slog.New(slog.DiscardHandler)); err == nil {
				_, err = (&Matcher{Subject: target.Data{MinionID: "m"}}).Matches(merged, "")
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
