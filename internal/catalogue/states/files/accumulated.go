package files

import (
	"context"
	"slices"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("accumulated", f.accumulated, `Gather texts for a file that is managed later in the same run.
			Its template finds them as the variable accumulator, a map of names to lists. A require_in or watch_in must name the file.`)}
	})
}

// gathered holds the texts that accumulators of a run added, by file and name.
type gathered struct {
	mu    sync.Mutex
	files map[string]*value.Dict
	// targets has, for each accumulator of a file, the ids of the states that
	// require it (require_in).
	targets map[string]map[string][]string
}

func accumulators(r *state.Run) *gathered {
	return r.Shared("file.accumulated", func() any {
		return &gathered{files: map[string]*value.Dict{}, targets: map[string]map[string][]string{}}
	}).(*gathered)
}

// of returns a copy of the texts for a file, or nil.
func (g *gathered) of(file string) any {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.files[file]; d != nil {
		return value.DeepCopy(d)
	}
	return nil
}

// meantFor returns the texts for a file from the accumulators that a state
// requires; if it requires none, all texts.
func (g *gathered) meantFor(file, id string) *value.Dict {
	all, _ := g.of(file).(*value.Dict)
	g.mu.Lock()
	defer g.mu.Unlock()
	some := value.NewDict(1)
	for name, texts := range all.All() {
		if slices.Contains(g.targets[file][value.Str(name)], id) {
			some.Set(name, texts)
		}
	}
	if some.Len() == 0 {
		return all
	}
	return some
}

// require records the states that require an accumulator.
func (g *gathered) require(file, name string, ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.targets[file] == nil {
		g.targets[file] = map[string][]string{}
	}
	g.targets[file][name] = append(g.targets[file][name], ids...)
}

// add adds a text and reports whether it is new.
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

// accumulated returns a plan without steps, because test runs need the texts,
// too.
func (file) accumulated(_ context.Context, e *state.Env, a accumulatedArgs) (state.Plan, error) {
	ids := append(requiredBy(e.Low.At("require_in")), requiredBy(e.Low.At("watch_in"))...)
	switch {
	case a.Name == "":
		return state.Plan{}, fn.Errorf("Must provide name to file.accumulated")
	case a.Text == nil:
		return state.Plan{}, fn.Errorf("No text supplied for accumulator")
	case len(ids) == 0:
		return state.Plan{}, fn.Errorf("Orphaned accumulator %s in %s:%s", a.Name, value.Str(e.Low.At("__sls__")), value.Str(e.Low.At("__id__")))
	}
	texts := []any{a.Text}
	switch t := a.Text.(type) {
	case *value.List:
		texts = t.Items
	case value.Tuple:
		texts = t
	}
	accumulators(e.Run).require(a.Filename, a.Name, ids)
	p := state.Plan{}
	for _, t := range texts {
		if accumulators(e.Run).add(a.Filename, a.Name, t) {
			p.Comment = "Accumulator " + a.Name + " for file " + a.Filename + " was charged by text"
		}
	}
	return p, nil
}

// requiredBy returns the ids of states that a requisite names: states of file,
// or of any module by a bare id.
func requiredBy(v any) []string {
	l, _ := v.(*value.List)
	if l == nil {
		return nil
	}
	var ids []string
	for _, it := range l.Items {
		switch it := it.(type) {
		case string:
			ids = append(ids, it)
		case *value.Dict:
			if it.Has("file") {
				ids = append(ids, value.Str(it.At("file")))
			}
		}
	}
	return ids
}
