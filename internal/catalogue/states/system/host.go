package system

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"brine/internal/base/field"
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/hosts"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("host", func() state.Module {
		return state.Module{Name: "host", Doc: `Keep names of hosts in the hosts file.`, Funcs: []state.Func{
			state.Of("present", hostPresent, `Have addresses of a name in the hosts file.`),
			state.Of("absent", hostAbsent, `Have no such addresses of a name in the hosts file.`),
			state.Of("only", hostOnly, `Have names, and no others, for an address.`),
		}}
	})
}

type hostArgs struct {
	Name    string `salt:"name" doc:"name of the host"`
	IP      any    `salt:"ip" doc:"its address, or a list of addresses"`
	Comment string `salt:"comment" doc:"comment behind the line" default:""`
	Clean   bool   `salt:"clean" doc:"take the name from all other addresses" default:"false"`
}

// entry is one change of the hosts file.
type entry struct {
	do                func(addr, text string) (bool, error)
	addr, text        string
	will, did, failed string // comments
	kind              string // its key in the changes
	decides           bool   // makes a test undecided
}

// nameOf returns the entry of an address. An entry is a map, or the list of
// names where the module shows no comments.
func nameOf(entries *value.Dict, addr string) (names []string, comment string, ok bool) {
	v, ok := entries.Get(addr)
	if d, isMap := v.(*value.Dict); isMap {
		return value.Texts(d.At("aliases")), d.Str("comment"), ok
	}
	return value.Texts(v), "", ok
}

// addresses returns the wanted addresses, each once. What cannot be an address is rejected: it would be written into
// the hosts file, or do nothing without a word.
func (a hostArgs) addresses() ([]string, error) {
	if a.Name == "" {
		return nil, fn.Errorf("the name of a host is needed")
	}
	items := []any{a.IP}
	if l, ok := a.IP.(*value.List); ok {
		items = l.Items
	}
	var ips []string
	for _, it := range items {
		ip, ok := it.(string)
		if !ok || ip == "" {
			return nil, fn.Errorf("Invalid IP Address for %s (%s)", a.Name, value.Str(it))
		}
		if !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	return ips, nil
}

func hostPresent(ctx context.Context, e *state.Env, a hostArgs) (state.Plan, error) {
	file := hosts.File{M: machine}
	all, err := file.List(ctx, e.Call, struct{}{})
	if err != nil {
		return state.Plan{}, err
	}
	ips, err := a.addresses()
	if err != nil {
		return state.Plan{}, err
	}
	var plan state.Plan
	var comments, faults []string
	var adds, remarks, removals []entry
	add := func(addr, name string) (bool, error) {
		return file.Add(ctx, e.Call, hosts.PairArgs{IP: addr, Alias: name})
	}
	remove := func(addr, name string) (bool, error) {
		return file.Remove(ctx, e.Call, hosts.PairArgs{IP: addr, Alias: name})
	}
	setComment := func(addr, text string) (bool, error) {
		return file.Comment(ctx, e.Call, hosts.CommentArgs{IP: addr, Comment: text})
	}
	addition := func(addr string) {
		adds = append(adds, entry{add, addr, a.Name, "Host " + a.Name + " (" + addr + ") would be added", "Added host " + a.Name + " (" + addr + ")",
			"Failed to add host " + a.Name + " (" + addr + ")", "added", true})
	}
	remark := func(addr string) {
		if a.Comment != "" {
			remarks = append(remarks, entry{setComment, addr, a.Comment, "Comment for " + addr + " (" + a.Comment + ") would be added",
				"Set comment for host " + addr + " (" + a.Comment + ")", "Failed to add comment for host " + addr + " (" + a.Comment + ")", "comment_added",
				false})
		}
	}
	for _, addr := range ips {
		if _, _, ok := nameOf(all, addr); !ok {
			addition(addr)
			remark(addr)
		}
	}
	for k := range all.All() {
		addr := value.Str(k)
		names, comment, _ := nameOf(all, addr)
		has := slices.Contains(names, a.Name)
		_, invalid := netip.ParseAddr(addr)
		switch {
		case !slices.Contains(ips, addr) && !has:
		case !slices.Contains(ips, addr) && a.Clean:
			removals = append(removals, entry{remove, addr, a.Name, "Host " + a.Name + " (" + addr + ") would be removed", "Removed host " + a.Name +
				" (" + addr + ")",
				"Failed to remove host " + a.Name + " (" + addr + ")", "removed", true})
		case !slices.Contains(ips, addr):
			plan.Warnings = append(plan.Warnings, "Host "+a.Name+" present for IP address "+addr+
				". To get rid of this warning, either run this state with 'clean' set to True to remove "+
				a.Name+" from "+addr+", or add "+addr+" to the 'ip' argument.")
		case has && a.Comment != "" && comment != a.Comment:
			remark(addr)
		case has:
			comments = append(comments, "Host "+a.Name+" ("+addr+") already present")
		case invalid != nil:
			faults = append(faults, "Invalid IP Address for "+a.Name+" ("+addr+")")
		default:
			addition(addr)
			remark(addr)
		}
	}
	if len(faults) > 0 {
		return plan, fn.Errorf("%s", strings.Join(append(comments, faults...), "\n"))
	}
	return hostPlan(plan, comments, slices.Concat(adds, remarks, removals)), nil
}

// hostPlan returns a plan that makes all changes in one step.
func hostPlan(plan state.Plan, comments []string, entries []entry) state.Plan {
	if len(entries) == 0 {
		plan.Comment = strings.Join(comments, "\n")
		return plan
	}
	note := func(diff *value.Dict, en entry) {
		if !diff.Has(en.kind) {
			diff.Set(en.kind, value.NewDict(1))
		}
		d := diff.Dict(en.kind)
		d.Set(en.addr, value.ListOf(append(d.List(en.addr), en.text)...))
	}
	predicted, verdict := state.Change{Diff: value.NewDict(2)}, state.Succeeded
	said := slices.Clone(comments)
	for _, en := range entries {
		said = append(said, en.will)
		note(predicted.Diff, en)
		if en.decides {
			verdict = state.Undecided
		}
	}
	predicted.Comment = strings.Join(said, "\n")
	if verdict == state.Succeeded { // for Salt, a comment alone is not a change
		plan.Forecast = &state.Result{Verdict: verdict, Comment: predicted.Comment, Changes: predicted.Diff, Warnings: plan.Warnings}
	}
	plan.Steps = []state.Step{{Change: predicted, Do: func(ctx context.Context) (state.Change, error) {
		c, good := state.Change{Diff: value.NewDict(2)}, true
		said := slices.Clone(comments)
		for _, en := range entries {
			if ok, err := en.do(en.addr, en.text); err != nil || !ok {
				good = false
				said = append(said, en.failed)
				continue
			}
			said = append(said, en.did)
			note(c.Diff, en)
		}
		if !good {
			return c, fn.Errorf("%s", strings.Join(said, "\n"))
		}
		c.Comment = strings.Join(said, "\n")
		return c, nil
	}}}
	return plan
}

type hostAbsentArgs struct {
	Name string `salt:"name" doc:"name of the host"`
	IP   any    `salt:"ip" doc:"the address, or a list of addresses, to take it from"`
}

func hostAbsent(ctx context.Context, e *state.Env, a hostAbsentArgs) (state.Plan, error) {
	file := hosts.File{M: machine}
	var there, seen, predicted []string
	done := func(addr string, gone bool) string {
		if gone {
			return "Removed host " + a.Name + " (" + addr + ")"
		}
		return "Host " + a.Name + " (" + addr + ") already absent"
	}
	ips := value.Texts(a.IP)
	if a.IP == nil || a.IP == "" {
		ips = []string{value.Str(a.IP)}
	}
	for _, addr := range ips {
		has, err := file.Has(ctx, e.Call, hosts.PairArgs{IP: addr, Alias: a.Name})
		if err != nil {
			return state.Plan{}, err
		}
		if !has {
			predicted = append(predicted, done(addr, false))
			continue
		}
		there = append(there, addr)
		predicted = append(predicted, "Host "+a.Name+" ("+addr+") needs to be removed")
	}
	if len(there) == 0 {
		return state.Plan{Comment: strings.Join(predicted, "\n")}, nil
	}
	comment := strings.Join(predicted, "\n")
	var forecast *state.Result
	if len(there) < len(ips) { // as in Salt, one address that lacks the name makes a test succeed
		forecast = &state.Result{Verdict: state.Succeeded, Comment: comment}
	}
	return state.Plan{Forecast: forecast, Steps: []state.Step{{
		Change: state.Change{Comment: comment},
		Do: func(ctx context.Context) (state.Change, error) {
			var said []string
			for _, addr := range ips {
				gone := slices.Contains(there, addr) && !slices.Contains(seen, addr)
				seen = append(seen, addr)
				if gone {
					ok, err := file.Remove(ctx, e.Call, hosts.PairArgs{IP: addr, Alias: a.Name})
					if err == nil && !ok {
						err = fn.Errorf("Failed to remove host")
					}
					if err != nil {
						return state.Change{}, err
					}
				}
				said = append(said, done(addr, gone))
			}
			return state.Change{Diff: value.DictOf("host", a.Name), Comment: strings.Join(said, "\n")}, nil
		},
	}}}, nil
}

type hostOnlyArgs struct {
	Name  string `salt:"name" doc:"the address"`
	Hosts any    `salt:"hostnames" doc:"its name, or a list of names"`
}

// names returns the wanted names. What is neither a name nor a list of names, such as null, is rejected: it would
// remove the names that are there.
func (a hostOnlyArgs) names() ([]string, error) {
	var items []any
	switch x := a.Hosts.(type) {
	case *value.List:
		items = x.Items
	case *value.Dict:
		items = x.Keys()
	default:
		items = []any{x}
	}
	var names []string
	for _, it := range items {
		name, ok := it.(string)
		if !ok {
			return nil, fn.Errorf("hostnames must be a name or a list of names, not %s", field.Describe(it))
		}
		names = append(names, strings.TrimSpace(name))
	}
	return names, nil
}

func hostOnly(ctx context.Context, e *state.Env, a hostOnlyArgs) (state.Plan, error) {
	file := hosts.File{M: machine}
	has, err := file.Names(ctx, e.Call, hosts.IPArgs{IP: a.Name})
	if err != nil {
		return state.Plan{}, err
	}
	names, err := a.names()
	if err != nil {
		return state.Plan{}, err
	}
	old, want := strings.Join(value.Texts(has), " "), strings.Join(names, " ")
	if old == want {
		return state.Plan{Comment: `IP address ` + a.Name + ` already set to "` + want + `"`}, nil
	}
	fromTo := a.Name + ` from "` + old + `" to "` + want + `"`
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Would change " + fromTo},
		Do: func(ctx context.Context) (state.Change, error) {
			ok, err := file.Set(ctx, e.Call, hosts.SetArgs{IP: a.Name, Alias: want})
			if err == nil && !ok {
				err = fn.Errorf("hosts.set_host failed to change %s", fromTo)
			}
			if err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: value.DictOf(a.Name, value.DictOf("old", old, "new", want)), Comment: "successfully changed " + fromTo}, nil
		},
	}}}, nil
}
