package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestEventIsAnsweredOnce: three masters receive an event, but only the master that the minion sent
// it to reacts. The reaction is recorded.
func TestEventIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	dir := daemontest.ShortDir(t)
	ledger, sls := filepath.Join(dir, "ledger"), filepath.Join(dir, "note.sls")
	for path, text := range map[string]string{ledger: "", sls: "note:\n  caller.file.append:\n    - args: [" + ledger + ", '{{ tag }}']\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// One worker, so that reactions are in the order of the events.
	f := newFleet(t, fmt.Sprintf("auto_accept: true\nreactor: [{'my/*': [%s]}]\nreactor_worker_threads: 1\n", sls), brine, brine, brine).start()
	var heard []func() string
	var want []string
	for i, m := range f.masters {
		f.minion(brine, fmt.Sprintf("m%d", i), m.Host, "")
		heard = append(heard, m.Events()) // makes all masters send all events to this one
	}
	for _, m := range f.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, "m0", "m1", "m2") })
	}
	fire := func(m *node, id, tag string) {
		if out, errs, code := m.Run(brine, "salt", id, "event.send", tag); code != 0 {
			t.Fatalf("event.send: %s%s", out, errs)
		}
		want = append(want, tag)
	}
	await := func(tag string) {
		for i, m := range f.masters {
			eventually.Nil(t, soon, m.Name+" hears of "+tag, func() error {
				if !strings.Contains(heard[i](), tag+"\n") {
					return errors.New("not yet")
				}
				return nil
			})
		}
	}
	for i := range f.masters {
		tag := fmt.Sprintf("my/own/%d", i)
		fire(f.masters[0], fmt.Sprintf("m%d", i), tag)
		await(tag)
	}
	// The reactions to all earlier events have finished when these have.
	for i, m := range f.masters {
		fire(m, fmt.Sprintf("m%d", i), fmt.Sprintf("my/last/%d", i))
	}
	slices.Sort(want)
	eventually.Nil(t, soon, "each event is answered once", func() error {
		b, _ := os.ReadFile(ledger)
		got := strings.Fields(string(b))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("answered: %v, want %v", got, want)
		}
		return nil
	})
	out, errs, _ := f.masters[1].Run(brine, "salt-run", "--out=json", "audit.list", "user=Reactor", "here=True")
	if strings.Count(out, "file.append") != 2 || !strings.Contains(out, `"cmd": "caller"`) {
		t.Errorf("on record at one master: %s%s", out, errs)
	}
}

// TestTokensAreGoodEverywhere: a token of one master of a cluster is valid at all, until it is
// revoked at any.
func TestTokensAreGoodEverywhere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	f := newFleet(t, "auto_accept: true\ntimeout: 10\nsharedsecret: s3cret\nexternal_auth: {sharedsecret: {alice: [test.ping]}}\ntoken_file: "+file+"\n",
		brine, brine).start()
	f.minion(brine, "m0", f.masters[0].Host, "")
	for _, m := range f.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	salt := func(m *node, args ...string) string {
		out, errs, _ := m.Run(brine, "salt", args...)
		return out + errs
	}
	const pong = "m0:\n    True\n"
	if out := salt(f.masters[0], "-a", "sharedsecret", "--username=alice", "--password=s3cret", "-T", "m0", "test.ping"); out != pong {
		t.Fatalf("by password: %s", out)
	}
	if out := salt(f.masters[1], "-a", "sharedsecret", "m0", "test.ping"); out != pong {
		t.Errorf("by the token at the other master: %s", out)
	}
	if out := salt(f.masters[1], "-a", "sharedsecret", "m0", "test.version"); out != "Authorization error occurred.\n" {
		t.Errorf("without the right: %s", out)
	}
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.shared, "cache", "tokens", string(token))); err != nil {
		t.Fatal(err)
	}
	for _, m := range f.masters {
		refused := func() error {
			if out := salt(m, "-a", "sharedsecret", "m0", "test.ping"); strings.Contains(out, "True") {
				return fmt.Errorf("a token that is gone is good at %s: %s", m.Name, out)
			}
			return nil
		}
		if f.mounted() { // a file that was removed through another mount stays for some seconds
			eventually.Nil(t, soon, "the token is gone", refused)
		} else if err := refused(); err != nil {
			t.Error(err)
		}
	}
}
