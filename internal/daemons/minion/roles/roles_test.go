package roles

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/test/fuzztest"
)

var update = flag.Bool("update", false, "write the traces as they are")

// TestTraces plays the traces in testdata. A line is a time, an event and, after "->", the
// resulting roles and the completed switch:
//
//	masters=3 failback=30s patience=1s drain=10s
//	1.5s lost a gone -> b:active c:standby
//
// The event "arrange" has the masters in order of preference, and then those that must be
// left. A line with only a time is a Tick. The test also sends a Tick whenever the machine
// asks for one; those that change something appear as "wake".
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.trace")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d traces: %v", len(files), err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(b))
			if *update {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(b) {
				t.Errorf("got\n%s\nwant\n%s", got, b)
			}
		})
	}
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// play returns the trace with the actual results.
func play(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	var m *Machine
	last, now := "", start
	show := func(at time.Time, what string, s *Switch) {
		r := roles(m)
		if s != nil {
			r += " " + describe(s)
		}
		fmt.Fprintf(&out, "%v%s -> %s\n", at.Sub(start), what, r)
		last = roles(m)
	}
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		line := sc.Text()
		if line == "" || line[0] == '#' {
			out.WriteString(line + "\n")
			continue
		}
		in, _, _ := strings.Cut(line, "->")
		if m == nil {
			m = New(options(t, in))
			out.WriteString(line + "\n")
			continue
		}
		words := strings.Fields(in)
		if len(words) > 1 && words[1] == "wake" {
			continue
		}
		d, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		at := start.Add(d)
		for {
			wake, ok := m.Wake(now)
			if !ok || wake.After(at) {
				break
			}
			now = wake
			if s := m.Step(Event{}, now); s != nil || roles(m) != last {
				show(now, " wake", s)
			}
		}
		now = at
		if len(words) > 1 && words[1] == "arrange" {
			m.Arrange(numbers(words[2]), numbers(strings.Join(words[3:], "")), now)
			show(now, " "+strings.Join(words[1:], " "), m.Step(Event{}, now))
			continue
		}
		e, what := event(t, words[1:])
		show(now, what, m.Step(e, now))
	}
	return out.String()
}

func numbers(names string) (out []int) {
	for _, r := range names {
		out = append(out, int(r-'a'))
	}
	return out
}

func options(t *testing.T, line string) Options {
	o := Options{Patience: time.Second, Drain: 10 * time.Second}
	for _, w := range strings.Fields(line) {
		k, v, _ := strings.Cut(w, "=")
		d, err := time.ParseDuration(v)
		switch k {
		case "masters":
			o.Masters, err = strconv.Atoi(v)
		case "standbys":
			o.Standbys, err = strconv.Atoi(v)
		case "failback":
			o.Failback = d
		case "patience":
			o.Patience = d
		case "drain":
			o.Drain = d
		case "leave":
			o.Leave = d
		default:
			t.Fatalf("unknown option %q", w)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func event(t *testing.T, words []string) (Event, string) {
	if len(words) == 0 {
		return Event{}, ""
	}
	kinds := map[string]Kind{"up": Up, "serving": Serving, "lost": Lost, "held": Held, "free": Free}
	k, ok := kinds[words[0]]
	if !ok {
		t.Fatalf("unknown event %q", words)
	}
	e := Event{Kind: k}
	if len(words) > 1 {
		e.Master = int(words[1][0] - 'a')
	}
	e.Why = strings.Join(words[min(2, len(words)):], " ")
	return e, " " + strings.Join(words, " ")
}

func roles(m *Machine) string {
	var parts []string
	for i := range m.m {
		x := m.m[i]
		if x.role == Off {
			continue
		}
		s := fmt.Sprintf("%c:%v", 'a'+i, x.role)
		if x.role == Standby && !x.up {
			s = fmt.Sprintf("%c:tried", 'a'+i)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, " ")
}

func describe(s *Switch) string {
	from := "-"
	if s.From >= 0 {
		from = string(rune('a' + s.From))
	}
	why := s.Why
	if s.Outage {
		why += "; outage"
	}
	return fmt.Sprintf("[%s to %c after %v: %s]", from, 'a'+s.To, s.Took, why)
}

// FuzzNeverStuck plays random events and checks invariants after each: never two active
// masters except during a switch; never a reachable master unused while none is active; and
// always one being tried.
func FuzzNeverStuck(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add([]byte{0x11, 0x12, 0x23, 0x31, 0x13, 0x55})
	f.Fuzz(func(t *testing.T, in []byte) {
		m := New(Options{Masters: 3, Failback: 5 * time.Second, Patience: time.Second, Drain: time.Second})
		now := start
		m.Step(Event{}, now)
		for _, b := range in {
			now = now.Add(time.Duration(b>>5) * 300 * time.Millisecond)
			if b%8 == 7 {
				all := []int{0, 1, 2, 3}[:min(4, len(m.m)+1)]
				n := int(b>>3) % len(all)
				all = append(slices.Clone(all[n:]), all[:n]...)
				m.Arrange(all[:1+int(b>>5)%len(all)], all[:int(b>>4)%2], now)
				m.Step(Event{}, now)
				check(t, m)
				continue
			}
			e := Event{Kind: Kind(b % 6), Master: int(b>>3) % len(m.m), Why: "x"}
			if e.Kind != Tick && m.Role(e.Master) == Off {
				continue // a master that is off sends no events
			}
			if e.Kind == Serving && m.Role(e.Master) != Active {
				continue
			}
			m.Step(e, now)
			check(t, m)
		}
	})
}

func check(t *testing.T, m *Machine) {
	t.Helper()
	active, used := 0, 0
	for i := range m.m {
		if m.m[i].role == Active {
			active++
		}
		if m.m[i].role != Off {
			used++
		}
	}
	switch {
	case active > 2 || active == 2 && m.leaving < 0:
		t.Fatalf("%d active: %s", active, roles(m))
	case m.active < 0 && used == 0:
		t.Fatal("none is tried")
	case m.active < 0 && strings.Contains(roles(m), "standby"):
		t.Fatalf("a good master is not used: %s", roles(m))
	}
}
