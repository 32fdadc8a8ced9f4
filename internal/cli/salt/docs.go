package salt

import (
	"slices"
	"strings"

	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/py/value"
)

// addDocs collects the documentation that a minion returned; earlier entries have precedence.
func addDocs(docs *value.Dict, res client.Result) {
	d, ok := res.Return.(*value.Dict)
	if !ok || res.Absent {
		return
	}
	for fun, text := range d.All() {
		if !docs.Has(fun) && value.Truth(text) {
			docs.Set(fun, text)
		}
	}
}

// printDocs shows documentation, sorted by function name.
func (p *program) printDocs(docs *value.Dict, minions int) error {
	if minions == 0 {
		return exit{2, "No minions found to gather docs from"}
	}
	funs := make([]string, 0, docs.Len())
	for _, k := range docs.Keys() {
		funs = append(funs, value.Str(k))
	}
	slices.Sort(funs)
	for _, fun := range funs {
		if p.session.Show.Wanted() != "" {
			if err := p.session.Show.Show(value.DictOf(fun, docs.At(fun)), "nested", output.Call{}); err != nil {
				return err
			}
			continue
		}
		p.say("%s:\n%s\n\n", fun, strings.ReplaceAll(value.Str(docs.At(fun)), "\x1b", "?"))
	}
	return nil
}
