package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"brine/internal/cli/tempfleet"
)

// clusterMinions are the ids of the cluster's minions.
var clusterMinions = []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta"}

// runCluster shows a cluster of masters without a shared directory. The fourth master joins later.
func (d *demo) runCluster(ctx context.Context) (err error) {
	var ms []tempfleet.Minion
	for _, id := range clusterMinions {
		ms = append(ms, tempfleet.Minion{ID: id, Role: "web"})
	}
	if d.fleet, err = tempfleet.NewCluster(4, 3, ms); err != nil {
		return err
	}
	f := d.fleet
	one, two, three, four := f.Masters[0], f.Masters[1], f.Masters[2], f.Masters[3]
	fmt.Fprintf(d.out, "Masters without a shared directory, and six minions, all below %s\n\n", f.Dir)
	var join []string
	for _, s := range []struct {
		title string
		do    func() (string, error)
	}{
		{"brine cluster init on the first; start its master", func() (string, error) {
			secret, err := f.ClusterSecret()
			if err != nil {
				return "", err
			}
			out, err := one.Command(ctx, "cluster", "init", "--id", one.Host, "--secret-file", secret)
			if err != nil {
				return "", err
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, "brine cluster join") {
					join = append(strings.Fields(line)[1:], "--secret-file", secret)
				}
			}
			return "", d.startMaster(ctx, one)
		}},
		{"brine cluster join on the second and the third, as it says; start their masters", func() (string, error) {
			for _, m := range []*tempfleet.Daemon{two, three} {
				if err := d.join(ctx, m, join); err != nil {
					return "", err
				}
			}
			return d.equal(ctx, one, 3)
		}},
		{"Start six minions, which know all three; accept their keys on the third", func() (string, error) {
			if err := f.StartMinions(); err != nil {
				return "", err
			}
			if err := d.accept(ctx, three, len(clusterMinions)); err != nil {
				return "", err
			}
			from := time.Now()
			for _, m := range f.Masters[:3] {
				if err := f.Await(ctx, "the keys to be accepted on "+m.Name, func() error { return d.accepted(ctx, m) }); err != nil {
					return "", err
				}
			}
			return "accepted on all, as salt-key there shows, after " + seconds(time.Since(from)), nil
		}},
		{"salt '*' test.ping on each", func() (string, error) {
			for _, m := range f.Masters[:3] {
				if err := f.Await(ctx, "the minions to answer to "+m.Name, func() error { return d.ping(ctx, m) }); err != nil {
					return "", err
				}
			}
			return "all answer to each", nil
		}},
		{"Kill the first (SIGKILL), and at once salt '*' test.ping on the second", func() (string, error) {
			one.Kill()
			return "all answer", d.ping(ctx, two)
		}},
		{"Ten jobs on the second and the third; decide on a key: reject zeta on the second", func() (string, error) {
			for i := range 10 {
				if err := d.ping(ctx, f.Masters[1+i%2]); err != nil {
					return "", err
				}
			}
			_, err := two.Command(ctx, "salt-key", "-y", "--include-accepted", "-r", "zeta")
			return "", err
		}},
		{"Start the first again; time until it has all that it missed", func() (string, error) {
			if err := d.startMaster(ctx, one); err != nil {
				return "", err
			}
			return d.equal(ctx, one, 3)
		}},
		{"brine cluster join on a fourth; time until it has everything", func() (string, error) {
			if err := d.join(ctx, four, join); err != nil {
				return "", err
			}
			return d.equal(ctx, four, 4)
		}},
		{"brine cluster leave on the second: it hands over and ends", func() (string, error) {
			if _, err := two.Command(ctx, "cluster", "leave"); err != nil {
				return "", err
			}
			if err := f.Await(ctx, "the second to end", func() error {
				if !two.Ended() {
					return fmt.Errorf("it runs")
				}
				return nil
			}); err != nil {
				return "", err
			}
			return d.equal(ctx, four, 3)
		}},
		{"brine cluster members on the fourth", func() (string, error) { return four.Command(ctx, "cluster", "members") }},
	} {
		if err := d.step(s.title, s.do); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) startMaster(ctx context.Context, m *tempfleet.Daemon) error {
	if err := m.Start(); err != nil {
		return err
	}
	return m.Listening(ctx)
}

// join runs the command that the first member printed, with the address of this master, and starts
// the master.
func (d *demo) join(ctx context.Context, m *tempfleet.Daemon, line []string) error {
	var args []string
	for _, w := range line {
		args = append(args, strings.Replace(w, "ITS-ADDRESS", m.Host, 1))
	}
	if len(args) < 2 {
		return fmt.Errorf("brine cluster init does not say how to join")
	}
	if _, err := m.Command(ctx, args[0], args[1:]...); err != nil {
		return err
	}
	return d.startMaster(ctx, m)
}

// equal waits until n masters have the same data, and returns the result.
func (d *demo) equal(ctx context.Context, at *tempfleet.Daemon, n int) (text string, err error) {
	from := time.Now()
	err = d.fleet.Await(ctx, fmt.Sprintf("%d masters to have the same", n), func() error {
		out, err := at.Command(ctx, "cluster", "check", "--out=json")
		if err != nil {
			return err
		}
		var r struct {
			Masters []string
			Counts  map[string]int
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			return err
		}
		if len(r.Masters) != n {
			return fmt.Errorf("masters: %v", r.Masters)
		}
		text = fmt.Sprintf("%d masters have the same %d keys, %d jobs and %d returns, after %s", n, r.Counts["key"], r.Counts["job"], r.Counts["return"],
			seconds(time.Since(from)))
		return nil
	})
	return text, err
}

func (d *demo) accepted(ctx context.Context, m *tempfleet.Daemon) error {
	out, err := m.Command(ctx, "salt-key", "-l", "acc", "--out=json")
	if err != nil {
		return err
	}
	var keys struct {
		Accepted []string `json:"minions"`
	}
	if err := json.Unmarshal([]byte(out), &keys); err != nil || len(keys.Accepted) != len(clusterMinions) {
		return fmt.Errorf("accepted: %v", keys.Accepted)
	}
	return nil
}

// ping requires a reply from every minion.
func (d *demo) ping(ctx context.Context, m *tempfleet.Daemon) error {
	out, err := m.Command(ctx, "salt", "--static", "--out=json", "-t", "3", "*", "test.ping")
	if err != nil {
		return err
	}
	var rets map[string]any
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return fmt.Errorf("salt did not print JSON: %w", err)
	}
	for _, id := range clusterMinions {
		if rets[id] != true {
			return fmt.Errorf("%s: no answer from %s: %s", m.Name, id, strings.TrimSpace(out))
		}
	}
	return nil
}
