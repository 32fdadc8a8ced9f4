package ha

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"brine/internal/call/client"
	"brine/internal/cli/tempfleet"
	"brine/internal/py/value"
)

func orWords(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// drillMasters is the number of masters of the temporary cluster.
const drillMasters = 3

// prepareCluster creates a cluster without a shared directory on this machine.
func (t *trial) prepareCluster(o *options) (clean func(), err error) {
	more := ""
	if o.Mode != "hot" {
		more = "master_type: " + o.Mode + "\n"
	}
	var minions []tempfleet.Minion
	for _, id := range []string{"alpha", "beta", "gamma"} {
		minions = append(minions, tempfleet.Minion{ID: id, Role: "drill", More: more})
	}
	f, err := tempfleet.NewCluster(drillMasters, drillMasters, minions)
	if err != nil {
		return func() {
			if f != nil {
				_ = f.Remove()
			}
		}, err
	}
	clean = func() { _ = f.Remove() }
	t.ran = filepath.Join(f.Dir, "ran")
	var victim, other *tempfleet.Daemon
	t.ready = func(ctx context.Context) (err error) {
		victim, other, err = t.startCluster(ctx, f)
		return err
	}
	t.harm = func(ctx context.Context) error {
		switch o.Fault {
		case "freeze":
			return victim.Signal(syscall.SIGSTOP)
		case "drain":
			_, err := other.Command(ctx, "cluster", "drain", victim.Host)
			return err
		}
		victim.Kill()
		return nil
	}
	t.mend = func(ctx context.Context) error {
		switch o.Fault {
		case "freeze":
			return victim.Signal(syscall.SIGCONT)
		case "drain":
			_, err := other.Command(ctx, "cluster", "undrain", victim.Host)
			return err
		}
		return errors.Join(victim.Start(), victim.Listening(ctx))
	}
	if o.Fault == "drain" {
		t.gone = func() bool {
			held, err := t.holds(context.Background())
			return err == nil && held[victim.Host] == 0
		}
	}
	return clean, nil
}

// startCluster starts all daemons and chooses the master with the most minions.
func (t *trial) startCluster(ctx context.Context, f *tempfleet.Fleet) (victim, other *tempfleet.Daemon, err error) {
	first := f.Masters[0]
	secret, err := f.ClusterSecret()
	if err != nil {
		return nil, nil, err
	}
	var join []string
	for i, m := range f.Masters {
		if err := os.MkdirAll(filepath.Join(m.Dir, "master.d"), 0o700); err != nil {
			return nil, nil, err
		}
		if err := os.WriteFile(filepath.Join(m.Dir, "master.d", "drill.conf"), []byte("auto_accept: True\n"), 0o600); err != nil {
			return nil, nil, err
		}
		line := []string{"cluster", "init", "--id", m.Host}
		if i > 0 {
			if line = slices.Clone(join); len(line) < 2 {
				return nil, nil, errors.New("the output of brine cluster init contains no join command")
			}
			for j, w := range line {
				line[j] = strings.Replace(w, "ITS-ADDRESS", m.Host, 1)
			}
		}
		out, err := m.Command(ctx, line[0], append(line[1:], "--secret-file", secret)...)
		if err == nil {
			err = m.Start()
		}
		if err == nil {
			err = m.Listening(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
		for l := range strings.Lines(out) {
			if i == 0 && strings.Contains(l, "brine cluster join") {
				join = strings.Fields(l)[1:]
			}
		}
	}
	if err := f.StartMinions(); err != nil {
		return nil, nil, err
	}
	if t.other, err = newSide(filepath.Join(first.Dir, "master")); err != nil {
		return nil, nil, err
	}
	// Each master must command all minions before the fault.
	for _, m := range f.Masters {
		s, err := newSide(filepath.Join(m.Dir, "master"))
		if err != nil {
			return nil, nil, err
		}
		err = f.Await(ctx, "the minions to answer to "+m.Name, func() error { return answered(ctx, s, len(f.Minions)) })
		s.local.Close()
		if err != nil {
			return nil, nil, err
		}
	}
	var held map[string]int64
	if err := f.Await(ctx, "the masters to know which minions each has", func() (err error) {
		held, err = t.holds(ctx)
		if err == nil && len(held) != drillMasters {
			err = fmt.Errorf("%d masters are known", len(held))
		}
		return err
	}); err != nil {
		return nil, nil, err
	}
	victim = slices.MaxFunc(f.Masters, func(a, b *tempfleet.Daemon) int { return int(held[a.Host] - held[b.Host]) })
	other = f.Masters[0]
	if other == victim {
		other = f.Masters[1]
	}
	t.other.local.Close()
	if t.other, err = newSide(filepath.Join(other.Dir, "master")); err == nil {
		t.victim, err = newSide(filepath.Join(victim.Dir, "master"))
	}
	return victim, other, err
}

// holds returns the number of minions of each master, by master id.
func (t *trial) holds(ctx context.Context) (map[string]int64, error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	d, err := t.other.Run(limited, client.Runner{Fun: "cluster.status"}, nil, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, it := range d.List("return") {
		row, _ := it.(*value.Dict)
		if row.Has("minions") && row.At("minions") != nil {
			out[row.Str("id")] = row.Int("minions")
		}
	}
	return out, nil
}

// twice returns the commands that ran more often than they have minions. The caller must hold the lock.
func (t *trial) twice() (out []string) {
	if t.ran == "" {
		return nil
	}
	b, err := os.ReadFile(t.ran)
	if err != nil {
		return nil
	}
	lines := map[string]int{}
	for _, jid := range strings.Fields(string(b)) {
		lines[jid]++
	}
	for jid, n := range lines {
		if s := t.sent[jid]; s != nil && n > len(s.minions) {
			out = append(out, fmt.Sprint(jid, " ", n))
		}
	}
	slices.Sort(out)
	return out
}
