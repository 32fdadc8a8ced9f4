package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/net/remote"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/returner"
)

// TestMisspeltServerOptions: a misspelt option of a server is found; others may belong to a module of
// the user's own.
func TestMisspeltServerOptions(t *testing.T) {
	declared := declaredNames([]any{&Master{}})
	for name, want := range map[string]string{
		"redis.prot": "redis.port", "cache.redis.pasword": "cache.redis.password", "mysql.hosst": "mysql.host", "auth.ldap.servre": "auth.ldap.server",
		"s3.bukets": "s3.buckets", "returner.pgjsonb.uesr": "returner.pgjsonb.user", "rawfile_json.filenam": "rawfile_json.filename",
		"redis.port": "", "mysql.default_file": "", "redis.cluster.startup_nodes": "", "redis.cluster.skip_full_coverage_check": "", "own.prot": "",
		"mysql.something_else": "", "a.b.c": "", ".port": "", "etcd.": "",
	} {
		if got := misspelt(name, declared); got != want {
			t.Errorf("%s is taken for %q, not %q", name, got, want)
		}
	}
}

// TestServerOptions: the list has all options that drivers and returners read.
func TestServerOptions(t *testing.T) {
	var read []string
	src := remote.Source(func(name string) any { read = append(read, name); return nil })
	for _, name := range drivers.Names() {
		if d, err := drivers.Open(name, src, time.Second); err != nil {
			t.Fatal(err)
		} else if d != nil {
			d.Close()
		}
	}
	for _, name := range returner.Names() {
		r, err := returner.Open(name, returner.Config{Source: src, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	if len(read) < 20 {
		t.Fatalf("only %q were read", read)
	}
	for _, name := range read {
		known := false
		for _, o := range serverOptions {
			for _, prefix := range strings.Fields(o.prefixes) {
				rest, ok := strings.CutPrefix(name, prefix+".")
				known = known || ok && slices.Contains(strings.Fields(o.names), rest)
			}
		}
		if !known {
			t.Errorf("serverOptions lacks %s", name)
		}
	}
}
