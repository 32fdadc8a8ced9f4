package main

import (
	"fmt"
	"math"
	"strings"
)

// The cases of docs/scale.md.
var (
	// A command to all every ten minutes, a highstate per hour, an event per minute, new session
	// keys once.
	day = Load{Commands: 144, Highstates: 24, FileBytes: 100_000, ReturnBytes: 20_000, Events: 1440, Rotations: 1}

	sizes = []struct {
		name string
		f    Fleet
	}{
		{"10,000 minions, 2 masters", Fleet{Masters: 2, Minions: 10_000, Cores: 4, Copies: 1, Standby: true}},
		{"10,000 minions, 3 masters", Fleet{Masters: 3, Minions: 10_000, Cores: 4, Copies: 2, Standby: true}},
		{"100,000 minions, 10 masters, returns on all", Fleet{Masters: 10, Minions: 100_000, Cores: 16, Copies: 9, Standby: true}},
		{"the same, large returns on 3", Fleet{Masters: 10, Minions: 100_000, Cores: 16, Copies: 2, Standby: true}},
		{"the same, minions without a standby", Fleet{Masters: 10, Minions: 100_000, Cores: 16, Copies: 2}},
		{"1,000,000 minions, one cluster of 100 masters, large returns on 3", Fleet{Masters: 100, Minions: 1_000_000, Cores: 16, Copies: 2, Standby: true}},
		{"1,000,000 on 10 leaf clusters: the cluster above them, 3 masters", Fleet{Masters: 3, Cores: 16, Copies: 2, Leaves: 10, LeafMinions: 100_000}},
	}
)

// Tables returns the tables of docs/scale.md.
func Tables(c Costs) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| cost of a message at a master | |\n|---|---|\n")
	for _, row := range []struct {
		what string
		v    string
	}{
		{"sign-in", micro(c.SignIn)}, {"return", micro(c.Return)}, {"of which the writer of the job database", micro(c.Store)},
		{"pillar of 200 lines with jinja", micro(c.Pillar)}, {"files, a MB", micro(1e6 * c.Files)},
		{"copy of a return from another member", micro(c.Copy)}, {"publication, each subscriber", micro(c.Publish)},
		{"command, independent of its targets", micro(c.Command)}, {"event of 5 KB", micro(c.Event)}, {"the program `salt`, each return", micro(c.CLI)},
		{"memory of a master", size(c.Idle)}, {"memory of a connected minion", size(c.Minion)},
		{"return on the wire, with its answer", size(c.ReturnWire)}, {"copy of a return on the wire", size(c.CopyWire)},
		{"return on disk", size(c.ReturnDisk)},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row.what, row.v)
	}
	fmt.Fprintf(&b, "\n| fleet | command to all: last return stored | of it one writer | `salt` shows it in | cores busy | memory | disk of a day | "+
		"traffic |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range sizes {
		a := c.Reckon(s.f, day)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.1f %% of %d | %s | %s | %s/s |\n", s.name, seconds(a.CommandTime), seconds(a.StoreTime), seconds(a.CLITime),
			100*a.Usage, s.f.Cores, size(a.Memory), size(a.Disk), size(a.Traffic))
	}
	fmt.Fprintf(&b, "\n| usable again after | one master dies | half of them die | all restart |\n|---|---|---|---|\n")
	for _, s := range sizes {
		if s.f.Minions == 0 {
			continue
		}
		a := c.Reckon(s.f, day)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.name, seconds(a.Lost), seconds(a.Half), seconds(a.Restart))
	}
	fmt.Fprintf(&b, "\n| first limit: number of minions | 10 masters, returns on all | 10 masters, large returns on 3 | 3 masters, returns on all |\n"+
		"|---|---|---|---|\n")
	var columns [][]int
	for _, f := range []Fleet{{Masters: 10, Cores: 16, Copies: 9, Standby: true}, {Masters: 10, Cores: 16, Copies: 2, Standby: true},
		{Masters: 3, Cores: 16, Copies: 2, Standby: true}} {
		columns = append(columns, c.Breaks(f, day))
	}
	for i, l := range limits {
		fmt.Fprintf(&b, "| %s |", l.what)
		for _, column := range columns {
			fmt.Fprintf(&b, " %s |", count(column[i]))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\n| simulated, message by message | model | simulation |\n|---|---|---|\n")
	for _, s := range sizes[:4] {
		took, _ := c.SimulateCommand(s.f)
		fmt.Fprintf(&b, "| %s: a command to all | %s | %s |\n", s.name, seconds(c.Reckon(s.f, day).CommandTime), seconds(took))
	}
	for _, s := range sizes[4:5] {
		left := s.f.Masters / 2
		took, late := c.SimulateSignIns(s.f, s.f.Minions/2, left)
		fmt.Fprintf(&b, "| %s: half of the masters die | %s | %s, %d answered too late |\n", s.name, seconds(c.Reckon(s.f, day).Half), seconds(took), late)
	}
	return b.String()
}

func micro(s float64) string { return fmt.Sprintf("%.*f µs", max(0, 2-int(math.Log10(s*1e6))), s*1e6) }

func seconds(s float64) string {
	if s < 0.1 {
		return fmt.Sprintf("%.2g ms", s*1e3)
	}
	return fmt.Sprintf("%.2g s", s)
}

func size(b float64) string {
	switch {
	case b >= 1e9:
		return fmt.Sprintf("%.0f GB", b/1e9)
	case b >= 1e6:
		return fmt.Sprintf("%.3g MB", b/1e6)
	case b >= 1e3:
		return fmt.Sprintf("%.3g KB", b/1e3)
	}
	return fmt.Sprintf("%.0f B", b)
}

// count formats a number with two significant digits.
func count(n int) string {
	unit := 1
	for n >= 100*unit {
		unit *= 10
	}
	s := fmt.Sprint(n / unit * unit)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
