// Package demo is the program `brine demo`: it shows on one machine, in a temporary directory and
// on loopback, what Brine does. Two masters that share a key command three minions and apply the
// same states. One master is killed, and the other continues; the first is restarted and commands
// the fleet as before. A fourth minion, which uses one master at a time, fails over and back.
//
// `brine demo cluster` shows a cluster of masters without a shared directory: one is killed, one
// joins, one leaves.
//
// The demo starts the programs that users start, as separate processes, and uses them by their
// command lines. Any unexpected result ends it with exit code 1. It removes all its files.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"brine/internal/cli/frame"
	"brine/internal/cli/tempfleet"
)

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: "demo", Summary: "two masters and four minions on this machine; one master dies and comes back", Run: run}
}

var command = frame.Command{
	Name: "demo", Usage: "[cluster|console]",
	Doc: "Starts two masters and three minions on loopback, commands them, applies states from either, and has one master die and come back; then " +
		"the same with a minion that uses one master at a time. " +
		"With the word cluster: three masters without a shared directory become one, six minions, a master that is killed, one that joins and one " +
		"that leaves. " +
		"With the word console: two masters with their web consoles and three minions run until you end them.",
}

func run(ctx context.Context, env *frame.Env, args []string) int {
	inv, code, ok := command.Parse(env, &struct{}{}, args)
	if !ok {
		return code
	}
	d := &demo{out: env.Stdout, began: time.Now()}
	show := d.run
	switch {
	case len(inv.Args) == 1 && inv.Args[0] == "cluster":
		show = d.runCluster
	case len(inv.Args) == 1 && inv.Args[0] == "console":
		show = d.runConsole
	case len(inv.Args) > 0:
		return command.Fail(env, "it takes no arguments, or one of the words cluster and console")
	}
	err := show(ctx)
	if err != nil {
		fmt.Fprintf(env.Stdout, "\nFAILED: %v\n", err)
		d.showLogs(env.Stderr)
	}
	if e := d.cleanUp(); e != nil && err == nil {
		fmt.Fprintf(env.Stdout, "\nFAILED: cannot clean up: %v\n", e)
		err = e
	}
	if err != nil {
		return frame.ExitFailure
	}
	fmt.Fprintf(env.Stdout, "\nAll as it should be, in %s. Nothing is left behind.\n", seconds(time.Since(d.began)))
	return frame.ExitOK
}

// minions are the minions with their role, a grain.
var minions = []tempfleet.Minion{{ID: "alpha", Role: "web"}, {ID: "beta", Role: "web"}, {ID: "gamma", Role: "db"}}

// single is the minion that uses one master at a time.
var single = tempfleet.Minion{ID: "delta", Role: "web", Later: true, More: "master_type: failover\nmaster_failback: True\nmaster_failback_interval: 1\n"}

type demo struct {
	out   io.Writer
	began time.Time
	fleet *tempfleet.Fleet
	steps int
}

// step runs one part, and shows its title, result and duration.
func (d *demo) step(title string, do func() (string, error)) error {
	d.steps++
	fmt.Fprintf(d.out, "%2d. %s\n", d.steps, title)
	from := time.Now()
	text, err := do()
	if err != nil {
		return fmt.Errorf("step %d (%s): %w", d.steps, title, err)
	}
	for line := range strings.Lines(text) {
		fmt.Fprintf(d.out, "      %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(d.out, "      %s\n", seconds(time.Since(from)))
	return nil
}

func seconds(t time.Duration) string { return fmt.Sprintf("%.2f s", t.Seconds()) }

func (d *demo) run(ctx context.Context) (err error) {
	if d.fleet, err = tempfleet.New(append(slices.Clone(minions), single), "", ""); err != nil {
		return err
	}
	f := d.fleet
	one, two := f.Masters[0], f.Masters[1]
	fmt.Fprintf(d.out, "Two hot masters with one key, three minions, all below %s\n\n", f.Dir)
	for _, s := range []struct {
		title string
		do    func() (string, error)
	}{
		{"Start master one, and master two with a copy of its master.pem and master.pub", func() (string, error) { return "", f.StartMasters(ctx) }},
		{"Start minions alpha, beta and gamma, each with both masters in its list", func() (string, error) { return "", f.StartMinions() }},
		{"Accept their keys on each master with salt-key", func() (string, error) { return d.acceptKeys(ctx) }},
		{"salt '*' test.ping on master one", func() (string, error) { return d.pingAll(ctx, one) }},
		{"salt '*' test.ping on master two", func() (string, error) { return d.pingAll(ctx, two) }},
		{"salt -G role:web cmd.run 'echo I am $0' on master one", func() (string, error) { return d.runByGrain(ctx, one) }},
		{"Give both masters the same top file, states and pillar; salt '*' state.apply on master one", func() (string, error) {
			if err := d.shareFiles(tree); err != nil {
				return "", err
			}
			return d.apply(ctx, one, 2)
		}},
		{"The same on master two: there is nothing left to do", func() (string, error) { return d.apply(ctx, two, 0) }},
		{"Kill master one (SIGKILL), and at once salt '*' test.ping on master two", func() (string, error) {
			one.Kill()
			return d.pingAll(ctx, two)
		}},
		{"Ten more pings through master two while master one is dead", func() (string, error) { return d.pingMany(ctx, two, 10) }},
		{"Change the pillar; master two alone applies it: the page changes, its service restarts", func() (string, error) { return d.edit(ctx, two) }},
		{"Start master one again; time until it commands all minions", func() (string, error) { return d.revive(ctx, one) }},
		{"Both masters command the fleet", func() (string, error) {
			a, err := d.pingAll(ctx, one)
			if err != nil {
				return "", err
			}
			b, err := d.pingAll(ctx, two)
			return "one: " + a + "\ntwo: " + b, err
		}},
		{"Start minion delta, which uses one master at a time (master_type: failover)", func() (string, error) { return d.startSingle(ctx) }},
		{"Kill master one; time until delta does what master two says", func() (string, error) {
			one.Kill()
			return d.moved(ctx, two)
		}},
		{"Start master one again; delta goes back to it (master_failback: True)", func() (string, error) {
			if err := one.Start(); err != nil {
				return "", err
			}
			return d.moved(ctx, one)
		}},
	} {
		if err := d.step(s.title, s.do); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) acceptKeys(ctx context.Context) (string, error) {
	for _, m := range d.fleet.Masters {
		if err := d.accept(ctx, m, len(minions)); err != nil {
			return "", err
		}
	}
	for _, m := range d.fleet.Masters {
		err := d.fleet.Await(ctx, "the minions to be connected to "+m.Name, func() error {
			_, err := d.pingAll(ctx, m)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return "3 keys accepted on each", nil
}

// accept waits for n keys on a master, and accepts them.
func (d *demo) accept(ctx context.Context, m *tempfleet.Daemon, n int) error {
	if err := d.fleet.Await(ctx, "all keys to be pending on "+m.Name, func() error { return d.pending(ctx, m, n) }); err != nil {
		return err
	}
	_, err := m.Command(ctx, "salt-key", "-y", "-A")
	return err
}

func (d *demo) pending(ctx context.Context, m *tempfleet.Daemon, n int) error {
	out, err := m.Command(ctx, "salt-key", "-L", "--out=json")
	if err != nil {
		return err
	}
	var keys struct {
		Pending []string `json:"minions_pre"`
	}
	if err := json.Unmarshal([]byte(out), &keys); err != nil {
		return fmt.Errorf("salt-key did not print JSON: %w", err)
	}
	if len(keys.Pending) != n {
		return fmt.Errorf("pending: %v", keys.Pending)
	}
	return nil
}

// pingAll requires a reply from every minion.
func (d *demo) pingAll(ctx context.Context, m *tempfleet.Daemon) (string, error) {
	out, err := m.Command(ctx, "salt", "--static", "--out=json", "-t", "3", "*", "test.ping")
	if err != nil {
		return "", err
	}
	var rets map[string]any
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return "", fmt.Errorf("salt did not print JSON: %w", err)
	}
	var names []string
	for _, w := range minions {
		if rets[w.ID] != true {
			return "", fmt.Errorf("%s: no answer from %s: %s", m.Name, w.ID, strings.TrimSpace(out))
		}
		names = append(names, w.ID)
	}
	return strings.Join(names, ", ") + " answered", nil
}

func (d *demo) pingMany(ctx context.Context, m *tempfleet.Daemon, n int) (string, error) {
	for i := range n {
		if _, err := d.pingAll(ctx, m); err != nil {
			return "", fmt.Errorf("ping %d of %d: %w", i+1, n, err)
		}
	}
	return fmt.Sprintf("%d of %d answered by all", n, n), nil
}

func (d *demo) runByGrain(ctx context.Context, m *tempfleet.Daemon) (string, error) {
	out, err := m.Command(ctx, "salt", "--static", "--out=json", "-G", "role:web", "cmd.run", "echo I am $0")
	if err != nil {
		return "", err
	}
	var rets map[string]string
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return "", fmt.Errorf("salt did not print JSON: %w", err)
	}
	if len(rets) != 2 || !strings.HasPrefix(rets["alpha"], "I am ") || !strings.HasPrefix(rets["beta"], "I am ") {
		return "", fmt.Errorf("expected alpha and beta to answer, got %s", out)
	}
	return fmt.Sprintf("alpha: %s\nbeta:  %s", rets["alpha"], rets["beta"]), nil
}

func (d *demo) revive(ctx context.Context, m *tempfleet.Daemon) (string, error) {
	if err := m.Start(); err != nil {
		return "", err
	}
	if err := m.Listening(ctx); err != nil {
		return "", err
	}
	from := time.Now()
	err := d.fleet.Await(ctx, "all minions to answer "+m.Name, func() error {
		_, err := d.pingAll(ctx, m)
		return err
	})
	return fmt.Sprintf("all minions answered %s after it listened", seconds(time.Since(from))), err
}

// holder is the status that manage.masters reports for a minion.
type holder struct {
	Here            bool
	Active, Standby map[string]any
	Changed         struct {
		To, Reason string
		Seconds    float64
	}
}

// holder asks a master which master commands delta.
func (d *demo) holder(ctx context.Context, m *tempfleet.Daemon) (h holder, err error) {
	out, err := m.Command(ctx, "salt-run", "manage.masters", "--out=json")
	if err != nil {
		return h, err
	}
	var all map[string]holder
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return h, fmt.Errorf("salt-run did not print JSON: %w", err)
	}
	return all[single.ID], nil
}

func (d *demo) startSingle(ctx context.Context) (string, error) {
	f := d.fleet
	if err := f.Minions[len(f.Minions)-1].Start(); err != nil {
		return "", err
	}
	for _, m := range f.Masters {
		if err := d.accept(ctx, m, 1); err != nil {
			return "", err
		}
	}
	one, two := f.Masters[0], f.Masters[1]
	err := f.Await(ctx, "delta to use master one, and master two to stand by", func() error {
		h, err := d.holder(ctx, one)
		if err == nil && (h.Active[one.Addr] == nil || h.Standby[two.Addr] == nil) {
			err = fmt.Errorf("active: %v, standing by: %v", h.Active, h.Standby)
		}
		return err
	})
	return "master one commands delta, master two stands by", err
}

// moved waits until delta has switched to a master and replies to it.
func (d *demo) moved(ctx context.Context, to *tempfleet.Daemon) (string, error) {
	from := time.Now()
	var took time.Duration
	var h holder
	err := d.fleet.Await(ctx, "delta to move to "+to.Name, func() error {
		out, err := to.Command(ctx, "salt", "--static", "--out=json", "-t", "3", single.ID, "test.ping")
		if err != nil {
			return err
		}
		var rets map[string]any
		if err := json.Unmarshal([]byte(out), &rets); err != nil || rets[single.ID] != true {
			return fmt.Errorf("no answer: %s", strings.TrimSpace(out))
		}
		if took == 0 {
			took = time.Since(from)
		}
		if h, err = d.holder(ctx, to); err == nil && (h.Active[to.Addr] == nil || h.Changed.To != to.Addr) {
			err = fmt.Errorf("active: %v, the last change is to %s", h.Active, h.Changed.To)
		}
		return err
	})
	return fmt.Sprintf("it switched in %.3f s (%s)\nand answered %s after %s", h.Changed.Seconds, h.Changed.Reason, to.Name, seconds(took)), err
}

// showLogs prints the ends of the daemons' logs after a failed demo.
func (d *demo) showLogs(w io.Writer) {
	if d.fleet == nil {
		return
	}
	for _, p := range d.fleet.Daemons() {
		b, err := os.ReadFile(p.Log)
		if err != nil {
			continue
		}
		fmt.Fprintf(w, "\n--- log of %s\n%s", p.Name, b[max(0, len(b)-4000):])
	}
}

func (d *demo) cleanUp() error {
	if d.fleet == nil {
		return nil
	}
	return d.fleet.Remove()
}
