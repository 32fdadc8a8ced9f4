package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// haproxyProgram returns HAProxy or skips.
func haproxyProgram(t *testing.T) string {
	t.Helper()
	return tools.Need(t, "haproxy", "haproxy")
}

// balance runs HAProxy with the documented configuration in front of the masters, and returns its
// address.
func (f *fleet) balance() string {
	f.t.Helper()
	host := daemontest.Host()
	f.balanceAt(host, nil)
	return host
}

// balanceAt is balance at an address, by a command that runs it elsewhere.
func (f *fleet) balanceAt(host string, within []string) {
	f.t.Helper()
	f.balanceOver(host, within, f.masters...)
}

// balanceOver is balanceAt with the given masters, in the order of the file.
func (f *fleet) balanceOver(host string, within []string, masters ...*node) {
	f.t.Helper()
	program := haproxyProgram(f.t)
	b, err := os.ReadFile("../../packaging/haproxy/haproxy.cfg")
	if err != nil {
		f.t.Fatal(err)
	}
	text := string(b)
	for i, m := range masters {
		for _, port := range []string{"4505", "4506"} {
			text = strings.Replace(text, fmt.Sprintf("192.0.2.%d:%s", i+1, port), m.Host+":2"+port, 1)
		}
	}
	text = strings.ReplaceAll(text, "bind :", "bind "+host+":2")
	if strings.Contains(text, "192.0.2.") {
		f.t.Fatalf("the file names more masters than there are:\n%s", text)
	}
	path := filepath.Join(f.shared, "haproxy.cfg")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(f.shared, "haproxy.log"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	line := append(slices.Clone(within), program, "-db", "-f", path)
	c := exec.Command(line[0], line[1:]...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if f.t.Failed() {
			b, _ := os.ReadFile(log.Name())
			f.t.Logf("--- HAProxy:\n%s", b[max(0, len(b)-3000):])
		}
	})
}

// holder returns the master to which a minion's subscription is connected.
func (f *fleet) holder(asked *node, id string) *node {
	f.t.Helper()
	var holder *node
	eventually.Nil(f.t, soon, "another process uses "+id, func() error {
		out, _, _ := asked.Run(brine, "salt-run", "--out=json", "manage.masters", "tgt="+id)
		var d map[string]struct {
			By []string `json:"held_by"`
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if len(d[id].By) != 1 {
			return errors.New(out)
		}
		for _, m := range f.masters {
			if m.Name == d[id].By[0] {
				holder = m
			}
		}
		return nil
	})
	return holder
}

// publish starts a job at a master and returns its id.
func (f *fleet) publish(at *node, tgt string, call ...string) string {
	f.t.Helper()
	jid := ""
	eventually.Nil(f.t, soon, "a job is published", func() error {
		out, errs, _ := at.Run(brine, "salt", append([]string{"--async", "--expire=5m", tgt}, call...)...)
		if jid = jidIn(out + errs); jid == "" {
			return errors.New(out + errs)
		}
		return nil
	})
	return jid
}

// returned reports whether the shared directory has a minion's return.
func (f *fleet) returned(jid, id string) bool {
	sum := sha256.Sum256([]byte(jid))
	name := hex.EncodeToString(sum[:])
	_, err := os.Stat(filepath.Join(f.shared, "cache/jobs", name[:2], name[2:], id, "return.p"))
	return err == nil
}

func other(f *fleet, than ...*node) *node {
	for _, m := range f.masters {
		free := true
		for _, x := range than {
			free = free && m != x
		}
		if free {
			return m
		}
	}
	return nil
}

// holderLimit is the maximum duration of a job whose minion loses its master. Measured are a
// fraction of a second (killed) and two seconds (frozen).
const holderLimit = 50 * time.Second

// TestLostHolder: behind HAProxy, the master that holds a minion's subscription is killed, then
// another one is frozen. A job sent at that moment arrives. The time is logged, and bounded far
// below the minute that it takes without the health checks of the balancer and the checks of the
// masters, even on a machine that is ten times too slow.
func TestLostHolder(t *testing.T) {
	t.Parallel()
	haproxyProgram(t)
	f := newFleet(t, "auto_accept: true\n", brine, brine, brine).start()
	host := f.balance()
	ids := []string{"m0", "m1", "m2"}
	for _, id := range ids {
		f.minion(brine, id, host, "")
	}
	for _, m := range f.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	for _, fault := range []struct {
		name string
		do   func(n *node)
		undo func(n *node)
	}{
		{"killed", func(n *node) { n.Kill() }, func(n *node) { n.Start() }},
		{"frozen", func(n *node) { n.Signal(syscall.SIGSTOP) }, func(n *node) { n.Signal(syscall.SIGCONT) }},
	} {
		for _, id := range ids[:2] {
			victim := f.holder(f.masters[0], id)
			survivor := other(f, victim)
			fault.do(victim)
			from := time.Now()
			jid := f.publish(survivor, id, "test.echo", fault.name)
			sent := time.Since(from)
			eventually.Nil(t, soon, "the job that was sent when "+victim.Name+" was "+fault.name+" has returned", func() error {
				if !f.returned(jid, id) {
					return errors.New("no return")
				}
				return nil
			})
			if took := time.Since(from); took > holderLimit {
				t.Errorf("holder of %s %s: the job took %v to come back, more than %v", id, fault.name, took, holderLimit)
			}
			t.Logf("holder of %s %s: job sent after %v, returned after %v", id, fault.name, sent.Round(time.Millisecond), time.Since(from).Round(time.Millisecond))
			fault.undo(victim)
			for _, m := range f.masters {
				eventually.Nil(t, soon, "all answer to "+m.Name+" again", func() error { return m.PingAll(brine, ids...) })
			}
		}
	}
}
