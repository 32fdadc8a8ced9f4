// Package beacons schedules the beacons of a minion: those of the option beacons, which
// functions can change, and those of the pillar. Package catalogue/beacons implements them.
package beacons

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	catalogue "brine/internal/catalogue/beacons"
	"brine/internal/catalogue/modules/control"
	"brine/internal/daemons/minion/conffile"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/host"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// TagManage is the event on the minion's own bus by which other programs change the
// beacons.
const TagManage = "manage_beacons"

// Options are the options of the minion that this package uses.
type Options struct {
	Beacons              any  `salt:"beacons" default:"{}" doc:"what is watched on this machine; what is seen goes to the masters as events" change:"restart"`
	BeaconsBeforeConnect bool `salt:"beacons_before_connect" default:"false" doc:"let beacons look before a master is connected" change:"restart"`
}

// Config is the configuration of a Scheduler.
type Config struct {
	Options Options
	// ID is the minion's id.
	ID string
	// Masterless means that the configuration has no master, so Ready is never closed.
	Masterless bool
	// Opts are all options, for conf_file and default_include.
	Opts *value.Dict
	// Ready is closed once a master is connected.
	Ready <-chan struct{}
	// Pillar returns the pillar of the first connected master, or nil.
	Pillar func() *value.Dict
	// Running returns the running functions.
	Running func() []string
	// Call returns a context and a call with which a beacon can call functions.
	Call func() (context.Context, *fn.Call)
	// Python has the user's own beacons, which replace built-in ones of the same names. It
	// may be nil.
	Python Python
	// Go runs a function in the background.
	Go func(func())
	// Fire sends an event to the masters.
	Fire func(tag string, data any)
	// Report fires an event on the minion's own bus.
	Report func(tag string, data *value.Dict)
	Log    *slog.Logger
}

// Python are the user's own beacons.
type Python interface {
	// Find returns the beacon of a module; as is the name under which it is configured.
	Find(module, as string) (catalogue.Beacon, bool)
	// Names returns the names of all.
	Names() []string
}

// Scheduler runs the beacons, in one set for all masters: those of the option beacons,
// which functions can change, and those in the pillar of the first connected master. Their
// events go to all masters, or to the active one.
type Scheduler struct {
	cfg   Config
	kinds map[string]catalogue.Beacon
	wake  wait.Wakeup

	mu      sync.Mutex
	initial *value.Dict
	own     *value.Dict // current value of the option
	watches map[string]*watch
	told    map[string]string // errors of beacons that Check has logged

	requests localbus.InOrder
}

// watch is one configured beacon.
type watch struct {
	def    any
	module string // module that implements it
	python bool   // it is one of the user's own beacons
	valid  bool   // the user's module has accepted the settings
	kind   catalogue.Beacon
	config catalogue.Config
	err    error
	next   time.Time
	memory *value.Dict
	held   io.Closer
	busy   bool // memory and held belong to the running check
	over   bool // removed: close held when no check uses it
}

// rest closes the resources that the beacon keeps open.
func (w *watch) rest() {
	if w.held != nil {
		w.held.Close()
		w.held = nil
	}
}

// end is like rest, but for a removed beacon: a running check closes the resources when it
// ends.
func (w *watch) end() {
	if w.over = true; !w.busy {
		w.rest()
	}
}

// New returns a scheduler that does nothing before Run.
func New(c Config) (*Scheduler, error) {
	l := &Scheduler{cfg: c, kinds: catalogue.All(&host.Machine{}), wake: wait.NewWakeup(), own: value.NewDict(0), watches: map[string]*watch{},
		requests: localbus.InOrder{Go: c.Go}}
	d, ok := c.Options.Beacons.(*value.Dict)
	if !ok && c.Options.Beacons != nil {
		return nil, salt.Errorf(salt.Invalid, "beacons: expected a map, got %s", value.TypeName(c.Options.Beacons))
	}
	if ok {
		l.own = d.Clone()
	}
	l.initial = l.own
	return l, nil
}

// Check logs the beacons of the option whose settings are invalid. It does not run modules of the user,
// nor names unknown beacons, which the check of options names.
func (l *Scheduler) Check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = map[string]string{}
	for k, def := range l.own.All() {
		name := value.Str(k)
		module := moduleOf(name, def)
		if _, known := l.kinds[module]; name == "enabled" || !known || l.ofPython(module) {
			continue
		}
		if err := l.validate(name, def); err != nil {
			l.logInvalid(name, err)
			l.told[name] = err.Error()
		}
	}
}

func (l *Scheduler) logInvalid(name string, err error) {
	l.cfg.Log.Error("ignoring invalid beacon", "beacon", name, "err", err)
}

// Run runs due beacons once a second while there are any. It starts when a
// master is connected, unless beacons_before_connect says otherwise.
func (l *Scheduler) Run(ctx context.Context) {
	if !l.cfg.Options.BeaconsBeforeConnect && !l.cfg.Masterless {
		select {
		case <-ctx.Done():
			return
		case <-l.cfg.Ready:
		}
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		tick := second.C
		if !l.turn(time.Now()) {
			tick = nil // until something changes
		}
		select {
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.end(func(string) bool { return true })
			return
		case <-l.wake.C():
		case <-tick:
		}
	}
}

// Changed makes Run load the configuration again. Call it when the pillar has changed.
func (l *Scheduler) Changed() {
	l.wake.Wake()
}

// merged returns the beacons of the pillar and of the option, which overrides the pillar.
func (l *Scheduler) merged(pillar, opts bool) *value.Dict {
	all := value.NewDict(0)
	if p := l.cfg.Pillar(); pillar && p != nil {
		if d, ok := p.At("beacons").(*value.Dict); ok {
			all.Update(d)
		}
	}
	if opts {
		all.Update(l.own)
	}
	return all
}

// turn starts the due checks, and reports whether it must be called again.
func (l *Scheduler) turn(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.merged(true, true)
	if v, ok := all.Get("enabled"); ok && !value.Truth(v) {
		looking := false
		for _, w := range l.watches {
			if looking = looking || w.busy; !w.busy {
				w.rest()
			}
		}
		return looking
	}
	there := map[string]bool{}
	for k, def := range all.All() {
		name := value.Str(k)
		if name == "enabled" {
			continue
		}
		there[name] = true
		w := l.watches[name]
		if w == nil || !value.Equal(w.def, def) || w.err != nil && !w.python && l.ofPython(w.module) {
			if w != nil {
				w.end()
			}
			w = l.make(name, def, now)
			l.watches[name] = w
		}
		switch {
		case w.err != nil || w.busy:
		case !w.config.Flag("enabled", true):
			w.rest()
		case !now.Before(w.next):
			l.start(name, w, now)
		}
	}
	l.end(func(name string) bool { return !there[name] })
	return len(there) > 0
}

// end removes the selected beacons; l.mu is held.
func (l *Scheduler) end(chosen func(name string) bool) {
	for name, w := range l.watches {
		if chosen(name) {
			w.end()
			delete(l.watches, name)
		}
	}
}

func (l *Scheduler) make(name string, def any, now time.Time) *watch {
	w := &watch{def: def, module: moduleOf(name, def), memory: value.NewDict(0)}
	w.python = l.ofPython(w.module)
	w.kind, w.config, w.err = l.parse(name, def)
	if w.err == nil && !w.python {
		w.err = w.kind.Validate(w.config) // the user's own are validated before their first check, without the lock
	}
	if w.err != nil {
		if l.told[name] != w.err.Error() {
			l.logInvalid(name, w.err)
		}
		delete(l.told, name)
	}
	w.next = now.Add(w.interval())
	return w
}

// interval returns the time between checks, which is also the time before the first one.
func (w *watch) interval() time.Duration {
	switch x := w.config.Get("interval").(type) {
	case int64:
		return time.Duration(min(max(x, 0), 1<<31)) * time.Second
	case float64:
		return time.Duration(min(max(x, 0), 1<<31) * float64(time.Second))
	}
	return 0
}

// moduleOf returns the module of a configured beacon.
func moduleOf(name string, def any) string {
	if c, err := catalogue.ParseConfig(def); err == nil {
		if s, ok := c.Get("beacon_module").(string); ok {
			return s
		}
	}
	return name
}

// ofPython reports whether a module is one of the user's own. One can be synced at any
// time.
func (l *Scheduler) ofPython(module string) bool {
	if l.cfg.Python == nil {
		return false
	}
	_, ok := l.cfg.Python.Find(module, module)
	return ok
}

func (l *Scheduler) parse(name string, def any) (kind catalogue.Beacon, c catalogue.Config, err error) {
	if c, err = catalogue.ParseConfig(def); err != nil {
		return kind, c, err
	}
	as := name
	name = moduleOf(name, def)
	if l.cfg.Python != nil {
		if kind, ok := l.cfg.Python.Find(name, as); ok {
			return kind, c, nil
		}
	}
	kind, ok := l.kinds[name]
	if reason := catalogue.Unsupported(name); !ok && reason != "" {
		return kind, c, fmt.Errorf("there is no beacon %q, which only Salt has: %s", name, reason)
	}
	if !ok {
		return kind, c, fmt.Errorf("there is no beacon %q", name)
	}
	return kind, c, nil
}

// validate returns an error for invalid settings.
func (l *Scheduler) validate(name string, def any) error {
	kind, c, err := l.parse(name, def)
	if err != nil {
		return err
	}
	return kind.Validate(c)
}

// start runs a check in the background, so that a slow one delays no other;
// l.mu is held.
func (l *Scheduler) start(name string, w *watch, now time.Time) {
	w.next = now.Add(max(w.interval(), time.Second/2))
	if w.config.Flag("disable_during_state_run", false) &&
		slices.ContainsFunc(l.cfg.Running(), func(fun string) bool { return strings.HasPrefix(fun, "state.") }) {
		w.rest() // later checks do not report what the run changes
		return
	}
	w.busy = true
	l.cfg.Go(func() {
		ctx, c := l.cfg.Call()
		if w.python && !w.valid {
			if err := w.kind.Validate(w.config); err != nil {
				l.invalid(name, w, err)
				return
			}
			w.valid = true
		}
		news, err := w.kind.Look(ctx, catalogue.Look{Config: w.config, Memory: w.memory, Call: c, Now: now, Held: &w.held})
		if err != nil {
			l.cfg.Log.Error("beacon failed", "beacon", name, "err", err)
		}
		for _, data := range news {
			l.tell(name, data)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if w.busy = false; w.over {
			w.rest()
		}
		if value.Truth(w.config.Get("run_once")) {
			l.setEnabled(name, false)
		}
	})
}

// invalid ends a check whose settings the user's module rejects. No check follows until
// they change.
func (l *Scheduler) invalid(name string, w *watch, err error) {
	l.logInvalid(name, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	w.err, w.busy = err, false
}

// tell sends an event with the tag and data of stock minions.
func (l *Scheduler) tell(name string, data *value.Dict) {
	tag := "salt/beacon/" + l.cfg.ID + "/" + name + "/" + data.Str("tag")
	data.Delete("tag")
	if !data.Has("id") {
		data.Set("id", l.cfg.ID)
	}
	l.cfg.Fire(tag, data)
}

// setEnabled enables or disables a beacon of the option; l.mu is held.
func (l *Scheduler) setEnabled(name string, on bool) {
	list := &value.List{}
	switch x := l.own.At(name).(type) {
	case *value.List:
		list.Items = slices.Clone(x.Items)
	case *value.Dict:
		list.Items = []any{x}
	default:
		return
	}
	for i, it := range list.Items {
		if d, ok := it.(*value.Dict); ok && d.Has("enabled") {
			d = d.Clone()
			d.Delete("enabled")
			if list.Items[i] = any(d); d.Len() == 0 {
				list.Items = slices.Delete(list.Items, i, i+1)
			}
			break
		}
	}
	list.Append(value.DictOf("enabled", on))
	l.set(name, list)
}

func (l *Scheduler) set(key string, v any) {
	own := l.own.Clone()
	own.Set(key, v)
	l.own = own
}

// beaconAnswer returns the tag of the event that answers a request with this
// func.
func beaconAnswer(fun string) string {
	word := map[string]string{
		"list": "beacons_list", "list_available": "beacons_list_available", "add": "beacon_add", "modify": "beacon_modify",
		"delete": "beacon_delete", "enable": "beacons_enabled", "disable": "beacons_disabled", "enable_beacon": "beacon_enabled",
		"disable_beacon": "beacon_disabled", "validate_beacon": "beacon_validation", "reset": "beacon_reset",
	}[fun]
	if word == "" {
		return ""
	}
	return "/salt/minion/minion_" + word + "_complete"
}

// ByEvent handles a request of another program.
func (l *Scheduler) ByEvent(e *event.Event) {
	l.requests.Add(func() { l.manage(e.Data) })
}

// manage handles a request. It returns the answer, and fires it as an event: complete, the
// current beacons, and comment.
func (l *Scheduler) manage(req *value.Dict) *value.Dict {
	var in wire.ManageBeacons
	wire.View(req, &in)
	answer := l.managed(&in)
	if tag := beaconAnswer(in.Func); tag != "" {
		l.cfg.Report(tag, answer)
	}
	return answer
}

func (l *Scheduler) managed(req *wire.ManageBeacons) *value.Dict {
	var invalid error
	if req.Func == "validate_beacon" { // without the lock, since the user's own modules may take long
		invalid = l.validate(req.Name, req.BeaconData)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.Changed()
	name, answer := req.Name, value.DictOf("complete", true)
	refused := func(text string) { answer.Set("complete", false); answer.Set("comment", text) }
	inPillar := l.merged(true, false).Has(name) && !l.own.Has(name)
	switch fun := req.Func; fun {
	case "list":
		answer.Set("beacons", l.merged(included(req.IncludePillar), included(req.IncludeOpts)))
		return answer
	case "list_available":
		names := []string{}
		for k := range l.kinds {
			names = append(names, k)
		}
		if l.cfg.Python != nil {
			names = append(names, l.cfg.Python.Names()...)
		}
		slices.Sort(names)
		answer.Set("beacons", value.Strings(slices.Compact(names)))
		return answer
	case "validate_beacon":
		answer.Set("valid", invalid == nil)
		answer.Set("vcomment", "Valid beacon configuration")
		if invalid != nil {
			answer.Set("vcomment", invalid.Error())
		}
	case "enable", "disable":
		l.set("enabled", fun == "enable")
	case "reset":
		l.own = l.initial
		answer.Set("comment", "Beacons have been reset")
	case "add", "modify", "delete", "enable_beacon", "disable_beacon":
		if inPillar {
			refused(inPillarComment(fun, name))
			break
		}
		answer.Set("comment", l.change(fun, name, req.BeaconData))
	default:
		refused("unknown request")
	}
	answer.Set("beacons", l.merged(true, true))
	return answer
}

// included reports whether a request asks for a part; by default it asks for both.
func included(v any) bool { return v == nil || value.Truth(v) }

// change changes a beacon of the option and returns Salt's comment; l.mu is
// held.
func (l *Scheduler) change(fun, name string, data any) (comment string) {
	known := l.own.Has(name)
	switch fun {
	case "add", "modify":
		l.set(name, data)
		if fun == "add" && !known {
			return "Added new beacon item: " + name
		}
		return "Updating settings for beacon item: " + name
	case "delete":
		if !known {
			return "Beacon item " + name + " not found."
		}
		own := l.own.Clone()
		own.Delete(name)
		l.own = own
		return "Deleting beacon item: " + name
	}
	l.setEnabled(name, fun == "enable_beacon")
	return map[bool]string{true: "Enabling", false: "Disabling"}[fun == "enable_beacon"] + " beacon item " + name
}

func inPillarComment(fun, name string) string {
	if fun == "add" {
		return "Cannot update beacon item " + name + ", because it is configured in pillar."
	}
	return "Cannot " + strings.TrimSuffix(fun, "_beacon") + " beacon item " + name + ", it is configured in pillar."
}

// Functions gives functions access to the beacons of this process or, in salt-call, of the
// daemon.
type Functions struct {
	Scheduler *Scheduler
	Bus       *localbus.Bus
}

var _ control.Lookout = Functions{}

// Manage implements control.Lookout.
func (b Functions) Manage(ctx context.Context, req *value.Dict) (*value.Dict, error) {
	if !b.Bus.Outside() {
		return b.Scheduler.manage(req), nil
	}
	var in wire.ManageBeacons
	wire.View(req, &in)
	return b.Bus.Ask(ctx, TagManage, []*value.Dict{req}, beaconAnswer(in.Func))
}

// Save implements control.Lookout.
func (b Functions) Save(all *value.Dict) (string, error) {
	path, err := conffile.Path(b.Scheduler.cfg.Opts, "beacons.conf", "beacons")
	if err != nil {
		return "", err
	}
	if err := conffile.Write(path, "beacons", all); err != nil {
		return "", fn.Errorf("Unable to write to beacons file at %s. Check permissions.", path)
	}
	return path, nil
}
