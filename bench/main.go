// Command bench measures Brine's programs under the load of thousands of simulated minions (package
// simulate), and the limits of the machine. If stock Salt is available it gets the same load in
// turn:
//
//	BRINE_STOCK_SALT    its source tree; without it only Brine is measured
//	BRINE_STOCK_PYTHON  its interpreter, default /usr/bin/python3
//
// It measures CPU time and memory (PSS) over all processes of a daemon, since wall-clock time means
// little on a machine with other load. Everything stays on loopback, in a temporary directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"brine/bench/report"
	"brine/bench/simulate"
	"brine/bench/system"
)

// bench is one run.
type bench struct {
	programs
	scale  float64 // factor for the number of minions, requests and so on
	repeat int
	kinds  []kind
	only   *regexp.Regexp
	soak   time.Duration
	// profile is a directory for profiles of Brine's master under each load, and running the name
	// of the current load.
	profile, running string
	log              io.Writer    // of the soak test
	late, returns    atomic.Int64 // its sign-ins that were not answered in time, and returns

	tmp    string
	out    string
	keys   []*simulate.Key
	own    *simulate.Key // of all masters: creating a key takes a varying time
	report *report.Report
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	b := &bench{report: &report.Report{Figures: figures()}}
	if err := b.parse(args); err != nil {
		return err
	}
	// The minions are all in this process and share the cores with the master. Their garbage
	// collection is not part of the measurement, and there is enough memory for it.
	debug.SetGCPercent(400)
	files, err := system.Files()
	if err != nil {
		return fmt.Errorf("cannot raise the limit of open files: %w", err)
	}
	if files < uint64(2*b.size(maxMinions)) {
		fmt.Fprintf(os.Stderr, "bench: only %d files may be open at a time; the largest fleets will fail\n", files)
	}
	if b.tmp, err = os.MkdirTemp("", "bb"); err != nil { // short, for sockets in it
		return err
	}
	defer os.RemoveAll(b.tmp)
	if err := b.makeKeys(); err != nil {
		return err
	}
	b.report.Machine = []report.Fact{{Name: "cores", Value: float64(runtime.NumCPU())},
		{Name: "open files at most", Value: float64(files)}, {Name: "scale of this run", Value: b.scale}}
	if b.report.Limits, err = measureLimits(b.tmp); err != nil {
		return err
	}
	if b.soak > 0 {
		return b.soakTest(ctx)
	}
	err = b.measure(ctx)
	if sign, e := signTime(); e == nil {
		// On a machine with other load, this shows how reliable the figures are.
		b.report.Limits = append(b.report.Limits, report.Fact{Name: "RSA 2048: sign, at the end of the run", Value: sign, Unit: "µs CPU"})
	}
	return errors.Join(err, b.write())
}

func (b *bench) makeKeys() error {
	keys, err := simulate.NewKeys(9)
	if err == nil {
		b.own, b.keys = keys[0], keys[1:]
	}
	return err
}

func (b *bench) parse(args []string) error {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.StringVar(&b.brine, "programs", "bin", "directory of Brine's programs")
	set.StringVar(&b.out, "out", "", "directory for report.txt, report.json and a plot per figure; none: print only")
	set.IntVar(&b.repeat, "repeat", 5, "times that each measurement is made; the median counts")
	set.Float64Var(&b.scale, "scale", 1, "part of the full numbers of minions and requests")
	set.DurationVar(&b.soak, "soak", 0, "instead of measuring, load a master for so long and watch its memory")
	set.StringVar(&b.profile, "profile", "", "directory for CPU profiles of Brine's master under each load")
	only := set.String("only", "", "measure only the scenarios that this regular expression matches: "+names())
	ours := set.Bool("brine-only", false, "leave stock Salt out even if it is at hand")
	if err := set.Parse(args); err != nil {
		return err
	}
	var err error
	if b.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	if b.brine, err = filepath.Abs(b.brine); err != nil {
		return err
	}
	b.tree, b.python = os.Getenv("BRINE_STOCK_SALT"), os.Getenv("BRINE_STOCK_PYTHON")
	if b.python == "" {
		b.python = "/usr/bin/python3"
	}
	b.kinds = []kind{brine}
	if b.tree != "" && !*ours {
		b.kinds = append(b.kinds, stock)
	}
	return nil
}

// size scales a number of minions or requests.
func (b *bench) size(n int) int { return max(int(float64(n)*b.scale), 10) }

// measure runs all scenarios, the kinds in turn. One that fails does not stop
// the others.
func (b *bench) measure(ctx context.Context) error {
	var errs []error
	for _, s := range scenarios {
		if !b.only.MatchString(s.name) {
			continue
		}
		for i := range s.times(b.repeat) {
			for _, k := range b.kinds {
				if k == stock && (s.brineOnly || i >= s.times(s.stockRepeat)) {
					continue
				}
				from := time.Now()
				b.running = s.name
				err := s.run(ctx, b, k)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				fmt.Fprintf(os.Stderr, "%-18s %-6s run %d: %.1f s\n", s.name, k, i+1, time.Since(from).Seconds())
				if err != nil {
					err = fmt.Errorf("%s of %s, run %d: %w", s.name, k, i+1, err)
					fmt.Fprintln(os.Stderr, err)
					errs = append(errs, err)
					b.report.Failures = append(b.report.Failures, err.Error())
				}
			}
		}
	}
	return errors.Join(errs...)
}

func names() string {
	var ns []string
	for _, s := range scenarios {
		ns = append(ns, s.name)
	}
	return strings.Join(ns, " ")
}

// add adds a measurement to the report.
func (b *bench) add(name string, k kind, x, v float64) { b.report.Add(name, string(k), x, v) }

// write prints the report, and stores it if requested.
func (b *bench) write() error {
	if err := b.keepEarlier(); err != nil {
		return err
	}
	b.report.Figures = slices.DeleteFunc(b.report.Figures, func(f *report.Figure) bool { return len(f.Samples) == 0 })
	err := b.report.Text(os.Stdout)
	if b.out == "" {
		return err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	for _, f := range b.report.Figures {
		if plot := f.SVG(); plot != "" {
			err = errors.Join(err, os.WriteFile(filepath.Join(b.out, f.Name+".svg"), []byte(plot), 0o644))
		}
	}
	var text, data strings.Builder
	err = errors.Join(err, b.report.Text(&text), b.report.JSON(&data))
	return errors.Join(err, os.WriteFile(filepath.Join(b.out, "report.txt"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(b.out, "report.json"), []byte(data.String()), 0o644))
}

// keepEarlier adds the figures that a report of some scenarios lacks from the last report in the
// same file.
func (b *bench) keepEarlier() error {
	if b.out == "" || b.only.String() == "" {
		return nil
	}
	f, err := os.Open(filepath.Join(b.out, "report.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	old, err := report.Read(f)
	if err != nil {
		return fmt.Errorf("the report in %s cannot be completed: %w", b.out, err)
	}
	b.report.Keep(old)
	return nil
}
