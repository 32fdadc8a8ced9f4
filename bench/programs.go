package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"brine/bench/simulate"
	"brine/bench/system"
	"brine/internal/net/event"
)

// cpuOfRuns returns the mean CPU time in seconds of n runs of a command, and the output of the last
// one.
func cpuOfRuns(n int, make func() *exec.Cmd) (cpu float64, out string, err error) {
	for range n {
		c := make()
		var errs strings.Builder
		c.Stderr = &errs
		printed, err := c.Output()
		if err != nil {
			return 0, "", fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, errs.String())
		}
		out = string(printed)
		cpu += (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
	}
	return cpu / float64(n), out, nil
}

// runPrograms runs the programs that users type.
func runPrograms(ctx context.Context, b *bench, k kind) error {
	keys := b.size(5000)
	m, err := b.newMaster(k, "zeromq", keys, "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(m.dir)
	config := fmt.Sprintf("root_dir: %s\nid: bench\nuser: root\nfile_client: local\n", m.dir)
	if err := os.WriteFile(filepath.Join(m.dir, "minion"), []byte(config), 0o600); err != nil {
		return err
	}
	for _, p := range []struct {
		figure, program, prints string
		args                    []string
	}{
		{"cpu-salt-call", "salt-call", "True", []string{"-c", m.dir, "--local", "test.ping"}},
		{"cpu-salt-version", "salt", "salt", []string{"--version"}},
		{"cpu-salt-key", "salt-key", fmt.Sprintf("minion-%05d", keys-1), []string{"-c", m.dir, "-L"}},
	} {
		runs := 20
		if k == stock {
			runs = 2
		}
		// The first run creates directories and fills caches.
		if _, _, err := cpuOfRuns(1, func() *exec.Cmd { return b.command(ctx, k, p.program, p.args...) }); err != nil {
			return err
		}
		cpu, out, err := cpuOfRuns(runs, func() *exec.Cmd { return b.command(ctx, k, p.program, p.args...) })
		if err != nil {
			return err
		}
		if !strings.Contains(out, p.prints) {
			return fmt.Errorf("%s %v printed %.200q", p.program, p.args, out)
		}
		b.add(p.figure, k, 0, cpu)
	}
	return nil
}

// runMinion starts a real minion with a real master.
func runMinion(ctx context.Context, b *bench, k kind) error {
	m, err := b.newMaster(k, "zeromq", 1, "open_mode: True\n")
	if err != nil {
		return err
	}
	defer m.remove()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	d := &daemon{programs: b.programs, kind: k}
	if d.dir, err = os.MkdirTemp(b.tmp, "minion-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	_, port, _ := strings.Cut(m.request, ":")
	_, publish, _ := strings.Cut(m.publish, ":")
	config := fmt.Sprintf("root_dir: %s\nid: real\nuser: root\nmaster: 127.0.0.1\nmaster_port: %s\npublish_port: %s\n", d.dir, port, publish)
	if err := os.WriteFile(filepath.Join(d.dir, "minion"), []byte(config), 0o600); err != nil {
		return err
	}
	// The first start creates the minion's key pair, which later starts use.
	if _, err := d.ready(ctx, m); err != nil {
		return err
	}
	d.stop()
	took, err := d.ready(ctx, m)
	if err != nil {
		return err
	}
	defer d.stop()
	time.Sleep(5 * time.Second)
	mem, err := system.MemoryOf(d.pid())
	b.add("start-minion", k, 0, took.Seconds())
	b.add("memory-idle-minion", k, 0, float64(mem.PSS)/1e6)
	return err
}

// ready starts a minion and returns how long it took until an event on its master's bus reported
// it.
func (d *daemon) ready(ctx context.Context, m *master) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := event.Dial(ctx, m.sockets())
	if err != nil {
		return 0, err
	}
	defer r.Close()
	from := time.Now()
	if err := d.start(ctx, "salt-minion"); err != nil {
		return 0, err
	}
	for _, err := range r.Events("salt/minion/real/start") {
		if err != nil {
			d.stop()
			return 0, fmt.Errorf("the minion does not get ready: %w: %s", err, d.complaints())
		}
		break
	}
	return time.Since(from), nil
}

// runPing pings 1,000 simulated minions with the salt program.
func runPing(ctx context.Context, b *bench, k kind) error {
	n := b.size(1000)
	m, err := b.newMaster(k, "zeromq", n, "")
	if err != nil {
		return err
	}
	defer m.remove()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	f := m.fleet(b, n, 0)
	defer f.Close()
	if err := f.SignIn(ctx, 64); err != nil {
		return err
	}
	failed := func(err error) { fmt.Fprintln(os.Stderr, err) }
	if err := f.Subscribe(ctx, 64, simulate.Answer(ctx, failed)); err != nil {
		return err
	}
	ping := func() *exec.Cmd { return b.command(ctx, k, "salt", "-c", m.dir, "-t", "15", "*", "test.ping") }
	if _, err := m.settled(); err != nil { // the master needs time for subscriptions
		return err
	}
	// The first run has cold caches.
	if _, _, err := cpuOfRuns(1, ping); err != nil {
		return err
	}
	runs := 3
	if k == stock {
		runs = 1
	}
	var cli float64
	var out string
	from := time.Now()
	var wall time.Duration
	cost, err := m.cost(func() error {
		from = time.Now()
		cli, out, err = cpuOfRuns(runs, ping)
		wall = time.Since(from) / time.Duration(runs)
		return err
	})
	if err != nil {
		return err
	}
	b.add("ping-cpu", k, 0, cli+cost.Seconds()/float64(runs))
	b.add("ping-cli", k, 0, cli)
	b.add("ping-wall", k, 0, wall.Seconds())
	b.add("ping-lost", k, 0, float64(n-strings.Count(out, "True")))
	return nil
}
