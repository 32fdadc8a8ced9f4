package output

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"brine/internal/py/value"
)

// profileName is the width to which state names are cut.
const profileName = 60

// profileLabels are the column headings. The last is also the minimum width of the durations.
var profileLabels = []string{"name", "mod.fun", "duration (ms)"}

var errNoProfile = errors.New("only state results can be shown as a profile")

// step is a state in a profile.
type step struct {
	name, fun string
	ms        float64
}

func init() { outputters.Register("profile", (*Printer).profile) }

// profile shows the states of all minions and their durations as one table. Rows are sorted by
// duration as a string.
func (p *Printer) profile(data any, c Call) (string, error) {
	steps, err := steps(data)
	if err != nil || len(steps) == 0 {
		return "", err
	}
	w := len(profileLabels[2])
	for _, s := range steps {
		w = max(w, len(strconv.FormatFloat(s.ms, 'f', 4, 64)))
	}
	rows := make([][]string, len(steps))
	for i, s := range steps {
		rows[i] = []string{p.clean(s.name), p.clean(s.fun), fmt.Sprintf("%*.4f", w, s.ms)}
	}
	slices.SortFunc(rows, func(a, b []string) int {
		if c := strings.Compare(a[2], b[2]); c != 0 {
			return c
		}
		return slices.Compare(a, b)
	})
	t := tableWriter{p: p}
	t.draw(append([][]string{profileLabels}, rows...), true, c.Indent+4)
	return strings.Join(t.lines, "\n"), nil
}

// steps collects the states of all minions.
func steps(data any) ([]step, error) {
	minions, ok := data.(*value.Dict)
	if !ok {
		return nil, errNoProfile
	}
	var out []step
	for _, ret := range minions.All() {
		switch x := ret.(type) {
		case *value.Dict:
			for id, result := range x.All() {
				s, err := newStep(value.Str(id), result)
				if err != nil {
					return nil, err
				}
				out = append(out, s)
			}
		case *value.List: // errors before any state ran
			for _, it := range x.Items {
				out = append(out, unnamed(value.Str(it)))
			}
		case string: // iterated by character, as in Salt
			for _, r := range x {
				out = append(out, unnamed(string(r)))
			}
		default:
			return nil, fmt.Errorf("%w, not %s", errNoProfile, value.TypeName(ret))
		}
	}
	return out, nil
}

// unnamed returns a step of which only the id is known.
func unnamed(id string) step { return step{name: "<>", fun: function(id), ms: -1} }

// function returns module and function of a state id.
func function(id string) string {
	parts := strings.Split(id, "_|-")
	return parts[0] + "." + parts[len(parts)-1]
}

func newStep(id string, result any) (step, error) {
	d, ok := result.(*value.Dict)
	if !ok {
		return step{name: cut(id), fun: function(id), ms: -1}, nil
	}
	s := unnamed(id)
	name, ok := d.Get("name")
	if !ok {
		name = d.At("__id__")
	}
	switch x := name.(type) {
	case nil:
	case string:
		s.name = cut(x)
	default:
		return step{}, fmt.Errorf("%w: a name is %s", errNoProfile, value.TypeName(name))
	}
	if ms, ok := d.Get("duration"); ok {
		var err error
		if s.ms, err = strconv.ParseFloat(value.Str(ms), 64); err != nil {
			return step{}, fmt.Errorf("%w: a duration is %s", errNoProfile, value.Repr(ms))
		}
	}
	return s, nil
}

// cut shortens a long name.
func cut(name string) string {
	if utf8.RuneCountInString(name) <= profileName {
		return name
	}
	return string([]rune(name)[:profileName-3]) + "..."
}
