package system

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/kmod"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("kmod", func() state.Module {
		return state.Module{Name: "kmod", Doc: `Have modules of the kernel loaded, or not.`, Funcs: []state.Func{
			state.Of("present", kmodPresent, `Have modules loaded, and with persist at boot, too.`),
			state.Of("absent", kmodAbsent, `Have modules not loaded.`),
		}}
	})
}

type kmodArgs struct {
	Name    string `salt:"name" doc:"module, unless mods is given"`
	Persist bool   `salt:"persist" doc:"have it loaded at boot, too" default:"false"`
	Mods    any    `salt:"mods" doc:"list of modules" default:"null"`
}

// wanted returns the modules that a state names.
func (a kmodArgs) wanted() []string {
	if l, ok := a.Mods.(*value.List); ok {
		return value.Texts(l)
	}
	return []string{a.Name}
}

// kernelOf returns the kernel of this machine.
func kernelOf(e *state.Env) kmod.Kernel {
	return kmod.Kernel{M: machine, Systemd: e.Grains.Get("systemd") != nil}
}

func kmodPresent(_ context.Context, e *state.Env, a kmodArgs) (state.Plan, error) {
	kernel := kernelOf(e)
	now, boot := kernel.Loaded(), kernel.AtBoot()
	var there, missing []string
	for _, m := range a.wanted() {
		if slices.Contains(now, m) && (!a.Persist || slices.Contains(boot, m)) {
			there = append(there, m)
		} else {
			missing = append(missing, m)
		}
	}
	note := ""
	if len(there) > 0 {
		note = joined("Kernel module", there, "is already present", "are already present")
	}
	if len(missing) == 0 {
		return state.Plan{Comment: note}, nil
	}
	would := joined("Kernel module", missing, "is set to be loaded", "are set to be loaded")
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: strings.TrimSpace(note + "\n" + would)},
		Do: func(ctx context.Context) (state.Change, error) {
			known := append(kernel.Available(), now...) // loaded modules may be built in
			r := kmodRun{notes: nonEmpty(note), diff: value.NewDict(2), word: "loaded"}
			var unknown, rest []string
			for _, m := range missing {
				if slices.Contains(known, m) {
					rest = append(rest, m)
				} else {
					unknown = append(unknown, m)
				}
			}
			if len(unknown) > 0 {
				r.failed = true
				r.notes = append(r.notes, joined("Kernel module", unknown, "is unavailable", "are unavailable"))
			}
			r.each(rest, func(m string) ([]string, error) { return kernel.Load(ctx, m, a.Persist) })
			return r.end("Loaded kernel module", "Failed to load kernel module")
		}}}}, nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// kmodRun collects the results for modules.
type kmodRun struct {
	notes         []string
	diff          *value.Dict
	word          string
	done, nothing []string
	errors        []string
	failed        bool
}

// each calls do for each module. Loading one may load others.
func (r *kmodRun) each(mods []string, do func(string) ([]string, error)) {
	for _, m := range mods {
		if r.diff.Has(m) { // already loaded for another module
			r.done = append(r.done, m)
			continue
		}
		changed, err := do(m)
		switch {
		case err != nil:
			r.errors = append(r.errors, m+": "+err.Error())
		case len(changed) == 0:
			r.nothing = append(r.nothing, m)
		default:
			for _, it := range changed {
				r.diff.Set(it, r.word)
			}
			r.done = append(r.done, m)
		}
	}
}

func (r *kmodRun) end(done, failed string) (state.Change, error) {
	say := func(text string, names []string) {
		switch len(names) {
		case 0:
		case 1:
			r.notes = append(r.notes, text+" "+names[0])
		default:
			r.notes = append(r.notes, text+"s "+strings.Join(names, ", "))
		}
	}
	say(done, r.done)
	say(failed, r.nothing)
	for _, text := range r.errors {
		r.notes = append(r.notes, failed+" "+text)
	}
	comment := strings.Join(r.notes, "\n")
	if r.failed || len(r.nothing) > 0 || len(r.errors) > 0 {
		return state.Change{Diff: r.diff}, fn.Errorf("%s", comment)
	}
	return state.Change{Diff: r.diff, Comment: comment}, nil
}

type kmodAbsentArgs struct {
	Name    string `salt:"name" doc:"module, unless mods is given"`
	Persist bool   `salt:"persist" doc:"do not have it loaded at boot any more" default:"false"`
	Comment bool   `salt:"comment" doc:"with persist: make its line a comment instead of removing it" default:"true"`
	Mods    any    `salt:"mods" doc:"list of modules" default:"null"`
}

func kmodAbsent(_ context.Context, e *state.Env, a kmodAbsentArgs) (state.Plan, error) {
	kernel := kernelOf(e)
	now, boot := kernel.Loaded(), kernel.AtBoot()
	wanted := kmodArgs{Name: a.Name, Mods: a.Mods}.wanted()
	var there []string
	for _, m := range wanted {
		if slices.Contains(now, m) || a.Persist && slices.Contains(boot, m) {
			there = append(there, m)
		}
	}
	if len(there) == 0 {
		return state.Plan{Comment: joined("Kernel module", wanted, "is already removed", "are already removed")}, nil
	}
	would := joined("Kernel module", there, "is set to be removed", "are set to be removed")
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		r := kmodRun{diff: value.NewDict(2), word: "removed"}
		r.each(there, func(m string) ([]string, error) { return kernel.Remove(ctx, m, a.Persist, a.Comment) })
		return r.end("Removed kernel module", "Failed to remove kernel module")
	}}}}, nil
}
