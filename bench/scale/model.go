package main

import "math"

// Fleet is one cluster and its connected minions.
type Fleet struct {
	Masters, Minions int
	Cores            int // of each master
	// Copies is the number of other members that store each return of a highstate. All members store small returns, and a note of each
	// other one.
	Copies int
	// Standby means that each minion is also signed in at a second master.
	Standby bool
	// Leaves are clusters below this one. Each sends the returns of its own minions in batches, and
	// counts as one subscriber. Their minions are not included in Minions.
	Leaves, LeafMinions int
}

// Load is the load of a fleet in a day.
type Load struct {
	Commands    int // to all minions
	Events      int // of 5 KB, from each minion
	Highstates  int // of each minion: a pillar, FileBytes of files and a return
	FileBytes   int // that a highstate fetches
	ReturnBytes int // of a highstate's return beyond that of test.ping, on disk and wire
	Rotations   int // of the session keys, after which each minion signs in again
}

// Answer is the result of the model for a fleet under a load.
type Answer struct {
	CommandTime float64 // seconds until the last return of a command to all is stored on all masters that store it
	StoreTime   float64 // part of these that the single writer of each database needs
	CLITime     float64 // part that the program salt, one process, needs to show them
	Usage       float64 // part of a master's cores that the day's load uses
	Memory      float64 // bytes of memory of one master
	Disk        float64 // bytes that a master stores in a day
	Traffic     float64 // bytes per second of a master, the day's mean
	Lost        float64 // seconds until the minions of one dead master are usable again
	Half        float64 // the same if half of the masters die
	Restart     float64 // the same if all masters restart
}

// others is the number of other members, each of which writes an entry for each return.
func (f Fleet) others() float64 { return float64(f.Masters - 1) }

// perMaster returns the work of one command to all minions for one master: the part that its cores
// share, and the part of its database's single writer.
func (c Costs) perMaster(f Fleet) (shared, alone float64) {
	n := float64(f.Minions) / float64(f.Masters)
	leaf := float64(f.Leaves*f.LeafMinions) / float64(f.Masters)
	own := c.Command + n*(c.Publish+c.Return-c.Store) + float64(f.Leaves)*c.Publish
	copies := (n + leaf) * f.others() * (c.Copy - c.Store)
	shared = own + copies + leaf*(c.Copy-c.Store)
	alone = (n + leaf) * (1 + f.others()) * c.Store
	return shared, alone
}

// Reckon computes the answer for a fleet under a load.
func (c Costs) Reckon(f Fleet, l Load) Answer {
	var a Answer
	m, cores := float64(f.Masters), float64(f.Cores)
	n := float64(f.Minions) / m
	all := n + float64(f.Leaves*f.LeafMinions)/m
	shared, alone := c.perMaster(f)
	a.StoreTime = alone
	a.CLITime = float64(f.Minions+f.Leaves*f.LeafMinions) * c.CLI
	// The writer is one goroutine, which runs beside the rest on the other cores. It starts when
	// the first minions answer and ends after the slowest.
	a.CommandTime = c.Command + 1.5*(2*network+answerIn) + max(alone, (shared+alone)/cores)

	const day = 86400
	links := 1.0
	if f.Standby && f.Masters > 1 {
		links = 2
	}
	runs := float64(l.Highstates)
	highstate := c.Pillar + float64(l.FileBytes)*c.Files + c.Return + f.others()*c.Copy
	work := float64(l.Commands)*(shared+alone) + n*(runs*highstate+float64(l.Events)*c.Event+links*float64(l.Rotations)*c.SignIn)
	a.Usage = work / day / cores
	a.Memory = c.Idle + n*links*c.Minion
	big := runs * float64(l.ReturnBytes)
	a.Disk = all * ((1+f.others())*(float64(l.Commands)+runs)*c.ReturnDisk + float64(1+f.Copies)*big)
	a.Traffic = (n*((float64(l.Commands)+runs)*c.ReturnWire+big+runs*float64(l.FileBytes)+float64(l.Events)*5e3) +
		2*all*f.others()*((float64(l.Commands)+runs)*c.CopyWire+big)) / day // each member reads the returns of highstates once

	back := func(lost, left int) float64 {
		if left == 0 {
			return math.Inf(1)
		}
		cost := c.SignIn
		if f.Standby {
			cost = c.Event // the minion is signed in: one request reports the active master
		}
		return float64(f.Minions) * float64(lost) / m / float64(left) * cost / cores
	}
	a.Lost = back(1, f.Masters-1)
	a.Half = back(f.Masters/2, f.Masters-f.Masters/2)
	a.Restart = n * links * c.SignIn / cores
	return a
}

// Limits are the limits that an acceptable fleet must not exceed.
var limits = []struct {
	what string
	over func(Answer) bool
}{
	{"the writer: a command to all takes 5 s, `salt`'s timeout", func(a Answer) bool { return a.CommandTime > 5 }},
	{"`salt '*'`: the program takes 5 s to show the returns", func(a Answer) bool { return a.CLITime > 5 }},
	{"sign-ins: all are back 60 s after a restart of all masters", func(a Answer) bool { return a.Restart > 60 }},
	{"memory: 64 GB", func(a Answer) bool { return a.Memory > 64e9 }},
	{"disk: 100 GB a day", func(a Answer) bool { return a.Disk > 100e9 }},
	{"cores: half of them busy", func(a Answer) bool { return a.Usage > 0.5 }},
	{"network: 1 Gbit/s", func(a Answer) bool { return a.Traffic > 125e6 }},
}

// Breaks returns the maximum number of minions for each limit, in the order of limits.
func (c Costs) Breaks(f Fleet, l Load) []int {
	out := make([]int, len(limits))
	for i, limit := range limits {
		low, high := 0, 1<<30
		for high-low > 1 {
			f.Minions = low + (high-low)/2
			if limit.over(c.Reckon(f, l)) {
				high = f.Minions
			} else {
				low = f.Minions
			}
		}
		out[i] = low
	}
	return out
}
