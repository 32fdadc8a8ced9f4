package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/target"
	"brine/internal/base/textedit"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// verifier checks whether chunks can be called.
type verifier struct {
	ctx    context.Context
	states *state.Registry
	where  func(ctx context.Context, low *value.Dict) string // Deps.Where
}

// verify checks whether a chunk can be called. faults are in Salt's words; f is
// nil if the function or arguments for it are missing.
func (v *verifier) verify(low *value.Dict) (f *state.Func, mask *int, faults []string) {
	if name := low.At("name"); value.Truth(name) && value.TypeName(name) != "str" {
		in := ""
		if low.Has("__sls__") {
			in = fmt.Sprintf("in SLS '%s' ", value.Str(low.At("__sls__")))
		}
		faults = append(faults, fmt.Sprintf("ID '%s' %sis not formed as a string, but is a %s", value.Str(name), in, value.TypeName(name)))
	}
	if text, ok := low.Get("umask"); ok {
		n, err := strconv.ParseUint(value.Str(text), 8, 12)
		if err != nil {
			faults = append(faults, "Invalid umask: "+value.Str(text))
		}
		m := int(n)
		mask = &m
	}
	if faults = append(faults, forms(low)...); len(faults) > 0 {
		return nil, nil, faults
	}
	full := value.Str(low.At("state")) + "." + value.Str(low.At("fun"))
	f, err := v.states.Lookup(full)
	if err != nil {
		if !low.Has("__sls__") {
			return nil, nil, []string{fmt.Sprintf("Specified state '%s' was not found", full)}
		}
		faults := []string{fmt.Sprintf("State '%s' was not found in SLS '%s'", full, value.Str(low.At("__sls__"))), "Reason: " + err.Error()}
		if _, refused := v.states.Declarations().Missing()[value.Str(low.At("state"))]; !refused && v.where != nil {
			if more := v.unknown(full); more != "" {
				faults = append(faults, strings.TrimSuffix(more+"\n"+v.where(v.ctx, low), "\n"))
			}
		}
		return nil, nil, faults
	}
	params := f.Params()
	for i := range params { // they are large, and many
		if p := &params[i]; !p.Optional && !low.Has(p.Name) {
			faults = append(faults, fmt.Sprintf("Missing parameter %s for state %s", p.Name, full))
		}
	}
	incomplete := len(faults) > 0
	if faults = append(faults, v.selfRequired(low)...); incomplete {
		f = nil
	}
	return f, mask, faults
}

// unknown describes alternatives to a state that Brine lacks. It returns "" if
// Salt lacks the module, too, and no other module has a similar name: then Salt's
// message suffices.
func (v *verifier) unknown(full string) string {
	names := v.states.Declarations().Names()
	if near := textedit.Nearest(full, names); len(near) > 0 {
		return "Brine has no state " + full + "; did you mean " + strings.Join(near, " or ") + "?"
	}
	module, _, _ := strings.Cut(full, ".")
	own := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, module+".") })
	if len(own) > 0 {
		return "Brine has no state " + full + "; it has " + strings.Join(own, ", ")
	}
	if state.Unsupported(module) {
		return "Brine does not have the states of Salt's module " + module
	}
	return ""
}

// selfRequired finds a state that requires itself.
func (v *verifier) selfRequired(low *value.Dict) (faults []string) {
	kind := ""
	if low.Has("require") {
		kind = "require"
	}
	if low.Has("watch") {
		adoptWatch(v.states, low)
		if kind = "require"; low.Has("watch") {
			kind = "watch"
		}
	}
	for _, it := range low.List(kind) {
		d, _ := it.(*value.Dict)
		if d.Len() == 0 {
			continue
		}
		k, ref := d.Entry(0)
		pattern, ok := ref.(string)
		if !ok || !value.Equal(k, low.At("state")) {
			continue
		}
		if g := target.ParseGlob(pattern); g.Match(value.Str(low.At("name"))) || g.Match(value.Str(low.At("__id__"))) {
			faults = append(faults, fmt.Sprintf("Recursive require detected in SLS %s for require %s in ID %s",
				value.Str(low.At("__sls__")), value.Repr(d), value.Str(low.At("__id__"))))
		}
	}
	return faults
}
