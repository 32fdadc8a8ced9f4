package state

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Source provides state functions that are found at run time, and their declarations.
type Source interface {
	fn.Source
	// Plan returns the plan of a state function that Find has found.
	Plan(ctx context.Context, e *Env, full string, kwargs *value.Dict) (Plan, error)
	// Aggregate returns how a module merges chunks, or nil. own says that the registry has a
	// module of that name.
	Aggregate(module string, own bool) Merge
}

// Merge merges chunks of a run into that of e, and returns what replaces that one. It must not
// modify the other chunks; replaced has those that are different now, by their index.
type Merge func(ctx context.Context, e *Env, chunks []*value.Dict, test bool) (low *value.Dict, replaced map[int]*value.Dict, err error)

// Attach adds a source. It must be called before the registry is used.
func (r *Registry) Attach(s Source) {
	r.source = s
	r.decl.Attach(s)
}

// foreign returns a function of the source.
func (r *Registry) foreign(full string, f *fn.Func) *Func {
	return &Func{Func: *f, foreign: func(ctx context.Context, e *Env, kwargs *value.Dict) (Plan, error) {
		return r.source.Plan(ctx, e, full, kwargs)
	}}
}

// SLSOf returns the SLS of a chunk.
func SLSOf(low *value.Dict) any { return low.At("__sls__") }

// resultError is Salt's message for the return of a state that is not what states have to return.
type resultError string

func (e resultError) Error() string { return string(e) }

// ReadResult converts the return of a state that is not written in Go. It rejects the same
// values as Salt.
func ReadResult(v any) (Result, error) {
	d, ok := v.(*value.Dict)
	if !ok {
		return Result{}, resultError("Malformed state return. Data must be a dictionary type.")
	}
	changes, ok := d.At("changes").(*value.Dict)
	if !ok {
		return Result{}, resultError("'Changes' should be a dictionary.")
	}
	var lacking []string
	for _, k := range []string{"name", "result", "changes", "comment"} {
		if !d.Has(k) {
			lacking = append(lacking, k)
		}
	}
	if len(lacking) > 0 {
		return Result{}, resultError("The following keys were not present in the state return: " + strings.Join(lacking, ", ") + ".")
	}
	out := Result{Verdict: Undecided, Extra: value.DictOf("name", d.At("name"))}
	if res := d.At("result"); res != nil {
		out.Verdict = Failed
		if value.Truth(res) {
			out.Verdict = Succeeded
		}
	}
	out.Changes = changes
	out.Comment = lines(d.At("comment"))
	for k, w := range d.All() {
		switch k {
		case "name", "result", "changes", "comment":
		case "warnings":
			for _, it := range value.Items(w) {
				out.Warnings = append(out.Warnings, value.Str(it))
			}
		case "skip_watch":
			out.SkipWatch = value.Truth(w)
		default:
			out.Extra.Set(k, w)
		}
	}
	return out, nil
}

// lines returns a comment, which may be a list of lines.
func lines(v any) string {
	items := value.Items(v)
	if _, isText := v.(string); isText || items == nil {
		return value.Str(v)
	}
	texts := make([]string, len(items))
	for i, it := range items {
		texts[i] = value.Str(it)
	}
	return strings.Join(texts, "\n")
}
