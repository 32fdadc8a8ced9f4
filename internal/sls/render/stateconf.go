package render

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

// StateConf is what the renderer stateconf has collected from the SLS files of
// a run: the arguments of each stateconf.set, which later files see and may
// have extended. Its zero value is ready for use; a run has one.
type StateConf struct {
	conf, ext *value.Dict
}

// stateconf is one run of the renderer over a file, by the options that
// follow its name:
//
//	-G  no goal state, which requires all states of the file
//	-o  every state requires the one before it
//	-s  a start state, which the first state of the file requires
//	-p  the input is high data, made by the renderer before this one
type stateconf struct {
	req              *Request
	kept             *StateConf
	start, ordered   bool
	goal             bool
	function, module string
}

func init() { steps.Register("stateconf", renderStateconf) }

// renderStateconf renders a file with two further renderers, one for the
// template and one for data, and makes names that begin with a dot local to the
// file. The rest of the template sees what stateconf.set states above the line
// "end of state config", or in other files, have set.
func renderStateconf(ctx context.Context, r *Renderer, req *Request, in any, arg string) (any, error) {
	s := &stateconf{req: req, kept: req.StateConf, goal: true, function: firstOf(req.Opts.Str("stateconf_state_func"), "stateconf.set")}
	s.module = moduleOf(s.function)
	if s.kept == nil {
		s.kept = &StateConf{}
	}
	if s.kept.conf == nil {
		s.kept.conf, s.kept.ext = value.NewDict(0), value.NewDict(0)
	}
	piped := false
	words := strings.Fields(arg)
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		for _, o := range words[0][1:] {
			switch o {
			case 'G':
				s.goal = false
			case 'o':
				s.ordered = true
			case 's':
				s.start = true
			case 'p':
				piped = true
			default:
				return nil, s.fail("stateconf has no option -%c; it has -G, -o, -s and -p", o)
			}
		}
		words = words[1:]
	}
	if piped {
		return s.process(in, false)
	}
	if len(words) == 0 {
		words = []string{"yaml", ".", "jinja"}
	}
	i := slices.Index(words, ".")
	if i < 1 || i == len(words)-1 {
		return nil, s.fail("stateconf takes two renderers with a dot between them, as in #!stateconf yaml . jinja")
	}
	data, template := words[:i], words[i+1:]
	if s.ordered && data[0] != "yaml" {
		return nil, s.fail("Implicit ordering is only supported if the yaml renderer is used!")
	}
	read, ok := steps.Lookup(data[0])
	if !ok {
		return nil, unknownRenderer(req, data[0], arg)
	}
	expand, ok := steps.Lookup(template[0])
	if !ok {
		return nil, unknownRenderer(req, template[0], arg)
	}
	text, err := asText(req, in, "stateconf")
	if err != nil {
		return nil, err
	}
	fill := func(text string, more *value.Dict, extract bool) (any, error) {
		q := *req
		q.Source = []byte(text)
		q.Context = value.DictOf("sls_dir", s.slsDir())
		q.Context.Update(more)
		q.Context.Update(req.Context)
		out, err := expand(ctx, r, &q, text, strings.Join(template[1:], " "))
		if err != nil {
			return nil, err
		}
		high, err := read(ctx, r, &q, out, strings.Join(data[1:], " "))
		if err != nil {
			return nil, err
		}
		return s.process(high, extract)
	}
	marker, err := pyre.Compile(firstOf(req.Opts.Str("stateconf_end_marker"), `#\s*-+\s*end of state config\s*-+`), 0)
	if err != nil {
		return nil, s.fail("stateconf_end_marker: %v", err)
	}
	m, err := marker.Search(text)
	if err != nil {
		return nil, s.fail("stateconf_end_marker: %v", err)
	}
	if m != nil {
		begin, _ := m.Span(0)
		if _, err := fill(string([]rune(text)[:begin]), nil, true); err != nil {
			return nil, err
		}
	}
	seen := value.NewDict(s.kept.conf.Len())
	for id, v := range s.kept.conf.All() {
		seen.Set(strings.TrimPrefix(value.Str(id), req.SLS+"::"), v)
	}
	return fill(text, seen, false)
}

func firstOf(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func moduleOf(state string) string {
	m, _, _ := strings.Cut(state, ".")
	return m
}

func (s *stateconf) fail(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), Name: s.req.name(), Line: 1}
}

// slsDir returns sls_dir as templates see it.
func (s *stateconf) slsDir() string {
	if !strings.Contains(s.req.SLS, ".") {
		return firstOf(s.req.SLS, ".")
	}
	return firstOf(parent(strings.ReplaceAll(s.req.SLS, ".", "/")), ".")
}

// process converts high data into the states of the file.
func (s *stateconf) process(in any, extract bool) (any, error) {
	in = value.DeepCopy(in)
	high, ok := in.(*value.Dict)
	if !ok {
		return in, nil // the compiler reports the error
	}
	for id, body := range high.Clone().All() {
		if fun, ok := body.(string); ok {
			high.Set(id, value.DictOf(fun, &value.List{}))
		}
	}
	if err := s.relativeFiles(high); err != nil {
		return nil, err
	}
	if !extract && s.ordered {
		if err := s.order(high); err != nil {
			return nil, err
		}
	}
	if s.start {
		if err := s.addStart(high); err != nil {
			return nil, err
		}
	}
	if !extract && s.goal {
		if err := s.addGoal(high); err != nil {
			return nil, err
		}
	}
	if err := s.rename(high, false); err != nil {
		return nil, err
	}
	s.extract(high, false)
	return high, nil
}

// relativeFiles completes names of SLS files that begin with a dot.
func (s *stateconf) relativeFiles(high *value.Dict) (err error) {
	absolute := func(v any) any {
		name, ok := v.(string)
		if !ok || !strings.HasPrefix(name, ".") || err != nil {
			return v
		}
		var out string
		out, err = s.absolute(name, s.req.SLS)
		return out
	}
	if l, ok := high.At("include").(*value.List); ok {
		for i, it := range l.Items {
			env, name := any(s.req.Saltenv), it
			if d, ok := it.(*value.Dict); ok && d.Len() > 0 {
				env, name = d.Entry(0)
			}
			if to := absolute(name); !value.Equal(to, name) {
				l.Items[i] = value.DictOf(env, to)
			}
		}
	}
	for _, it := range high.List("exclude") {
		if d, ok := it.(*value.Dict); ok && d.Has("sls") {
			d.Set("sls", absolute(d.At("sls")))
		}
	}
	return err
}

// absolute resolves a name that begins with dots, each of which goes one
// level up from an SLS.
func (s *stateconf) absolute(name, sls string) (string, error) {
	rest := strings.TrimLeft(name, ".")
	up := len(name) - len(rest)
	parts := strings.Split(sls, ".")
	if up > len(parts) {
		return "", s.fail("Attempted relative include goes beyond top level package")
	}
	return strings.Join(append(slices.Clone(parts[:len(parts)-up]), rest), "."), nil
}

// local makes an id that begins with a dot local to this file.
func (s *stateconf) local(id string) (string, error) {
	if strings.Contains(id, "::") {
		return s.absolute(id, s.req.SLS)
	}
	full, err := s.absolute(id, s.req.SLS+".")
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		full = full[:i] + "::" + full[i+1:]
	}
	return full, err
}

// chunk is one state of a file.
type chunk struct {
	id, state any
	body      *value.Dict
	args      *value.List
}

// chunks returns the states of high data, without those under the ids named.
func chunks(high *value.Dict, without ...string) (out []chunk) {
	for id, v := range high.All() {
		name, _ := id.(string)
		body, ok := v.(*value.Dict)
		if !ok || strings.HasPrefix(name, "__") || slices.Contains(without, name) {
			continue
		}
		for state, args := range body.All() {
			if t, _ := state.(string); strings.HasPrefix(t, "__") {
				continue
			}
			l, _ := args.(*value.List)
			out = append(out, chunk{id, state, body, l})
		}
	}
	return out
}

// named calls do for each entry of the named requisites, a mapping of one state
// to an id.
func (c chunk) named(names []string, do func(entry *value.Dict, state, id any)) {
	if c.args == nil {
		return
	}
	for _, it := range c.args.Items {
		arg, ok := it.(*value.Dict)
		if !ok || arg.Len() == 0 {
			continue
		}
		key, v := arg.Entry(0)
		if name, _ := key.(string); !slices.Contains(names, name) {
			continue
		}
		l, _ := v.(*value.List)
		if l == nil {
			continue
		}
		for _, it := range l.Items {
			if entry, ok := it.(*value.Dict); ok && entry.Len() > 0 {
				state, id := entry.Entry(0)
				do(entry, state, id)
			}
		}
	}
}

// rename gives ids that begin with a dot their full names, also in requisites.
func (s *stateconf) rename(high *value.Dict, extend bool) (err error) {
	if d, ok := high.At("extend").(*value.Dict); ok && !extend {
		if err := s.rename(d, true); err != nil {
			return err
		}
	}
	relations := []string{"require", "require_in", "watch", "watch_in", "use", "use_in", "listen", "listen_in", "onchanges", "onchanges_in",
		"onfail", "onfail_in"}
	for _, c := range chunks(high, "include", "exclude") {
		c.named(relations, func(entry *value.Dict, state, id any) {
			name, ok := id.(string)
			if !ok || !strings.HasPrefix(name, ".") || err != nil {
				return
			}
			var full string
			full, err = s.local(name)
			entry.Set(state, full)
		})
	}
	for _, id := range high.Keys() {
		name, ok := id.(string)
		if !ok || !strings.HasPrefix(name, ".") || err != nil {
			continue
		}
		full, err := s.local(name)
		if err != nil {
			return err
		}
		if high.Has(full) {
			return s.fail("Can't rename state id(%s) into %s because the later already exists!", name, full)
		}
		body := high.At(name)
		for _, c := range chunks(value.DictOf(name, body)) {
			if c.args == nil || moduleOf(value.Str(c.state)) == s.module {
				continue
			}
			if !slices.ContainsFunc(c.args.Items, isName) {
				c.args.Items = slices.Insert(c.args.Items, 0, any(value.DictOf("name", name[1:])))
			}
		}
		high.Delete(name)
		high.Set(full, body)
	}
	return err
}

func isName(v any) bool {
	d, ok := v.(*value.Dict)
	if !ok || d.Len() == 0 {
		return false
	}
	k, _ := d.Entry(0)
	return k == "name"
}

// order makes every state require the one before it.
func (s *stateconf) order(high *value.Dict) error {
	requires := []string{"require", "watch", "listen", "onchanges", "onfail"}
	requiredBy := []string{"require_in", "watch_in", "listen_in", "onchanges_in", "onfail_in"}
	tag := func(id, state any) string { return value.Str(id) + ":" + moduleOf(value.Str(state)) }
	all := chunks(high, "include", "exclude")
	after, before := map[string]bool{}, map[string]bool{}
	for _, c := range all {
		after[tag(c.id, c.state)] = true
	}
	var last *value.Dict
	for _, c := range all {
		if c.id == "extend" || c.args == nil {
			continue
		}
		own := tag(c.id, c.state)
		delete(after, own)
		for _, it := range c.args.Items {
			if d, ok := it.(*value.Dict); ok && d.Has("names") {
				return s.fail("'names' declaration(found in state id: %s) is not supported with implicitly ordered states! "+
					"You should generate the states in a template for-loop instead.", value.Str(c.id))
			}
		}
		var fault error
		c.named(requires, func(_ *value.Dict, state, id any) {
			if t := tag(id, state); after[t] && fault == nil {
				fault = s.fail("State(%s) can't require/watch/listen/onchanges/onfail a state(%s) defined after it!", own, t)
			}
		})
		c.named(requiredBy, func(_ *value.Dict, state, id any) {
			if t := tag(id, state); before[t] && fault == nil {
				fault = s.fail("State(%s) can't require_in/watch_in/listen_in/onchanges_in/onfail_in a state(%s) defined before it!", own, t)
			}
		})
		if fault != nil {
			return fault
		}
		if last != nil {
			addRequire(c.args, last)
		}
		before[own] = true
		last = value.DictOf(moduleOf(value.Str(c.state)), c.id)
	}
	return nil
}

// addRequire inserts a requirement before those of a state.
func addRequire(args *value.List, need *value.Dict) {
	for _, it := range args.Items {
		d, ok := it.(*value.Dict)
		if !ok {
			continue
		}
		if l, ok := d.At("require").(*value.List); ok {
			l.Items = slices.Insert(l.Items, 0, any(need))
			return
		}
	}
	args.Append(value.DictOf("require", value.ListOf(need)))
}

// addStart adds the state that the first one of the file requires.
func (s *stateconf) addStart(high *value.Dict) error {
	id := firstOf(s.req.Opts.Str("stateconf_start_state"), ".start")
	if high.Has(id) {
		return s.fail("Can't generate start state(%s)! The same state id already exists!", id)
	}
	if high.Len() == 0 {
		return nil
	}
	for _, c := range chunks(high, "include", "exclude", "extend") {
		if c.body.Has("__sls__") && c.body.At("__sls__") != s.req.SLS {
			continue
		}
		first := value.DictOf(moduleOf(value.Str(c.state)), c.id)
		high.Set(id, value.DictOf(s.function, value.ListOf(value.DictOf("require_in", value.ListOf(first)))))
		return nil
	}
	return s.fail("Can't determine the first state in the sls file!")
}

// addGoal adds the state that requires all others.
func (s *stateconf) addGoal(high *value.Dict) error {
	id := firstOf(s.req.Opts.Str("stateconf_goal_state"), ".goal")
	if high.Has(id) {
		return s.fail("Can't generate goal state(%s)! The same state id already exists!", id)
	}
	needs := &value.List{}
	for _, c := range chunks(high, "include", "exclude", "extend") {
		if !c.body.Has("__sls__") {
			needs.Append(value.DictOf(moduleOf(value.Str(c.state)), c.id))
		}
	}
	high.Set(id, value.DictOf(s.function, value.ListOf(value.DictOf("require", needs))))
	return nil
}

// extract stores what stateconf.set states set. An extend takes precedence.
func (s *stateconf) extract(high *value.Dict, extend bool) {
	for id, v := range high.All() {
		body, ok := v.(*value.Dict)
		if !ok {
			continue
		}
		if id == "extend" && !extend {
			s.extract(body, true)
			continue
		}
		args, ok := body.At(s.module).(*value.List)
		if !ok {
			if args, ok = body.At(s.function).(*value.List); !ok {
				continue
			}
		}
		to := s.kept.conf
		if extend {
			to = s.kept.ext
		}
		if !to.Has(id) {
			to.Set(id, value.NewDict(0))
		}
		set := to.At(id).(*value.Dict)
		for _, it := range args.Items {
			if d, ok := it.(*value.Dict); ok && d.Len() > 0 {
				set.Set(d.Entry(0))
			}
		}
		more, ok := s.kept.ext.At(id).(*value.Dict)
		if extend || !ok {
			continue
		}
		more = more.Clone()
		for _, k := range []string{"require", "watch", "listen", "onchanges", "onfail"} {
			if l, ok := more.At(k).(*value.List); ok {
				more.Set(k, &value.List{Items: append(slices.Clone(l.Items), set.List(k)...)})
			}
		}
		set.Update(more)
	}
}
