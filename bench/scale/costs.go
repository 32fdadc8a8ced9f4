package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"brine/bench/report"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// Costs are the costs of messages for a master, by kind, as measured on one machine. Times are CPU
// seconds, sizes bytes.
type Costs struct {
	SignIn  float64 `json:"sign_in"`
	Return  float64 `json:"return"`
	Publish float64 `json:"publish"` // to each subscriber
	Command float64 `json:"command"` // to sign and store one command, independent of its targets
	Event   float64 `json:"event"`   // of 5 KB
	Pillar  float64 `json:"pillar"`  // of 200 lines with jinja
	Files   float64 `json:"files"`   // each byte of files of 100 KB
	// Store is the part of a return that a single goroutine does for all minions: the transaction
	// of the job database.
	Store float64 `json:"store"`
	// Copy is the cost of a return received by another member: opening and decoding it from a
	// batch, and storing it.
	Copy float64 `json:"copy"`

	CLI float64 `json:"cli"` // cost of a return for the program salt

	Idle   float64 `json:"idle"`   // memory of a master without minions
	Minion float64 `json:"minion"` // memory of a connected minion

	ReturnWire float64 `json:"return_wire"` // a return with its answer on the wire
	CopyWire   float64 `json:"copy_wire"`   // a return in a batch between members
	ReturnDisk float64 `json:"return_disk"` // a return in the job database

	// Measurements of whole loads, with which Check compares the model.
	Ping    float64 `json:"check_ping"`    // CLI and master CPU for 1,000 minions
	Restart float64 `json:"check_restart"` // master CPU until 5,000 have signed in
}

// openShare is the share of opening in the work of a return according to the profile of
// docs/performance.md; the store's share is measured here.
const openShare = 0.28

// Gather reads the costs from reports of bench, each from the first report that has it, and
// measures the others.
func Gather(reps ...*report.Report) (Costs, error) {
	var c Costs
	var missing error
	of := func(figure string, x float64) float64 {
		for _, rep := range reps {
			for _, f := range rep.Figures {
				if f.Name != figure {
					continue
				}
				if v, _, _, n := f.Median("brine", x); n > 0 {
					return v * map[string]float64{"s": 1, "ms": 1e-3, "µs": 1e-6, "MB": 1e6, "KB": 1e3}[f.Unit]
				}
			}
		}
		missing = fmt.Errorf("the report has no figure %s", figure)
		return 0
	}
	c.SignIn, c.Return = of("signin-zeromq", 0), of("return-zeromq", 0)
	c.Event, c.Pillar, c.Files = of("event-zeromq", 0), of("pillar", 0), of("files-100kb-cpu", 0)/1e6
	// Two sizes of fleets separate the cost of a command from that of a subscriber.
	few, many := of("curve-publish", 100), of("curve-publish", 9900)
	c.Publish = (9900*many - 100*few) / (9900 - 100)
	c.Command = 100 * (few - c.Publish)
	c.Idle, c.Minion = of("memory-idle", 0), of("memory-minion-zeromq", 0)
	c.Ping, c.Restart = of("ping-cpu", 0), of("restart-cpu", 0)
	c.CLI = of("ping-cli", 0) / 1000
	if missing != nil {
		return c, missing
	}
	if err := c.measureStore(20_000); err != nil {
		return c, err
	}
	c.Copy = openShare*c.Return/2 + c.Store // one cipher and one frame for a whole batch
	return c, c.measureWire()
}

// ping returns the return of a minion for test.ping.
func ping(jid, id string) *value.Dict {
	return value.DictOf("cmd", "_return", "id", id, "jid", jid, "fun", "test.ping", "fun_args", &value.List{}, "return", true, "retcode", 0, "success", true)
}

// measureStore puts returns into a job database at the maximum rate.
func (c *Costs) measureStore(n int) error {
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := job.Open(dir, job.Options{KeepJobsSeconds: 86400, JobCache: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer s.Close()
	const perJob = 1000
	start := time.Now()
	before := cpu()
	done := make(chan error, n)
	for i := range n {
		jid := salt.NewJID(start.Add(time.Duration(i/perJob) * time.Second))
		if i%perJob == 0 {
			if err := s.NewJob(value.DictOf("jid", jid, "fun", "test.ping", "tgt", "*", "tgt_type", "glob", "arg", &value.List{}), nil); err != nil {
				return err
			}
		}
		s.ReturnAsync(ping(jid, fmt.Sprintf("minion-%06d.example.com", i%perJob)), func(_ bool, err error) { done <- err })
	}
	for range n {
		if err := <-done; err != nil {
			return err
		}
	}
	c.Store = (cpu() - before) / float64(n)
	fi, err := os.Stat(filepath.Join(dir, "jobs.db"))
	if err != nil {
		return err
	}
	c.ReturnDisk = float64(fi.Size()) / float64(n)
	return nil
}

// measureWire encodes and seals a return, its answer and a batch.
func (c *Costs) measureWire() error {
	const id = "minion-000000.example.com"
	key, err := crypt.NewCrypticle(crypt.NewKey())
	if err != nil {
		return err
	}
	plain, err := msgpack.Marshal(ping(salt.NewJID(time.Now()), id), msgpack.Wire)
	if err != nil {
		return err
	}
	sealed, answer := key.Encrypt(plain), key.Encrypt([]byte{0xc3})
	const frames = 2 * (40 + 40) // TCP and IP headers, framing and the outer map
	c.ReturnWire, c.CopyWire = float64(len(sealed)+len(answer)+frames), float64(len(plain))
	return nil
}

// cpu returns the CPU seconds of this process.
func cpu() float64 {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err) // this system call must exist
	}
	return float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
}

// readCosts reads the output of -measure.
func readCosts(path string) (c Costs, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(b, &c)
}
