package interop

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// syndicMix is a master of masters, a syndic and a lower master.
type syndicMix struct {
	above, syndic, below kind
	// loses are the parts whose restart loses returns above, because Salt's syndic keeps them in
	// memory, or has not connected to a stock master below. They are at the master below.
	loses string
}

// TestStockSyndicRestarts kills and stops each part around a syndic while jobs run, which end before
// the part runs again: all return above, unless Salt itself loses them, and each ran once on each minion.
func TestStockSyndicRestarts(t *testing.T) {
	stockTree(t)
	jobs := 21 // 504 in all
	if testing.Short() {
		jobs = 3
	}
	for _, k := range []syndicMix{
		{stock, brine, brine, ""},
		{stock, brine, stock, ""},
		{brine, stock, brine, "above"},
		{brine, stock, stock, "above syndic below"},
	} {
		t.Run(fmt.Sprintf("%s above, %s syndic, %s below", k.above, k.syndic, k.below), func(t *testing.T) {
			s := newRestarted(t, k)
			for _, part := range []string{"above", "syndic", "below"} {
				for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
					s.restart(part, sig, jobs)
				}
			}
			s.ranOnce()
		})
	}
}

// restarted is a site whose parts are restarted.
type restarted struct {
	t     *testing.T
	k     syndicMix
	parts map[string]*node
	ids   []string
	ran   string // directory with a file of lines for each minion
	jobs  int
}

func newRestarted(t *testing.T, k syndicMix) *restarted {
	t.Helper()
	up, down := daemontest.Host(), daemontest.Host()
	s := &restarted{t: t, k: k, ids: []string{"m1", "m2"}, ran: daemontest.ShortDir(t)}
	above := newMaster(t, k.above, "above", up, "auto_accept: true\norder_masters: true\nsyndic_wait: 3\n").Start()
	below := newMaster(t, k.below, "below", down, "auto_accept: true\n")
	syndic := daemontest.NewSyndic(k.syndic, below, "", up)
	below.Write("master", below.Read("master")+"syndic_master: "+up+"\n") // its syndic has a file of its own
	below.Start()
	for _, id := range s.ids {
		newMinion(t, brine, id, []string{down}, "").Start()
	}
	eventually.Nil(t, stockLimit, "the minions answer the master below", func() error { return below.PingAll(k.below, s.ids...) })
	s.parts = map[string]*node{"above": above, "below": below, "syndic": syndic.Start()}
	s.answer("the start")
	return s
}

func (s *restarted) answer(after string) {
	s.t.Helper()
	eventually.Nil(s.t, stockLimit, "the minions answer the master above after "+after, func() error { return s.parts["above"].PingOnly(s.k.above, s.ids...) })
}

// lines returns what the minions have written to their files with this suffix, by minion.
func (s *restarted) lines(suffix string) map[string][]string {
	s.t.Helper()
	out := map[string][]string{}
	for _, id := range s.ids {
		b, err := os.ReadFile(filepath.Join(s.ran, id+suffix))
		if err != nil && !os.IsNotExist(err) {
			s.t.Fatal(err)
		}
		out[id] = strings.Fields(string(b))
	}
	return out
}

// wrote waits until each minion has written all tokens to its file with this suffix.
func (s *restarted) wrote(suffix, what string, tokens []string) {
	s.t.Helper()
	eventually.Nil(s.t, stockLimit, what, func() error {
		for id, lines := range s.lines(suffix) {
			for _, token := range tokens {
				if !slices.Contains(lines, token) {
					return fmt.Errorf("%s%s does not have %s", id, suffix, token)
				}
			}
		}
		return nil
	})
}

// restart starts jobs, restarts a part while they run, and expects their returns.
func (s *restarted) restart(part string, sig syscall.Signal, n int) {
	s.t.Helper()
	what := fmt.Sprintf("%v of %s", sig, part)
	hold := filepath.Join(s.ran, "hold")
	must(s.t, os.WriteFile(hold, nil, 0o600))
	var jids, tokens []string
	for range n {
		s.jobs++
		token := fmt.Sprint("job", s.jobs)
		out, errs, _ := s.parts["above"].Run(brine, "salt", "--async", "-L", strings.Join(s.ids, ","), "cmd.run",
			"cd "+s.ran+"; echo "+token+" >>{{ grains.id }}; while [ -e hold ]; do sleep 0.2; done; echo "+token+" | tee -a {{ grains.id }}.ended", "template=jinja")
		words := strings.Fields(out)
		if len(words) == 0 {
			s.t.Fatalf("%s: %s", token, errs)
		}
		jids, tokens = append(jids, words[len(words)-1]), append(tokens, token)
	}
	// Salt's publications reach only syndics that are connected.
	s.wrote("", "all jobs run before "+what, tokens)
	x := s.parts[part]
	x.Signal(sig)
	if sig == syscall.SIGTERM {
		x.Wait(time.Minute)
	}
	x.Kill() // children of stock daemons, too
	must(s.t, os.Remove(hold))
	s.wrote(".ended", "all jobs end after "+what, tokens)
	x.Start()
	s.answer(what)
	at := []string{"below"}
	if !strings.Contains(s.k.loses, part) {
		at = append(at, "above")
	}
	for _, name := range at {
		done := 0
		eventually.Nil(s.t, stockLimit, "the master "+name+" has all returns after "+what, func() error {
			for ; done < n; done++ {
				if rets := s.returns(name, jids[done]); rets["m1"] != tokens[done] || rets["m2"] != tokens[done] {
					return fmt.Errorf("%s (%s) has %v", tokens[done], jids[done], rets)
				}
			}
			return nil
		})
	}
	if strings.Contains(s.k.loses, part) {
		lost := 0
		for _, jid := range jids {
			lost += len(s.ids) - len(s.returns("above", jid))
		}
		s.t.Logf("%s: Salt's syndic lost %d of %d returns", what, lost, n*len(s.ids))
	}
}

// returns reads the returns of a job from a master's job cache.
func (s *restarted) returns(part, jid string) (rets map[string]any) {
	s.t.Helper()
	x := s.parts[part]
	out, errs, _ := x.Run(x.Kind, "salt-run", "--out=json", "jobs.lookup_jid", jid)
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		s.t.Logf("%s: %q %q", part, out, errs)
	}
	return rets
}

// ranOnce expects that each minion ran each job once.
func (s *restarted) ranOnce() {
	s.t.Helper()
	for id, lines := range s.lines("") {
		count := map[string]int{}
		for _, token := range lines {
			count[token]++
		}
		if len(count) != s.jobs {
			s.t.Errorf("%s ran %d of %d jobs", id, len(count), s.jobs)
		}
		for _, token := range slices.Sorted(maps.Keys(count)) {
			if count[token] > 1 {
				s.t.Errorf("%s ran %s %d times", id, token, count[token])
			}
		}
	}
}
