package ha

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/cli/frame"
	"brine/internal/cli/tempfleet"
	"brine/internal/daemons/config"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

type drillOptions struct {
	Fault  string `flag:"--fault" arg:"KIND" default:"kill" group:"Drill Options" doc:"The fault of the master: kill (SIGKILL), freeze (SIGSTOP), cut (its network drops everything; not with --cluster), or with --cluster drain (minions are told to leave it). Default: %default."`
	Mode   string `flag:"--minions" arg:"MODE" default:"failover" group:"Drill Options" doc:"How the minions of the temporary fleet use their masters: failover, hot, or, with --cluster, also cluster (implied by --fault drain). Default: %default."`
	Away   int    `flag:"--away" arg:"SECONDS" default:"5" group:"Drill Options" doc:"How long the master stays down. Default: %default."`
	Harm   string `flag:"--harm" arg:"COMMAND" group:"Drill Options" doc:"For your own fleet: shell command that makes one of its masters fail, such as \"ssh m1 systemctl kill -s KILL salt-master\". Run this program on another master, configured with -c."`
	Mend   string `flag:"--mend" arg:"COMMAND" group:"Drill Options" doc:"With --harm: shell command that restores that master."`
	Target string `flag:"--target" arg:"GLOB" default:"*" group:"Drill Options" doc:"With --harm: minions that receive harmless commands (test.echo) during the drill. Default: %default."`
}

// drillReport is the result of a drill. Times are in seconds after the fault; -1 means not observed.
type drillReport struct {
	Fault    string                `json:"fault"`
	Mode     string                `json:"mode"`
	Minions  map[string]*drillTime `json:"minions"`
	Commands int                   `json:"commands"` // sum over all minions
	Results  int                   `json:"results"`
	Queued   int                   `json:"queued"` // delivered after the minion was unreachable
	Lost     []string              `json:"lost"`   // JID MINION
	// Twice are commands that ran more often than they have minions: JID TIMES. Only a temporary
	// cluster counts them.
	Twice []string `json:"twice,omitempty"`
}

type drillTime struct {
	Detected float64 `json:"detected"`
	Switched float64 `json:"switched"`
	Usable   float64 `json:"usable"`
}

// trial is a running drill.
type trial struct {
	report drillReport
	target string
	away   time.Duration
	victim *side // nil in the user's own fleet
	other  *side
	harm   func(context.Context) error
	mend   func(context.Context) error
	ready  func(context.Context) error
	cut    bool
	ran    string      // file to which each command appends a line, "" if none
	gone   func() bool // reports whether minions have left the victim, for faults where that takes time

	mu     sync.Mutex
	fault  time.Time
	sent   map[string]*sent // by job id
	queued map[string]bool  // job id, minion
}

// sent is one command.
type sent struct {
	via     *side
	at      time.Time
	minions []string
}

// side is a master with its client.
type side struct {
	*client.Client
	local *client.Local
}

func newSide(configFile string) (*side, error) {
	quiet := slog.New(slog.DiscardHandler)
	tree, err := config.Load(configFile, config.MasterKind, quiet)
	if err != nil {
		return nil, err
	}
	machine := config.ThisMachine()
	machine.FullName = func(name string) string { return name }
	c, err := config.NewMaster(tree, machine, quiet)
	if err != nil {
		return nil, err
	}
	place, err := c.Place()
	if err != nil {
		return nil, err
	}
	local, err := client.NewLocal(place, "root", quiet)
	if err != nil {
		return nil, err
	}
	o := c.Client
	o.Timeout, o.GatherJobTimeout = 3*time.Second, 2*time.Second
	return &side{client.New(o, configFile, local, local, quiet), local}, nil
}

func drill(ctx context.Context, env *frame.Env, o *options, args []string) int {
	if len(args) > 0 {
		return command.Fail(env, "drill takes no arguments")
	}
	faults, modes := []string{"kill", "freeze", "cut"}, []string{"failover", "hot"}
	if o.Cluster {
		faults, modes = []string{"kill", "freeze", "drain"}, append(modes, "cluster")
		if o.Fault == "drain" {
			o.Mode = "cluster" // minions in other modes do not leave
		}
	}
	if !slices.Contains(faults, o.Fault) || !slices.Contains(modes, o.Mode) {
		return command.Fail(env, "--fault takes "+orWords(faults)+", and --minions "+orWords(modes))
	}
	if o.Cluster && o.Harm != "" {
		return command.Fail(env, "--cluster creates a temporary cluster: do not combine it with --harm")
	}
	t := &trial{report: drillReport{Fault: o.Fault, Mode: o.Mode, Minions: map[string]*drillTime{}}, target: o.Target,
		away: time.Duration(max(o.Away, 1)) * time.Second, sent: map[string]*sent{}, queued: map[string]bool{}}
	clean, err := t.prepare(ctx, env, o)
	defer clean()
	if err == nil {
		err = t.run(ctx)
	}
	if err != nil {
		env.Errorf("ha: %v", err)
		return frame.ExitFailure
	}
	if o.Out == "json" {
		printJSON(env, &t.report)
	} else {
		t.report.print(env.Stdout)
	}
	if len(t.report.Lost)+len(t.report.Twice) > 0 {
		return frame.ExitFailure
	}
	return frame.ExitOK
}

// prepare creates a fleet, or uses that of the user.
func (t *trial) prepare(ctx context.Context, env *frame.Env, o *options) (clean func(), err error) {
	if o.Cluster {
		return t.prepareCluster(o)
	}
	if o.Harm == "" {
		return t.prepareFleet(o)
	}
	if o.Mend == "" {
		return func() {}, errors.New("--harm needs --mend, so that the master is restored")
	}
	t.report.Fault, t.report.Mode = o.Harm, "as configured"
	t.harm = func(ctx context.Context) error { return shell(ctx, o.Harm) }
	t.mend = func(ctx context.Context) error { return shell(ctx, o.Mend) }
	t.ready = func(context.Context) error { return nil }
	if t.other, err = newSide(config.Path(config.MasterKind, o.Resolve(env), env.Getenv)); err != nil {
		return func() {}, err
	}
	return func() { t.other.local.Close() }, nil
}

func shell(ctx context.Context, text string) error {
	out, err := exec.CommandContext(ctx, "sh", "-c", text).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.500s", text, err, out)
	}
	return nil
}

// apart is the address of the master that will be cut off.
const apart = "127.77.0.1"

func (t *trial) prepareFleet(o *options) (clean func(), err error) {
	more := ""
	if o.Mode == "failover" {
		more = "master_type: failover\n"
	}
	var minions []tempfleet.Minion
	for _, id := range []string{"alpha", "beta", "gamma"} {
		minions = append(minions, tempfleet.Minion{ID: id, Role: "drill", More: more})
	}
	at := ""
	if t.cut = o.Fault == "cut"; t.cut {
		at = apart
	}
	f, err := tempfleet.New(minions, at, "auto_accept: True\n")
	if err != nil {
		return func() {}, err
	}
	wire := &wire{}
	clean = func() { wire.close(); _ = f.Remove() }
	one := f.Masters[0]
	if t.cut {
		if err := wire.listen(one.Ports); err != nil {
			return clean, err
		}
	}
	t.ready = func(ctx context.Context) error { return t.startFleet(ctx, f) }
	t.harm = func(context.Context) error {
		switch o.Fault {
		case "freeze":
			return one.Signal(syscall.SIGSTOP)
		case "cut":
			wire.cut()
		default:
			one.Kill()
		}
		return nil
	}
	t.mend = func(ctx context.Context) error {
		switch o.Fault {
		case "freeze":
			return one.Signal(syscall.SIGCONT)
		case "cut":
			wire.mend()
			return nil
		}
		return errors.Join(one.Start(), one.Listening(ctx))
	}
	return clean, nil
}

func (t *trial) startFleet(ctx context.Context, f *tempfleet.Fleet) (err error) {
	if err := f.StartMasters(ctx); err != nil {
		return err
	}
	if err := f.StartMinions(); err != nil {
		return err
	}
	if t.victim, err = newSide(filepath.Join(f.Masters[0].Dir, "master")); err != nil {
		return err
	}
	if t.other, err = newSide(filepath.Join(f.Masters[1].Dir, "master")); err != nil {
		return err
	}
	if err := f.Await(ctx, "the minions to answer", func() error { return answered(ctx, t.victim, 3) }); err != nil {
		return err
	}
	return f.Await(ctx, "the second master to know the minions", func() error {
		keys, err := filepath.Glob(filepath.Join(f.Masters[1].Dir, "etc/salt/pki/master/minions/*"))
		if err == nil && len(keys) != 3 {
			err = fmt.Errorf("it knows %d", len(keys))
		}
		return err
	})
}

func answered(ctx context.Context, s *side, n int) error {
	_, results, err := s.Call(ctx, client.Job{Target: "*", Fun: "test.ping", Timeout: time.Second})
	if err != nil {
		return err
	}
	good := 0
	for _, r := range results {
		if r.Return == true {
			good++
		}
	}
	if good != n {
		return fmt.Errorf("%d of %d answered", good, n)
	}
	return nil
}

// every is the interval between commands.
const every = 100 * time.Millisecond

func (t *trial) run(ctx context.Context) error {
	if err := t.ready(ctx); err != nil {
		return err
	}
	events, err := t.other.local.Subscribe(ctx, "salt/minion/", "salt/job/")
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { t.watch(watching, events) })
	defer func() { stop(); wg.Wait(); events.Close() }()

	first := t.victim
	if first == nil {
		first = t.other
	}
	for range 10 {
		t.harmless(ctx, first, "before")
		time.Sleep(every)
	}
	if t.victim != nil && t.ran == "" { // their masters will be down when these jobs finish
		for range 3 {
			t.command(ctx, t.victim, "cmd.run", "sleep 1; echo during")
		}
	}
	t.mu.Lock()
	t.fault = time.Now()
	t.mu.Unlock()
	if err := t.harm(ctx); err != nil {
		return err
	}
	for t.waits() && ctx.Err() == nil {
		t.harmless(ctx, t.other, "meanwhile")
		if t.cut && t.victim != nil { // commands on the victim do not notice the cut
			t.command(ctx, t.victim, "test.echo", "behind the cut")
		}
		time.Sleep(every)
	}
	if err := t.mend(ctx); err != nil {
		return err
	}
	return t.settle(ctx)
}

// leaveTime is the timeout for minions to leave a draining master.
const leaveTime = 2 * time.Minute

// waits reports whether the master must stay down.
func (t *trial) waits() bool {
	since := time.Since(t.fault)
	return since < t.away || t.gone != nil && since < leaveTime && !t.gone()
}

// harmless sends a command without effect, or one that logs its job id.
func (t *trial) harmless(ctx context.Context, via *side, word string) {
	if t.ran == "" {
		t.command(ctx, via, "test.echo", word)
		return
	}
	t.command(ctx, via, "cmd.run", "echo JID >> "+t.ran)
}

// command sends one command with an expiry of a minute.
func (t *trial) command(ctx context.Context, via *side, fun, arg string) {
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	jid := salt.NewJID(time.Now())
	s := &sent{via: via, at: time.Now()}
	t.mu.Lock()
	t.sent[jid] = s
	t.mu.Unlock()
	p, err := via.Publish(limited, client.Job{Target: t.target, Fun: fun, Arg: value.ListOf(strings.ReplaceAll(arg, "JID", jid)), JID: jid,
		Kwargs: value.DictOf("expire", 60)})
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		delete(t.sent, jid) // the failure was reported to the sender
		return
	}
	s.minions = p.Minions
}

// watch processes the events of the surviving master.
func (t *trial) watch(ctx context.Context, events client.Events) {
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return
		}
		t.mu.Lock()
		t.note(e, time.Now())
		t.mu.Unlock()
	}
}

func (t *trial) note(e *event.Event, now time.Time) {
	if t.fault.IsZero() {
		return
	}
	since := now.Sub(t.fault).Seconds()
	if id, ok := strings.CutSuffix(strings.TrimPrefix(e.Tag, "salt/minion/"), "/master_changed"); ok {
		d := e.Data
		if inner := d.Dict("data"); inner != nil {
			d = inner
		}
		if m := t.minion(id); m.Switched < 0 {
			took, _ := d.At("seconds").(float64)
			m.Detected, m.Switched = max(since-took, 0), since
		}
		return
	}
	jid, rest, _ := strings.Cut(strings.TrimPrefix(e.Tag, "salt/job/"), "/")
	s := t.sent[jid]
	if id, ok := strings.CutPrefix(rest, "ret/"); ok && s != nil && s.via == t.other && s.at.After(t.fault) {
		if m := t.minion(id); m.Usable < 0 {
			m.Usable = since
		}
	}
}

func (t *trial) minion(id string) *drillTime {
	m := t.report.Minions[id]
	if m == nil {
		m = &drillTime{-1, -1, -1}
		t.report.Minions[id] = m
	}
	return m
}

// settleTime is the timeout for results after the master is back.
const settleTime = time.Minute

// againTime is how long to wait for duplicate runs of a command.
const againTime = 3 * time.Second

// settle waits for the results of all commands and counts them.
func (t *trial) settle(ctx context.Context) error {
	for deadline := time.Now().Add(settleTime); ; {
		total, lost := t.count(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(lost) == 0 || time.Now().After(deadline) {
			if t.ran != "" {
				time.Sleep(againTime)
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.report.Twice = t.twice()
			t.report.Commands, t.report.Results, t.report.Lost = total, total-len(lost), lost
			for jid, s := range t.sent {
				t.countQueued(ctx, jid, s)
			}
			return nil
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// countQueued counts the results that arrived long after their command.
func (t *trial) countQueued(ctx context.Context, jid string, s *sent) {
	st, err := s.via.States(ctx, jid)
	if err != nil || st == nil {
		return
	}
	t.report.Queued += len(st.Delivered)
}

// count returns the number of commands times their minions, and the results that are missing on the
// master that sent the command.
func (t *trial) count(ctx context.Context) (total int, lost []string) {
	t.mu.Lock()
	jids := make([]string, 0, len(t.sent))
	for jid := range t.sent {
		jids = append(jids, jid)
	}
	t.mu.Unlock()
	slices.Sort(jids)
	for _, jid := range jids {
		s := t.sent[jid]
		total += len(s.minions)
		st, err := s.via.States(ctx, jid)
		for _, id := range s.minions {
			if err == nil && st != nil && st.Minions[id] == client.Returned {
				continue
			}
			lost = append(lost, jid+" "+id)
		}
	}
	return total, t.look(ctx, lost)
}

// look queries the results of jobs that a restarted master no longer follows, and returns those
// still missing.
func (t *trial) look(ctx context.Context, lost []string) (still []string) {
	for _, l := range lost {
		jid, id, _ := strings.Cut(l, " ")
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		d, err := t.sent[jid].via.Run(limited, client.Runner{Fun: "jobs.lookup_jid", Args: []any{jid}}, nil, nil)
		cancel()
		if err == nil && d.Dict("return").Has(id) {
			continue
		}
		still = append(still, l)
	}
	return still
}

func (r *drillReport) print(w io.Writer) {
	fmt.Fprintf(w, "Fault: %s; minions: %s\n\n%-12s %10s %10s %10s\n", r.Fault, r.Mode, "minion", "noticed", "switched", "usable")
	ids := make([]string, 0, len(r.Minions))
	for id := range r.Minions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		m := r.Minions[id]
		fmt.Fprintf(w, "%-12s %10s %10s %10s\n", id, secs(m.Detected), secs(m.Switched), secs(m.Usable))
	}
	fmt.Fprintf(w, "\nCommands to minions: %d; results: %d; delivered later: %d; lost: %d\n", r.Commands, r.Results, r.Queued, len(r.Lost))
	for _, l := range r.Lost {
		fmt.Fprintf(w, "  lost: %s\n", l)
	}
	for _, l := range r.Twice {
		fmt.Fprintf(w, "  ran too often: %s times\n", l)
	}
}

func secs(s float64) string {
	if s < 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f s", s)
}
