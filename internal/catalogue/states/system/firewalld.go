package system

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	when := func(fn.Reader) (string, bool) {
		return "firewall-cmd is not available, firewalld is probably not installed.", (&host.Machine{}).Which("firewall-cmd") != ""
	}
	units.Declare("firewalld", func() state.Module {
		return state.Module{Name: "firewalld", When: when, Doc: `Keep zones and services of firewalld.`, Funcs: []state.Func{
			state.Of("present", firewalldPresent, `Have a zone with what it lets in.`),
			state.Of("service", firewalldService, `Have a service of some ports and protocols.`),
		}}
	})
}

type firewalldArgs struct {
	Name            string `salt:"name" doc:"zone"`
	BlockICMP       any    `salt:"block_icmp" doc:"list of ICMP's types to block" default:"null"`
	PruneBlockICMP  bool   `salt:"prune_block_icmp" doc:"block no others" default:"false"`
	Default         any    `salt:"default" doc:"make it the default zone" default:"null"`
	Masquerade      any    `salt:"masquerade" doc:"hide the addresses of others, or not" default:"null"`
	Ports           any    `salt:"ports" doc:"list of ports to let in" default:"null"`
	PrunePorts      bool   `salt:"prune_ports" doc:"let no others in" default:"false"`
	PortFwd         any    `salt:"port_fwd" doc:"list of ports to forward, as port:port:protocol:address" default:"null"`
	PrunePortFwd    bool   `salt:"prune_port_fwd" doc:"forward no others" default:"false"`
	Services        any    `salt:"services" doc:"list of services to let in" default:"null"`
	PruneServices   bool   `salt:"prune_services" doc:"let no others in" default:"false"`
	Interfaces      any    `salt:"interfaces" doc:"list of interfaces" default:"null"`
	PruneInterfaces bool   `salt:"prune_interfaces" doc:"have no others" default:"false"`
	Sources         any    `salt:"sources" doc:"list of addresses" default:"null"`
	PruneSources    bool   `salt:"prune_sources" doc:"have no others" default:"false"`
	RichRules       any    `salt:"rich_rules" doc:"list of rich rules" default:"null"`
	PruneRichRules  bool   `salt:"prune_rich_rules" doc:"have no others" default:"false"`
}

// zonePart is one list of a zone.
type zonePart struct {
	key   string
	want  any
	prune bool
	list  string
	add   func(ctx context.Context, item string) error
	drop  func(ctx context.Context, item string) error
}

// wall calls the execution module and formats errors as comments.
type wall struct{ e *state.Env }

func (w wall) ask(ctx context.Context, fun string, args ...any) (any, error) {
	v, err := w.e.Exec(ctx, "firewalld."+fun, nil, args...)
	if err != nil {
		return nil, state.Errorf("Error: %w", err)
	}
	return v, nil
}

func (w wall) texts(ctx context.Context, fun string, args ...any) ([]string, error) {
	v, err := w.ask(ctx, fun, args...)
	return value.Texts(v), err
}

// item returns a function that calls fun for an item, with the zone before or
// after it.
func (w wall) item(fun, zone string, zoneFirst bool) func(context.Context, string) error {
	return func(ctx context.Context, item string) error {
		var err error
		if zoneFirst {
			_, err = w.ask(ctx, fun, zone, item)
		} else {
			_, err = w.ask(ctx, fun, item, zone)
		}
		return err
	}
}

// forward returns a function that calls fun for port:port:protocol:address.
func (w wall) forward(fun, zone string) func(context.Context, string) error {
	return func(ctx context.Context, item string) error {
		p := strings.Split(item, ":")
		_, err := w.ask(ctx, fun, zone, p[0], p[1], p[2], p[3])
		return err
	}
}

func (a firewalldArgs) parts(w wall) []zonePart {
	z := a.Name
	part := func(key string, want any, prune bool, list, add, drop string) zonePart {
		return zonePart{key, want, prune, list, w.item(add, z, true), w.item(drop, z, true)}
	}
	return []zonePart{
		part("icmp_types", a.BlockICMP, a.PruneBlockICMP, "list_icmp_block", "block_icmp", "allow_icmp"),
		part("ports", a.Ports, a.PrunePorts, "list_ports", "add_port", "remove_port"),
		{"port_fwd", a.PortFwd, a.PrunePortFwd, "list_port_fwd", w.forward("add_port_fwd", z), w.forward("remove_port_fwd", z)},
		{"services", a.Services, a.PruneServices, "list_services", w.item("add_service", z, false), w.item("remove_service", z, false)},
		part("interfaces", a.Interfaces, a.PruneInterfaces, "get_interfaces", "add_interface", "remove_interface"),
		part("sources", a.Sources, a.PruneSources, "get_sources", "add_source", "remove_source"),
		part("rich_rules", a.RichRules, a.PruneRichRules, "get_rich_rules", "add_rich_rule", "remove_rich_rule"),
	}
}

// forwardKeys are Salt's names for the parts of port:port:protocol:address.
var forwardKeys = []string{"Source port", "Destination port", "Protocol", "Destination address"}

// shownItems formats a list for changes.
func (p zonePart) shownItems(items []string) *value.List {
	if p.key != "port_fwd" {
		return value.Strings(items)
	}
	l := &value.List{}
	for _, it := range items {
		d := value.NewDict(4)
		for i, f := range strings.Split(it, ":") {
			d.Set(forwardKeys[i], f)
		}
		l.Append(d)
	}
	return l
}

// current returns the items of a zone's list. A zone that will be created
// (fresh) has none.
func (p zonePart) current(ctx context.Context, w wall, zone string, fresh bool) ([]string, error) {
	if fresh {
		return nil, nil
	}
	v, err := w.ask(ctx, p.list, zone)
	if p.key != "port_fwd" {
		return value.Texts(v), err
	}
	var all []string
	if l, ok := v.(*value.List); ok {
		for _, it := range l.Items {
			d, _ := it.(*value.Dict)
			var parts []string
			for _, k := range forwardKeys {
				parts = append(parts, d.Str(k))
			}
			all = append(all, strings.Join(parts, ":"))
		}
	}
	return all, err
}

// wanted returns the declared items.
func (p zonePart) wanted(ctx context.Context, w wall) ([]string, error) {
	if !value.Truth(p.want) {
		return nil, nil
	}
	items := value.Texts(p.want)
	switch p.key {
	case "icmp_types": // as in Salt, unknown types are ignored
		known, err := w.texts(ctx, "get_icmp_types")
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(items, func(it string) bool { return !slices.Contains(known, it) }), nil
	case "port_fwd":
		for i, it := range items {
			switch strings.Count(it, ":") {
			case 2:
				items[i] += ":"
			case 3:
			default:
				return nil, fn.Errorf("a port to forward is given as port:port:protocol or port:port:protocol:address, not %s", it)
			}
		}
	}
	return items, nil
}

// wallPlan collects changes and how they are reported.
type wallPlan struct {
	changes *value.Dict
	do      []func(context.Context) error
}

func (p *wallPlan) change(key string, old, now any, do ...func(context.Context) error) {
	p.changes.Set(key, value.DictOf("old", old, "new", now))
	p.do = append(p.do, do...)
}

// part adds the changes of one list.
func (p *wallPlan) part(ctx context.Context, w wall, part zonePart, zone string, fresh bool) error {
	if !value.Truth(part.want) && !part.prune {
		return nil
	}
	now, err := part.current(ctx, w, zone, fresh)
	if err != nil {
		return err
	}
	want, err := part.wanted(ctx, w)
	if err != nil {
		return err
	}
	var do []func(context.Context) error
	all := slices.Clone(now)
	for _, it := range want {
		if !slices.Contains(all, it) {
			all = append(all, it)
			do = append(do, func(ctx context.Context) error { return part.add(ctx, it) })
		}
	}
	for _, it := range now {
		if part.prune && !slices.Contains(want, it) {
			do = append(do, func(ctx context.Context) error { return part.drop(ctx, it) })
		}
	}
	if part.prune {
		all = want
	}
	if len(do) > 0 {
		p.change(part.key, part.shownItems(now), part.shownItems(all), do...)
	}
	return nil
}

func (w wall) call(fun string, args ...any) func(context.Context) error {
	return func(ctx context.Context) error { _, err := w.ask(ctx, fun, args...); return err }
}

func firewalldPresent(ctx context.Context, e *state.Env, a firewalldArgs) (state.Plan, error) {
	w := wall{e}
	p := wallPlan{changes: value.NewDict(4)}
	zones, err := w.texts(ctx, "get_zones")
	if err != nil {
		return state.Plan{}, err
	}
	fresh := !slices.Contains(zones, a.Name)
	if fresh {
		p.change(a.Name, value.Strings(zones), a.Name, w.call("new_zone", a.Name))
	}
	parts := a.parts(w)
	if err := p.part(ctx, w, parts[0], a.Name, fresh); err != nil {
		return state.Plan{}, err
	}
	if value.Truth(a.Default) {
		now, err := w.ask(ctx, "default_zone")
		switch {
		case err != nil:
			return state.Plan{}, err
		case now != any(a.Name):
			p.change("default", now, a.Name, w.call("set_default_zone", a.Name))
		}
	}
	hides := any(false)
	if !fresh {
		if hides, err = w.ask(ctx, "get_masquerade", a.Name); err != nil {
			return state.Plan{}, err
		}
	}
	switch want := value.Truth(a.Masquerade); {
	case a.Masquerade == nil || want == value.Truth(hides):
	case want:
		p.change("masquerade", hides, "Masquerading successfully set.", w.call("add_masquerade", a.Name))
	default:
		p.change("masquerade", hides, "Masquerading successfully disabled.", w.call("remove_masquerade", a.Name))
	}
	for _, part := range parts[1:] {
		if err := p.part(ctx, w, part, a.Name, fresh); err != nil {
			return state.Plan{}, err
		}
	}
	return p.plan(w, a.Name, "Configuration for '"+a.Name+"' will change:\n"+strings.TrimRight(output.Nested(p.changes), " \n"), nil), nil
}

// plan returns the plan for the collected changes.
func (p *wallPlan) plan(w wall, name, would string, predicted *value.Dict) state.Plan {
	if p.changes.Len() == 0 {
		return state.Plan{Comment: "'" + name + "' is already in the desired state."}
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: predicted, Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		for _, do := range p.do {
			if err := do(ctx); err != nil {
				return state.Change{}, err
			}
		}
		if _, err := w.ask(ctx, "reload_rules"); err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: p.changes, Comment: "'" + name + "' was configured."}, nil
	}}}}
}

type firewalldServiceArgs struct {
	Name      string `salt:"name" doc:"service"`
	Ports     any    `salt:"ports" doc:"list of its ports" default:"null"`
	Protocols any    `salt:"protocols" doc:"list of its protocols" default:"null"`
}

func firewalldService(ctx context.Context, e *state.Env, a firewalldServiceArgs) (state.Plan, error) {
	w := wall{e}
	p := wallPlan{changes: value.NewDict(2)}
	known, err := w.texts(ctx, "get_services")
	if err != nil {
		return state.Plan{}, err
	}
	fresh := !slices.Contains(known, a.Name)
	if fresh {
		p.do = append(p.do, func(ctx context.Context) error {
			_, err := w.ask(ctx, "new_service", a.Name, false)
			return err
		})
	}
	for _, part := range []zonePart{
		{"ports", a.Ports, true, "get_service_ports", w.item("add_service_port", a.Name, true), w.item("remove_service_port", a.Name, true)},
		{"protocols", a.Protocols, true, "get_service_protocols", w.item("add_service_protocol", a.Name, true),
			w.item("remove_service_protocol", a.Name, true)},
	} {
		if err := p.part(ctx, w, part, a.Name, fresh); err != nil {
			return state.Plan{}, err
		}
	}
	if fresh && p.changes.Len() == 0 { // as in Salt, the zone is created without a reported change
		plan := state.Plan{Comment: "'" + a.Name + "' is already in the desired state."}
		plan.Steps = []state.Step{{Change: state.Change{Comment: "Configuration for '" + a.Name + "' will change."},
			Do: func(ctx context.Context) (state.Change, error) {
				return state.Change{}, p.do[0](ctx)
			}}}
		return plan, nil
	}
	return p.plan(w, a.Name, "Configuration for '"+a.Name+"' will change.", p.changes), nil
}
