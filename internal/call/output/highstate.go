package output

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"brine/internal/py/value"
)

// stateSep separates the parts of a result's key: module, ID, name, function.
const stateSep = "_|-"

// changesIndent is the column of comments and changes in a state's block.
const changesIndent = 14

func init() { outputters.Register("highstate", (*Printer).highstate) }

// highstate shows the results of state runs: a block or line per state and a summary per minion.
func (p *Printer) highstate(data any, _ Call) (string, error) {
	return p.stateRuns(data, 1)
}

func (p *Printer) stateRuns(data any, level int) (string, error) {
	switch x := unwrapStates(data).(type) {
	case nil:
		return "None", nil
	case string:
		return p.clean(x), nil
	case *value.Dict:
		if isOrchestration(x) {
			x = x.Clone()
			x.Delete("retcode")
		}
		if p.opts.StateCompress {
			x = compressIDs(x)
		}
		var hosts []string
		for host, states := range x.All() {
			text, _, err := p.stateHost(value.Str(host), states, level)
			if err != nil {
				return "", err
			}
			hosts = append(hosts, text)
		}
		if len(hosts) == 0 {
			p.log.Error("Data passed to highstate outputter is not a valid highstate return: " + value.Repr(x))
		}
		return strings.Join(hosts, "\n"), nil
	}
	return "", errors.New("highstate needs a map of minions")
}

// unwrapStates removes the envelopes that runners and the job cache put around state results.
func unwrapStates(data any) any {
	for _, key := range []string{"return", "data"} {
		if d, ok := data.(*value.Dict); ok && d.Has(key) {
			data = d.At(key)
		}
	}
	if d, ok := data.(*value.Dict); ok && d.Len() == 1 {
		_, v := d.Entry(0)
		if e, ok := v.(*value.Dict); ok && e.Has("jid") && e.Has("fun") {
			if inner, ok := e.Dict("return").Get("data"); ok {
				return inner
			}
		}
	}
	return data
}

// isOrchestration reports whether data is the return of an orchestration, which has a retcode next
// to its single master.
func isOrchestration(d *value.Dict) bool {
	masters := 0
	for k := range d.All() {
		if s, ok := k.(string); ok && strings.HasSuffix(s, "_master") {
			masters++
		}
	}
	return masters == 1 && d.Has("retcode")
}

// stateHost renders what one minion returned and reports whether anything
// changed.
func (p *Printer) stateHost(host string, data any, level int) (text string, changed bool, err error) {
	r := stateRun{p: p, host: p.clean(host), color: green, level: level, counts: map[string]int{}}
	switch x := data.(type) {
	case bool, int64:
		r.plain(value.Str(x))
	case string:
		r.plain(value.SplitLines(x, false)...)
	case *value.List:
		r.compileErrors(x)
	case *value.Dict:
		if err := r.states(x); err != nil {
			return "", false, err
		}
	}
	head := p.pal.paint(r.color, r.host+":")
	return strings.Join(append([]string{head}, r.lines...), "\n"), r.changes > 0, nil
}

// stateRun collects the lines and counts of one minion.
type stateRun struct {
	p       *Printer
	host    string
	color   color // of the minion's name
	level   int   // depth of nested orchestrations, from 1
	lines   []string
	counts  map[string]int // states by result
	warned  int
	changes int
	serial  float64 // ms, sum of states run one after the other
	longest float64 // ms, longest state run in parallel
}

// plain shows the return of a function called by an orchestration; it always counts as a change.
func (r *stateRun) plain(lines ...string) {
	r.changes = 1
	for _, l := range lines {
		r.lines = append(r.lines, r.p.pal.paint(r.color, "    "+r.p.clean(l)))
	}
	r.color = cyan
}

func (r *stateRun) compileErrors(errs *value.List) {
	r.color = lightRed
	r.lines = append(r.lines, "    "+r.p.pal.paint(lightRed, "Data failed to compile:"))
	for _, e := range errs.Items {
		r.lines = append(r.lines, r.p.pal.paint(lightRed, "----------\n    "+r.p.clean(value.Str(e))))
	}
}

func (r *stateRun) states(data *value.Dict) error {
	type named struct {
		name string
		res  *value.Dict
	}
	var all []named
	var unordered []*value.Dict
	for k, v := range data.All() {
		d, ok := v.(*value.Dict)
		if !ok {
			continue
		}
		if d.Len() > 0 && !d.Has("__run_num__") && !value.Equal(k, "changes") {
			unordered = append(unordered, d)
		}
		if d.Has("result") {
			all = append(all, named{value.Str(k), d})
		}
	}
	for _, d := range slices.Backward(unordered) {
		r.lines = append(r.lines,
			"The State execution failed to record the order in which all states were executed. The state return missing data is:",
			r.p.clean(value.Pretty(d, 1)))
	}
	slices.SortStableFunc(all, func(a, b named) int {
		return cmp.Compare(a.res.Int("__run_num__"), b.res.Int("__run_num__"))
	})
	for _, s := range all {
		if err := r.state(s.name, s.res); err != nil {
			return err
		}
	}
	r.summary()
	return nil
}

// duration parses milliseconds, which some returns write as a string.
func duration(v any) float64 {
	switch x := v.(type) {
	case float64:
		return x
	case int64:
		return float64(x)
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(x, " ms")), 64)
		if err == nil && !math.IsNaN(f) {
			return f
		}
	}
	return 0
}

// state counts one result and shows it unless the options hide it.
func (r *stateRun) state(key string, res *value.Dict) error {
	o := &r.p.opts
	parts := strings.SplitN(key, stateSep, 4)
	for len(parts) < 4 {
		parts = append(parts, "")
	}
	names := 1
	if o.StateCompress && strings.HasPrefix(parts[2], compressedPrefix) {
		names = compressedCount(parts[1])
	}
	result := value.Str(res.At("result"))
	r.counts[result] += names
	if ms := duration(res.At("duration")); res.Has("__parallel__") {
		r.longest = max(r.longest, ms)
	} else {
		r.serial += ms
	}
	changed, changes, err := r.formatChanges(res)
	if err != nil {
		return err
	}
	if changed {
		merged := res.Dict("changes").Dict("compressed changes").Len()
		if names == 1 || merged == 0 {
			merged = 1
		}
		r.changes += merged
	}
	good := value.Truth(res.At("result"))
	if good && !changed && (o.StateDiff || !o.StateVerbose) {
		return nil
	}
	c := green
	if changed {
		c = cyan
	}
	switch result {
	case "False":
		c, r.color = red, red
	case "None":
		c, r.color = lightYellow, lightYellow
	}
	form := strings.ToLower(o.StateOutput)
	if strings.HasSuffix(form, "_id") {
		parts[2] = parts[1]
	}
	for i := range parts {
		parts[i] = r.p.clean(parts[i])
	}
	terse := false
	switch {
	case strings.HasPrefix(form, "filter"):
		terse = slices.Contains(o.StateTerse, result)
		if !terse && slices.Contains(o.StateExclude, result) {
			return nil
		}
	case strings.HasPrefix(form, "terse"):
		terse = true
	case strings.HasPrefix(form, "mixed"):
		terse = result != "False"
	case strings.HasPrefix(form, "changes"):
		terse = good && !changed
	}
	if terse {
		r.lines = append(r.lines, r.p.terseState(c, parts, res, result))
		return nil
	}
	r.block(c, parts, res, changes)
	return nil
}

// block shows one result in full.
func (r *stateRun) block(c color, parts []string, res *value.Dict, changes string) {
	pal := r.p.pal
	add := func(label, text string) {
		r.lines = append(r.lines, "    "+pal.paint(c, fmt.Sprintf("%8s: %s", label, text)))
	}
	r.lines = append(r.lines, pal.paint(c, "----------"))
	add("ID", parts[1])
	add("Function", parts[0]+"."+parts[3])
	if parts[1] != parts[2] {
		add("Name", parts[2])
	}
	add("Result", r.p.clean(value.Str(res.At("result"))))
	add("Comment", r.comment(res))
	if r.p.opts.StateProfile && res.Has("start_time") {
		add("Started", r.p.clean(value.Str(res.At("start_time"))))
		ms := ""
		if d, ok := res.Get("duration"); ok && !value.Equal(d, "") {
			ms = r.p.clean(value.Str(d)) + " ms"
		}
		add("Duration", ms)
	}
	r.lines = append(r.lines, pal.paint(c, "     Changes:   "+changes))
	if res.Has("warnings") {
		r.warned++
		text := wrapText(strings.Join(texts(res.At("warnings")), "\n"), 80, changesIndent)
		r.lines = append(r.lines, "   "+pal.paint(lightRed, " Warnings: "+strings.TrimLeftFunc(r.p.clean(text), pySpace)))
	}
}

// comment returns a state's comment with its further lines indented, and the additional data of some states.
func (r *stateRun) comment(res *value.Dict) string {
	text := strings.TrimFunc(r.p.clean(value.Str(res.At("comment"))), pySpace)
	text = strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", changesIndent))
	data, ok := res.Get("data")
	if !ok {
		return text
	}
	switch x := data.(type) {
	case *value.List:
		for _, it := range x.Items {
			text += " " + value.Str(it)
		}
	case *value.Dict:
		for k, v := range x.All() {
			text += "\n\t\t" + value.Str(k) + ": " + value.Str(v)
		}
	default:
		text += " " + value.Str(x)
	}
	return r.p.clean(text)
}

// formatChanges renders the changes of a state. Those of an orchestrated state run are state
// results themselves.
func (r *stateRun) formatChanges(res *value.Dict) (changed bool, text string, err error) {
	changes := res.At("changes")
	switch res.At("name") {
	case "state.orch", "state.orchestrate", "state.sls":
		inner, err := r.p.stateRuns(changes, r.level+1)
		pad := strings.Repeat(" ", changesIndent*r.level)
		return true, pad + strings.ReplaceAll("\n"+inner, "\n", "\n"+pad), err
	}
	if !value.Truth(changes) {
		return false, "", nil
	}
	d, ok := changes.(*value.Dict)
	if !ok {
		return true, "Invalid Changes data: " + r.p.clean(value.Str(changes)), nil
	}
	if ret := d.Dict("ret"); ret != nil && value.Equal(d.At("out"), "highstate") {
		for host, data := range ret.All() {
			inner, some, err := r.p.stateHost(value.Str(host), data, r.level)
			if err != nil {
				return false, "", err
			}
			for _, line := range value.SplitLines(inner, false) {
				text += "\n" + strings.Repeat(" ", changesIndent) + line
			}
			changed = changed || some
		}
		return changed, text, nil
	}
	text, err = r.p.nested(d, Call{Indent: changesIndent})
	return true, "\n" + strings.TrimRightFunc(text, pySpace), err
}

// terseState shows one result on a line. As in Salt, warnings precede it without a newline.
func (p *Printer) terseState(c color, parts []string, res *value.Dict, result string) string {
	word := "Clean"
	if value.Truth(res.At("changes")) {
		word = "Changed"
	}
	switch result {
	case "False":
		word = "Failed"
	case "None":
		word = "Differs"
	}
	var b strings.Builder
	if res.Has("warnings") {
		b.WriteString(p.pal.paint(lightRed, "Warnings:\n"+p.clean(strings.Join(texts(res.At("warnings")), "\n"))))
		if p.opts.StateTabular {
			b.WriteByte('\n')
		}
	}
	timed := p.opts.StateProfile && res.Has("start_time")
	start, ms := p.clean(value.Str(res.At("start_time"))), p.clean(value.Str(res.At("duration")))
	if p.opts.StateTabular {
		line := ""
		if timed {
			line = fmt.Sprintf("%s [%7s ms] ", start, ms)
		}
		line += fmt.Sprintf("%10s.%-10s %-7s   Name: %s", parts[0], parts[3], word, parts[2])
		b.WriteString(p.pal.paint(c, line))
		return b.String()
	}
	line := fmt.Sprintf(" Name: %s - Function: %s.%s - Result: %s", parts[2], parts[0], parts[3], word)
	if timed {
		line += " - Started: " + start + " - Duration: " + ms + " ms"
	}
	b.WriteString(" " + p.pal.paint(c, line))
	return b.String()
}

// texts returns the strings of a list, or of a single value given instead of a list.
func texts(v any) []string {
	l, ok := items(v)
	if !ok {
		l = []any{v}
	}
	out := make([]string, len(l))
	for i, it := range l {
		out[i] = value.Str(it)
	}
	return out
}
