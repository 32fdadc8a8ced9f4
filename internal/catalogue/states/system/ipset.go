package system

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/ipset"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("ipset", func() state.Module {
		when := func(fn.Reader) (string, bool) {
			return "ipset module could not be loaded", machine.Which("ipset") != ""
		}
		return state.Module{Name: "ipset", When: when, Doc: `Keep sets of addresses for the packet filter.`, Funcs: []state.Func{
			state.Of("set_present", setPresent, `Have a set.`),
			state.Of("set_absent", setAbsent, `Have no set of this name.`),
			state.Of("present", entriesPresent, `Have entries in a set.`),
			state.Of("absent", entriesAbsent, `Have no such entries in a set.`, fn.Ignored("Salt ignores it, too", "entries")),
			state.Of("flush", setFlushed, `Delete all entries of a set.`),
		}}
	})
}

// sets accesses the IP sets of this machine.
func sets() ipset.Sets { return ipset.Sets{M: machine} }

type setPresentArgs struct {
	Name   string    `salt:"name" doc:"name of the set"`
	Type   string    `salt:"set_type" doc:"type of the set, as hash:ip"`
	Family string    `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
	Kwargs fn.Kwargs `salt:"kwargs" doc:"options of ipset create, such as range, hashsize, timeout and comment"`
}

func setPresent(ctx context.Context, e *state.Env, a setPresentArgs) (state.Plan, error) {
	there, err := sets().CheckSet(ctx, e.Call, ipset.SetArgs{Name: a.Name})
	if err != nil {
		return state.Plan{}, err
	}
	if there == true {
		return state.Plan{Comment: "ipset set " + a.Name + " already exists for " + a.Family}, nil
	}
	return one("ipset set "+a.Name+" would be added for "+a.Family, func(ctx context.Context) (state.Change, error) {
		options := a.Kwargs.Clone()
		comment := value.Truth(options.At("comment"))
		options.Delete("comment")
		said, err := sets().New(ctx, e.Call, ipset.NewArgs{Name: a.Name, Type: a.Type, Family: a.Family, Comment: comment, Kwargs: fn.Kwargs{Dict: options}})
		if err == nil && said != true {
			err = state.Errorf("Failed to create set %s for %s: %s", a.Name, a.Family, strings.TrimSpace(value.Str(said)))
		}
		if err != nil {
			return state.Change{}, err
		}
		return changed(a.Name, "ipset set "+a.Name+" created successfully for "+a.Family), nil
	}), nil
}

type setArgs struct {
	Name   string    `salt:"name" doc:"name of the set"`
	Family string    `salt:"family" doc:"ipv4 or ipv6, for messages" default:"ipv4"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func setAbsent(ctx context.Context, e *state.Env, a setArgs) (state.Plan, error) {
	set := ipset.SetArgs{Name: a.Name}
	there, err := sets().CheckSet(ctx, e.Call, set)
	if err != nil {
		return state.Plan{}, err
	}
	if !value.Truth(there) {
		return state.Plan{Comment: "ipset set " + a.Name + " for " + a.Family + " is already absent"}, nil
	}
	return one("ipset set "+a.Name+" for "+a.Family+" would be removed", func(ctx context.Context) (state.Change, error) {
		empty, err := sets().Flush(ctx, e.Call, set)
		if err == nil && !empty {
			err = state.Errorf("Failed to flush set %s for %s", a.Name, a.Family)
		}
		if err != nil {
			return state.Change{}, err
		}
		said, err := sets().DeleteSet(ctx, e.Call, set)
		if err == nil && said != true {
			err = state.Errorf("Failed to delete set %s for %s: %s", a.Name, a.Family, strings.TrimSpace(value.Str(said)))
		}
		if err != nil {
			return state.Change{}, err
		}
		return changed(a.Name, "ipset set "+a.Name+" deleted successfully for family "+a.Family), nil
	}), nil
}

func setFlushed(ctx context.Context, e *state.Env, a setArgs) (state.Plan, error) {
	set := ipset.SetArgs{Name: a.Name}
	there, err := sets().CheckSet(ctx, e.Call, set)
	if err == nil && there == false {
		err = state.Errorf("ipset set %s does not exist for %s", a.Name, a.Family)
	}
	if err != nil {
		return state.Plan{}, err
	}
	return one("ipset entries in set "+a.Name+" for "+a.Family+" would be flushed", func(ctx context.Context) (state.Change, error) {
		empty, err := sets().Flush(ctx, e.Call, set)
		if err == nil && !empty {
			err = state.Errorf("Failed to flush ipset entries from set %s for %s", a.Name, a.Family)
		}
		if err != nil {
			return state.Change{}, err
		}
		return changed(a.Name, "Flushed ipset entries from set "+a.Name+" for "+a.Family), nil
	}), nil
}

type entriesArgs struct {
	Name   string    `salt:"name" doc:"what the entries are called in the SLS"`
	Entry  any       `salt:"entry" doc:"entry, or list of entries" default:"null"`
	Family string    `salt:"family" doc:"ipv4 or ipv6, for messages" default:"ipv4"`
	Kwargs fn.Kwargs `salt:"kwargs" doc:"set_name, and options of ipset add such as timeout and comment"`
}

type absentEntriesArgs struct {
	Name    string    `salt:"name" doc:"what the entries are called in the SLS"`
	Entry   any       `salt:"entry" doc:"entry, or list of entries" default:"null"`
	Entries any       `salt:"entries" doc:"has no effect" default:"null"`
	Family  string    `salt:"family" doc:"ipv4 or ipv6, for messages" default:"ipv4"`
	Kwargs  fn.Kwargs `salt:"kwargs" doc:"set_name, and timeout or comment if the entries have them"`
}

// setEntry is a wanted or an unwanted entry: without and with its options.
type setEntry struct{ bare, full string }

// entries returns the entries of the arguments and the set. Before options of
// unwanted entries Salt puts two spaces.
func (a entriesArgs) entries(want bool) (set string, all []setEntry, err error) {
	if !value.Truth(a.Entry) {
		return "", nil, state.Errorf("ipset entry must be specified")
	}
	if !a.Kwargs.Has("set_name") {
		return "", nil, state.Errorf("set_name must be given")
	}
	for _, text := range value.Texts(a.Entry) {
		bare, options, _ := strings.Cut(text, " ")
		if v, ok := a.Kwargs.Get("timeout"); ok && !strings.Contains(options, "timeout") {
			options = "timeout " + value.Str(v) + " " + options
		}
		if v, ok := a.Kwargs.Get("comment"); ok && !strings.Contains(options, "comment") {
			options += " comment " + value.Str(v)
		}
		if want {
			options = strings.TrimLeft(options, " ")
		}
		all = append(all, setEntry{bare, strings.TrimSpace(bare + " " + options)})
	}
	return value.Str(a.Kwargs.At("set_name")), all, nil
}

// each returns the plan for entries that a set has or not. It compares them
// again before it changes each: two may be the same.
func (a entriesArgs) each(ctx context.Context, e *state.Env, want bool, fine, would func(set string, n setEntry) string,
	do func(ctx context.Context, set string, n setEntry) (done, failed string, err error)) (state.Plan, error) {
	set, all, err := a.entries(want)
	if err != nil {
		return state.Plan{}, err
	}
	is := func(ctx context.Context, n setEntry) (bool, error) {
		v, err := sets().Check(ctx, e.Call, ipset.CheckArgs{Name: set, Entry: n.full})
		return v == true == want, err
	}
	comment, due := "", false
	for _, n := range all {
		ok, err := is(ctx, n)
		switch {
		case err != nil:
			return state.Plan{}, err
		case ok:
			comment += fine(set, n)
		default:
			due = true
			comment += would(set, n)
		}
	}
	if !due {
		return state.Plan{Comment: comment}, nil
	}
	return one(comment, func(ctx context.Context) (state.Change, error) {
		c, wrong := state.Change{}, false
		for _, n := range all {
			if ok, err := is(ctx, n); err != nil || ok {
				c.Comment += fine(set, n)
				if err != nil {
					return c, err
				}
				continue
			}
			done, failed, err := do(ctx, set, n)
			switch {
			case err != nil:
				return c, err
			case failed != "":
				c.Comment, wrong = failed, true
			default:
				c.Comment += done
				c.Diff = value.DictOf("locale", a.Name)
			}
		}
		if wrong {
			return state.Change{Diff: c.Diff}, state.Errorf("%s", c.Comment)
		}
		return c, nil
	}), nil
}

func entriesPresent(ctx context.Context, e *state.Env, a entriesArgs) (state.Plan, error) {
	return a.each(ctx, e, true,
		func(set string, n setEntry) string {
			return "entry for " + n.bare + " already in set " + set + " for " + a.Family + "\n"
		},
		func(set string, n setEntry) string {
			return "entry " + n.bare + " would be added to set " + set + " for family " + a.Family + "\n"
		},
		func(ctx context.Context, set string, n setEntry) (string, string, error) {
			said, err := sets().Add(ctx, e.Call, ipset.EntryArgs{Name: set, Entry: n.full, Kwargs: a.Kwargs})
			if strings.Contains(said, "Error") {
				return "", "Failed to add to entry " + n.full + " to set " + set + " for family " + a.Family + ".\n" + said, err
			}
			return "entry " + n.full + " added to set " + set + " for family " + a.Family + "\n", "", err
		})
}

func entriesAbsent(ctx context.Context, e *state.Env, args absentEntriesArgs) (state.Plan, error) {
	a := entriesArgs{Name: args.Name, Entry: args.Entry, Family: args.Family, Kwargs: args.Kwargs}
	return a.each(ctx, e, false,
		func(set string, n setEntry) string {
			return "ipset entry for " + n.full + " not present in set " + set + " for " + a.Family + "\n"
		},
		func(set string, n setEntry) string {
			return "ipset entry " + n.bare + " would be removed from set " + set + " for " + a.Family + "\n"
		},
		func(ctx context.Context, set string, n setEntry) (string, string, error) {
			said, err := sets().DeleteEntry(ctx, e.Call, ipset.EntryArgs{Name: set, Entry: n.bare})
			if strings.Contains(said, "Error") {
				return "", "Failed to delete ipset entry from set " + set + " for " + a.Family + ". Attempted entry was " + n.full + ".\n" + said + "\n", err
			}
			return "ipset entry " + n.full + " removed from set " + set + " for " + a.Family + "\n", "", err
		})
}
