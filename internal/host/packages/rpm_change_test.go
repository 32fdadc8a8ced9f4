package packages

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/host"
)

// TestRPMChanges uses a map as the package database, which fake programs change
// like the real ones.
func TestRPMChanges(t *testing.T) {
	var calls []string
	m := fake(t, map[string]string{}, nil, nil)
	have := map[string]string{"bash": "5.1.8-6.el9", "zsh": "5.8-9.el9"}
	m.Exec = nil
	m.ExecCmd = func(_ context.Context, c host.Cmd) (host.Output, error) {
		call := strings.Join(append([]string{filepath.Base(c.Program)}, c.Args...), " ")
		if strings.HasPrefix(call, "rpm -qa") {
			var out strings.Builder
			for name, v := range have {
				version, release, _ := strings.Cut(v, "-")
				fmt.Fprintf(&out, "%s\t(none)\t%s\t%s\tx86_64\n", name, version, release)
			}
			return host.Output{Stdout: out.String()}, nil
		}
		calls = append(calls, call)
		switch {
		case strings.Contains(call, "--showduplicates list nano"):
			// as dnf 4 prints it
			return host.Output{Stdout: "Available Packages\nnano.x86_64            5.6.1-5.el9             baseos\nnano.x86_64            " +
				"5.6.1-6.el9             baseos\nnano.i686 5.6.1-6.el9 baseos"}, nil
		case strings.HasSuffix(call, " install nano-5.6.1-6.el9"):
			have["nano"] = "5.6.1-6.el9"
		case strings.HasSuffix(call, " downgrade bash-5.1.8-5.el9"):
			have["bash"] = "5.1.8-5.el9"
		case strings.HasSuffix(call, " remove zsh"):
			delete(have, "zsh")
		case strings.HasSuffix(call, " install nothing"):
			return host.Output{Exit: 1, Stderr: "Error: Unable to find a match: nothing"}, nil
		case strings.HasSuffix(call, "versionlock list"):
			return host.Output{Stdout: "bash-0:5.1.8-6.el9.*\n0:zsh-5.8-9.el9.*\n# a comment"}, nil
		}
		return host.Output{}, nil
	}
	r := rpm{m, "x86_64"}
	ctx := t.Context()
	c, err := r.Install(ctx, []Target{{Name: "nano", Version: ">=5.6.1-6"}, {Name: "bash", Version: "5.1.8-5.el9"}, {Name: "zsh"}},
		InstallOptions{Options: Options{From: "baseos"}, Reinstall: true})
	if got := fmt.Sprint(c); err != nil || got != "map[bash:{5.1.8-6.el9 5.1.8-5.el9} nano:{ 5.6.1-6.el9} zsh:{5.8-9.el9 5.8-9.el9}]" {
		t.Errorf("install: %s, %v", got, err)
	}
	want := []string{
		"dnf --quiet --disablerepo=* --enablerepo=baseos --showduplicates list nano",
		"dnf -y --best --allowerasing --disablerepo=* --enablerepo=baseos install nano-5.6.1-6.el9",
		"dnf -y --best --allowerasing --disablerepo=* --enablerepo=baseos downgrade bash-5.1.8-5.el9",
		"dnf -y --best --allowerasing --disablerepo=* --enablerepo=baseos reinstall zsh",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("ran %q", calls)
	}
	c, err = r.Install(ctx, []Target{{Name: "nothing"}}, InstallOptions{})
	if err == nil || err.Error() != "Error: Unable to find a match: nothing" || len(c) != 0 {
		t.Errorf("an unknown package: %v, %v", c, err)
	}
	gone, _, err := r.Remove(ctx, []string{"z*", "absent"}, false)
	if got := fmt.Sprint(gone); err != nil || got != "map[zsh:{5.8-9.el9 }]" {
		t.Errorf("remove: %s, %v", got, err)
	}
	if held, err := r.Held(ctx); err != nil || fmt.Sprint(held) != "[bash zsh]" {
		t.Errorf("held: %v, %v", held, err)
	}
	if word := r.word(Target{Name: "glibc.i686"}, "2.34-1"); word != "glibc-2.34-1.i686" {
		t.Errorf("word: %s", word)
	}
}

func TestSources(t *testing.T) {
	m := fake(t, map[string]string{
		"/etc/apt/sources.list": "# words\ndeb [arch=amd64,i386 signed-by=/k.gpg trusted=yes] http://a/debian/ stable main contrib # " +
			"mine\n#deb-src http://a/debian stable main\n",
		"/etc/apt/sources.list.d/b.list":    "deb http://b x main\n",
		"/etc/apt/sources.list.d/c.sources": "Types: deb deb-src\n# no\nURIs: http://c\nSuites: s1 s2\nComponents: main\nSigned-By: /c.gpg\n",
	}, nil, nil)
	a := apt{m, "amd64"}
	all, err := a.Repos()
	if err != nil || len(all) != 7 {
		t.Fatalf("%d repositories, %v", len(all), err)
	}
	r := all[0]
	if r.URI != "http://a/debian/" || r.Dist != "stable" || fmt.Sprintln(r.Comps, r.Architectures, r.SignedBy, r.Options, r.Comment,
		r.Disabled) != "[main contrib] [amd64 i386] /k.gpg [trusted=yes] mine false\n" {
		t.Errorf("%+v", r)
	}
	if !all[1].Disabled || all[1].Type != "deb-src" || all[3].String() != "deb [signed-by=/c.gpg] http://c s1 main" {
		t.Errorf("%+v, %s", all[1], all[3])
	}
	changed := r
	changed.Comps = []string{"main"}
	if err := a.SetRepo(&r, changed); err != nil {
		t.Fatal(err)
	}
	if err := a.RemoveRepo(all[2]); err != nil {
		t.Fatal(err)
	}
	if err := a.SetRepo(nil, Repo{Type: "deb", URI: "http://d", Dist: "x", File: "/etc/apt/sources.list.d/d.list"}); err != nil {
		t.Fatal(err)
	}
	if got, want := m.Text("/etc/apt/sources.list"),
		"# words\ndeb [arch=amd64,i386 signed-by=/k.gpg trusted=yes] http://a/debian/ stable main #mine\n#deb-src http://a/debian stable main\n"; got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if m.Exists("/etc/apt/sources.list.d/b.list") || m.Text("/etc/apt/sources.list.d/d.list") != "deb http://d x\n" {
		t.Error("b.list is still there, or d.list is wrong")
	}
	for _, bad := range []string{"", "deb", "deb http://x", "rpm http://x y", "deb [arch=x http://x y"} {
		if _, err := ParseRepo(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
