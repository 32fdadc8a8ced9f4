package files

import (
	"context"
	"sync"

	"brine/internal/fn"
	"brine/internal/state"
	"brine/internal/value"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("accumulated", f.accumulated, `Gather texts for a file that is managed later in the same run.
			Its template finds them as the variable accumulator, a map of names to lists. A require_in or watch_in must name the file.`)}
	})
}

// gathered are the texts of a run, by file and name.
type gathered struct {
	mu    sync.Mutex
	files map[string]*value.Dict
}

func accumulators(r *state.Run) *gathered {
	return r.Shared("file.accumulated", func() any { return &gathered{files: map[string]*value.Dict{}} }).(*gathered)
}

// of returns a copy of what was gathered for a file, or nil.
func (g *gathered) of(file string) any {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.files[file]; d != nil {
		return value.DeepCopy(d)
	}
	return nil
}

// add notes a text and reports whether it is new.
func (g *gathered) add(file, name string, text any) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.files[file]
	if d == nil {
		d = value.NewDict(1)
		g.files[file] = d
	}
	l, ok := d.At(name).(*value.List)
	if !ok {
		l = value.ListOf()
		d.Set(name, l)
	}
	for _, it := range l.Items {
		if value.Equal(it, text) {
			return false
		}
	}
	l.Append(text)
	return true
}

type accumulatedArgs struct {
	Name     string    `salt:"name" doc:"name of the accumulator"`
	Filename string    `salt:"filename" doc:"the file that the texts are for"`
	Text     any       `salt:"text" doc:"text, or list of texts"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

// accumulated has no steps: what it gathers is needed by tests, too.
func (file) accumulated(_ context.Context, e *state.Env, a accumulatedArgs) (state.Plan, error) {
	switch {
	case a.Name == "":
		return state.Plan{}, fn.Errorf("Must provide name to file.accumulated")
	case a.Text == nil:
		return state.Plan{}, fn.Errorf("No text supplied for accumulator")
	case !forFile(e.Low.At("require_in")) && !forFile(e.Low.At("watch_in")):
		return state.Plan{}, fn.Errorf("Orphaned accumulator %s in %s:%s", a.Name, value.Str(e.Low.At("__sls__")), value.Str(e.Low.At("__id__")))
	}
	texts := []any{a.Text}
	switch t := a.Text.(type) {
	case *value.List:
		texts = t.Items
	case value.Tuple:
		texts = t
	}
	p := state.Plan{}
	for _, t := range texts {
		if accumulators(e.Run).add(a.Filename, a.Name, t) {
			p.Comment = "Accumulator " + a.Name + " for file " + a.Filename + " was charged by text"
		}
	}
	return p, nil
}

// forFile tells whether a requisite names a state of file.
func forFile(v any) bool {
	l, _ := v.(*value.List)
	if l == nil {
		return false
	}
	for _, it := range l.Items {
		if d, ok := it.(*value.Dict); ok && d.Has("file") || value.Equal(it, "file") {
			return true
		}
	}
	return false
}
