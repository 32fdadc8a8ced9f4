// Package durable tests with real daemons that no command and no result is
// lost, and that no job runs twice, even if processes are killed, cut off or unreachable
// meanwhile.
//
// TestManyJobs, TestManyJobsShared and TestManyJobsApart are shortened unless BRINE_DURABLE says
// otherwise, as JOBSxMINIONS: 1000x1, 1000x50 (see `make durable` and `make durable-apart`).
package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

func TestMain(m *testing.M) {
	if os.Getenv(speakerEnv) != "" {
		if err := speak(os.Stdin, os.Stdout); !errors.Is(err, io.EOF) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	daemontest.Main(m)
}

type node = daemontest.Node

const (
	brine     = daemontest.Brine
	stock     = daemontest.Stock
	waitLimit = 60 * time.Second
)

// boss is a master with a client that commands it.
type boss struct {
	*node
	t *testing.T
	c *client.Client
}

func newBoss(t *testing.T, name, more string) *boss {
	t.Helper()
	return newBossAt(t, name, daemontest.Host(), more)
}

func newBossAt(t *testing.T, name, host, more string) *boss {
	t.Helper()
	n := daemontest.NewMaster(t, brine, name, host, "auto_accept: True\ngather_job_timeout: 2\ntimeout: 5\n"+more)
	n.Level = "info"
	var o event.MasterOptions
	o.IPCMode, o.SockDir = "ipc", n.Path("var/run/salt/master")
	log := slog.New(slog.DiscardHandler)
	local, err := client.NewLocal(client.Place{Interface: n.Host, RetPort: daemontest.RetPort, Sockets: o.Sockets(),
		CacheDir: n.Path("var/cache/salt/master")}, "root", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	return &boss{n, t, client.New(client.Options{Timeout: 5 * time.Second, GatherJobTimeout: 2 * time.Second}, "", local, local, log)}
}

// bosses are hot masters with one key.
func bosses(t *testing.T, n int, more string) []*boss {
	t.Helper()
	var out []*boss
	for i := range n {
		b := newBoss(t, fmt.Sprintf("boss%d", i+1), more)
		if i > 0 {
			copyKeys(t, out[0].node, b.node)
		}
		b.Start()
		out = append(out, b)
	}
	return out
}

// sharing are the masters of a cluster with one directory for keys and caches. Each is named by its address.
func sharing(t *testing.T, n int, more string) []*boss {
	t.Helper()
	shares := daemontest.Shared(t, n)
	var hosts []string
	for range n {
		hosts = append(hosts, daemontest.Host())
	}
	var out []*boss
	for i, host := range hosts {
		peers, shared := slices.Delete(slices.Clone(hosts), i, i+1), shares[i]
		b := newBossAt(t, host, host, fmt.Sprintf("cluster_id: test\ncluster_peers: [%s]\ncluster_pki_dir: %s/pki\n%s",
			strings.Join(peers, ", "), shared, more))
		for _, dir := range []string{shared + "/pki", shared + "/cache", b.Path("var/cache/salt")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		// root_dir is prepended to cachedir, so that the shared directory cannot be named directly.
		if err := os.Symlink(shared+"/cache", b.Path("var/cache/salt/master")); err != nil {
			t.Fatal(err)
		}
		b.Launch()
		out = append(out, b)
	}
	for _, b := range out {
		b.Await()
	}
	return out
}

func copyKeys(t *testing.T, from, to *node) {
	t.Helper()
	const pki = "etc/salt/pki/master"
	if err := os.MkdirAll(to.Path(pki), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"master.pem", "master.pub"} {
		b, err := os.ReadFile(filepath.Join(from.Dir, pki, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to.Dir, pki, name), b, 0o400)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// worker returns a running minion that is known to all masters.
func worker(t *testing.T, id, more string, masters ...*boss) *node {
	t.Helper()
	return workerOf(t, brine, id, more, masters...)
}

func workerOf(t *testing.T, kind daemontest.Kind, id, more string, masters ...*boss) *node {
	t.Helper()
	var hosts []string
	for _, b := range masters {
		hosts = append(hosts, b.Host)
	}
	n := daemontest.NewMinion(t, kind, id, hosts, more)
	n.Level = "info"
	return n.Start()
}

func (b *boss) answered(ids ...string) {
	b.t.Helper()
	eventually.Nil(b.t, waitLimit, fmt.Sprintf("%v answer %s", ids, b.Name), func() error {
		_, results, err := b.c.Call(b.t.Context(), client.Job{Target: value.Strings(ids), Type: "list", Fun: "test.ping", Timeout: time.Second})
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Return != true {
				return fmt.Errorf("%s did not answer", r.ID)
			}
		}
		if len(results) != len(ids) {
			return fmt.Errorf("%d minions", len(results))
		}
		return nil
	})
}

// shell publishes cmd.run and does not wait. The caller chooses the job id, so that it can publish
// the job again if it is unknown whether the master accepted it.
func (b *boss) shell(ctx context.Context, jid string, target any, script string, kwargs *value.Dict) error {
	typ := "list"
	if _, ok := target.(string); ok {
		typ = "glob"
	}
	_, err := b.c.Publish(ctx, client.Job{Target: target, Type: typ, Fun: "cmd.run", Arg: value.ListOf(script), JID: jid, Kwargs: kwargs})
	return err
}

func (b *boss) mustShell(target, script string, kwargs *value.Dict) (jid string) {
	b.t.Helper()
	jid = salt.NewJID(time.Now())
	if err := b.shell(b.t.Context(), jid, target, script, kwargs); err != nil {
		b.t.Fatal(err)
	}
	return jid
}

// results returns the results of a job that the master shows, by minion.
func (b *boss) results(jid string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	return b.lookup(ctx, jid)
}

func (b *boss) lookup(ctx context.Context, jid string) (map[string]any, error) {
	d, err := b.c.Run(ctx, client.Runner{Fun: "jobs.lookup_jid", Args: []any{jid}}, nil, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	ret := d.Dict("return")
	if ret.Has("outputter") && ret.Has("data") { // results with an outputter
		ret = ret.Dict("data")
	}
	for k, v := range ret.All() {
		out[value.Str(k)] = v
	}
	return out, nil
}

// shows waits until a master shows a result that contains a text.
func (b *boss) shows(jid, id, text string) time.Duration {
	b.t.Helper()
	return eventually.Nil(b.t, waitLimit, fmt.Sprintf("%s shows the result of %s: %q", b.Name, id, text), func() error {
		rets, err := b.results(jid)
		if err == nil && !strings.Contains(value.Str(rets[id]), text) {
			err = fmt.Errorf("results: %.300q", fmt.Sprint(rets))
		}
		return err
	})
}

// state returns the state of a job on a minion according to the master.
func (b *boss) state(jid, id string) string {
	s, err := b.c.States(context.Background(), jid)
	if err != nil {
		return err.Error()
	}
	return s.Minions[id]
}

var errNotYet = errors.New("not yet")

// lines returns the lines of a file, without an unfinished last line.
func lines(path string) []string {
	b, _ := os.ReadFile(path)
	return strings.Fields(string(b))
}
