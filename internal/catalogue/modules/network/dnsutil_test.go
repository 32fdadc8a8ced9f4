package network

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

// TestDNSUtilLikeSalt edits copies of a hosts file with Salt and with Brine.
func TestDNSUtilLikeSalt(t *testing.T) {
	write := func() string {
		path := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(path, []byte("# top\n127.0.0.1\tlocalhost lo\n\n10.0.0.1 a b c\n10.0.0.1 d\n  # in\n10.0.0.2 x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	theirs, ours := write(), write()
	jobs := func(file string) [][]any {
		return [][]any{
			{"dnsutil.parse_hosts", file}, {"dnsutil.parse_hosts", "/nothing/there"}, {"dnsutil.parse_hosts", "/x", "10.0.0.1 a\n# b\n"},
			{"dnsutil.hosts_append", file, "10.0.0.1", "a,e"}, {"dnsutil.hosts_append", file, "10.0.0.1", "b"},
			{"dnsutil.hosts_append", file, "10.0.0.9", "z,y"},
			{"dnsutil.parse_hosts", file}, {"dnsutil.hosts_remove", file, "x,b"}, {"dnsutil.hosts_remove", file, "c"}, {"dnsutil.parse_hosts", file},
		}
	}
	recorded := stocktest.Ask(t, map[string]any{}, jobs(theirs)...)
	r, err := fn.NewRegistry(nil, dnsutilModule(&host.Machine{}))
	if err != nil {
		t.Fatal(err)
	}
	for i, job := range jobs(ours) {
		args := make([]any, 0, len(job))
		for _, a := range job[1:] {
			args = append(args, value.From(a))
		}
		want := strings.ReplaceAll(value.Repr(recorded[i].At("return")), theirs, ours)
		if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: job[0].(string), Arg: args}); value.Repr(got.Return) != want {
			t.Errorf("%v: returns %s\nSalt: %s", job, value.Repr(got.Return), want)
		}
	}
	for _, text := range []string{"$TTL", "www IN A 1.2.3.4", "@ IN SOA a", "$ORIGIN x.\nwww IN", "$ORIGIN x.\n@ IN MX 1", "$ORIGIN x.\na 5 IN A",
		"$ORIGIN x.\na IN ORIGIN b"} {
		if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "dnsutil.parse_zone", Arg: []any{nil, text}}); !strings.Contains(value.Str(got.Return),
			"of the zone") {
			t.Errorf("%q: %v", text, got.Return)
		}
	}
}

// kept holds the grains of a minion.
type kept struct{ *value.Dict }

func (k kept) Grains() *value.Dict { return k.Dict }

func (k kept) Change(set *value.Dict, _ []string) { k.Update(set) }

func (kept) Refresh(context.Context, bool) error { return nil }

// TestSerial keeps serial numbers in grains.
func TestSerial(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "minion")
	grains := value.NewDict(1)
	r, err := fn.NewRegistry(fn.Tree{Dict: grains}, core.Grains(kept{grains}), dnsutilModule(&host.Machine{}))
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...any) any {
		c := &fn.Call{Funcs: r, Config: fn.Tree{Dict: value.DictOf("conf_file", conf)}, Grains: fn.Tree{Dict: grains}}
		return r.Run(t.Context(), c, fn.Job{Fun: "dnsutil.serial", Arg: args}).Return
	}
	today := time.Now().Format("20060102")
	if got := run("a.test"); got != today+"01" && got != time.Now().Format("20060102")+"01" {
		t.Fatalf("without a number there is %v", got)
	}
	if b, err := os.ReadFile(filepath.Join(filepath.Dir(conf), "grains")); err == nil {
		t.Fatalf("asking has kept %s", b)
	}
	for old, want := range map[any]any{"2999123198": "2999123199", int64(2999123198): "2999123199", "what": "no number"} {
		grains.Set("dnsserial_a.test", old)
		if got := run("a.test"); got != old {
			t.Errorf("%v: %v", old, got)
		}
		if got := value.Str(run("a.test", true)); !strings.Contains(got, want.(string)) {
			t.Errorf("after %v comes %v", old, got)
		}
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(conf), "grains"))
	if err != nil || !strings.Contains(string(b), "dnsserial_a.test: '2999123199'") {
		t.Errorf("kept is %q, %v", b, err)
	}
}
