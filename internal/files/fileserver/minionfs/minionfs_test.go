package minionfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServe(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"web1/files/etc/hosts": "h", "web1/files/top.sls": "t", "web1/files/etc/skip.bak": "s", "web1/data.p": "d", "db1/files/a": "a", "secret": "s",
	} {
		p := filepath.Join(dir, "minions", name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"web1/files/link": "../../secret", "web1/files/out": "../.."} {
		if err := os.Symlink(to, filepath.Join(dir, "minions", link)); err != nil {
			t.Fatal(err)
		}
	}
	ignored := func(p string) bool { return strings.HasSuffix(p, ".bak") }
	f, err := New(Options{Env: "base", Mount: "salt://pushed", Blacklist: []string{"db.*"}}, "minion", dir, true, ignored)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"pushed/web1/etc/hosts": true, "web1/etc/hosts": false, "pushed/web1/top.sls": false, "pushed/web1/link": false, "pushed/web1/out/secret": false,
		"pushed/db1/a":             false,
		"pushed/web1/etc/skip.bak": false, "pushed/web1": false, "pushed/web1/etc": false, "pushed/web1/none": false,
	} {
		found, ok := f.Find("base", name, nil)
		if ok != want || ok && found.Rel != "web1/etc/hosts" {
			t.Errorf("%s: %v %+v", name, ok, found)
		}
	}
	if _, ok := f.Find("dev", "pushed/web1/etc/hosts", nil); ok {
		t.Error("it is in another environment")
	}
	l, err := f.Lists(t.Context(), "base")
	if err != nil || fmt.Sprint(l.Files, l.Dirs) != "[pushed/web1/etc/hosts pushed/web1/top.sls] [pushed/web1/etc]" {
		t.Error(l, err)
	}
	if _, err := New(Options{}, "minion", dir, false, ignored); err == nil {
		t.Error("without file_recv there is a server")
	}
	none, err := New(Options{Env: "base"}, "minion", dir+"/none", true, ignored)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := none.Lists(t.Context(), "base"); err != nil || len(l.Files) > 0 {
		t.Error(l, err)
	}
}
