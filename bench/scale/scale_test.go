package main

import (
	"math"
	"os"
	"strings"
	"testing"
)

const costsFile = "../../docs/performance/scale.json"

func costs(t *testing.T) Costs {
	t.Helper()
	c, err := readCosts(costsFile)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// near reports whether two figures differ by at most a given fraction of the second.
func near(a, b, part float64) bool { return math.Abs(a-b) <= part*b }

// TestModelAndMeasurement compares the model with bench's measurements of whole loads, which the
// model does not use as input.
func TestModelAndMeasurement(t *testing.T) {
	c := costs(t)
	shared, alone := c.perMaster(Fleet{Masters: 1, Minions: 1000, Cores: 2})
	if got := shared + alone + 1000*c.CLI; !near(got, c.Ping, 0.25) {
		t.Errorf("test.ping of 1,000 minions: %.3f s by the model, %.3f s measured", got, c.Ping)
	}
	// Two cores, shared with the minions.
	if got := 2 * c.Reckon(Fleet{Masters: 1, Minions: 5000, Cores: 2}, day).Restart; !near(got, c.Restart, 0.25) {
		t.Errorf("5,000 sign-ins: %.1f s by the model, %.1f s measured", got, c.Restart)
	}
}

// TestModelAndSimulation sends every message of a load through simulated masters.
func TestModelAndSimulation(t *testing.T) {
	c := costs(t)
	for _, s := range sizes[:4] {
		took, stored := c.SimulateCommand(s.f)
		if want := s.f.Minions * s.f.Masters; stored != want {
			t.Errorf("%s: %d returns stored, want %d", s.name, stored, want)
		}
		if got := c.Reckon(s.f, day).CommandTime; !near(got, took, 0.34) {
			t.Errorf("%s: a command takes %.2f s by the model, %.2f s simulated", s.name, got, took)
		}
	}
	f := sizes[4].f
	took, late := c.SimulateSignIns(f, f.Minions/2, f.Masters/2)
	if got := c.Reckon(f, day).Half; !near(got, took, 0.2) || late > 0 {
		t.Errorf("half of the masters die: %.2f s by the model, %.2f s simulated, %d late", got, took, late)
	}
	// If sign-ins take longer than a minion's timeout, the masters tell minions when to retry.
	crowd := Fleet{Masters: 2, Minions: 20_000, Cores: 2}
	took, late = c.SimulateSignIns(crowd, crowd.Minions, 1)
	if want := float64(crowd.Minions) * c.SignIn / 2; took < 4*waitLimit || !near(took, want, 0.2) || late > 0 {
		t.Errorf("20,000 sign-ins at one master: %.1f s, want %.1f s; %d late", took, want, late)
	}
}

// TestBreaks: above the returned number of minions the limit is exceeded.
func TestBreaks(t *testing.T) {
	c := costs(t)
	f := Fleet{Masters: 3, Cores: 8, Copies: 2, Standby: true}
	for i, n := range c.Breaks(f, day) {
		f.Minions = n
		under := limits[i].over(c.Reckon(f, day))
		f.Minions = n + 1
		if over := limits[i].over(c.Reckon(f, day)); under || !over {
			t.Errorf("%s: %d minions: %v, one more: %v", limits[i].what, n, under, over)
		}
	}
}

// TestDocs: the page contains the program's output.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	for table := range strings.SplitSeq(strings.TrimSpace(Tables(costs(t))), "\n\n") {
		if !strings.Contains(string(page), table) {
			t.Errorf("docs/scale.md has not the table that `go run ./bench/scale` prints:\n%s", table)
		}
	}
}
