package states

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/sls/highstate"
	"brine/internal/sls/render"
)

// open prepares a session for the arguments.
func (m *mod) open(ctx context.Context, c *fn.Call, a args, defaultEnv string) (*highstate.Session, error) {
	var err error
	if path := word(a.Kwargs.At("localconfig")); path != "" {
		if c, err = m.deps.Configured(c, path); err != nil {
			return nil, fn.Errorf("cannot use localconfig: %w", err)
		}
	}
	req := highstate.Request{
		Saltenv: word(a.Kwargs.At("saltenv")), Pillarenv: word(a.Kwargs.At("pillarenv")),
		Test: a.test(c), StateEvents: a.StateEvents, StateTop: a.Top, Mock: a.Kwargs.Bool("mock"),
	}
	if _, ok := a.Kwargs.Get("pillarenv"); !ok && c.Config.Get("pillarenv_from_saltenv") == true {
		req.Pillarenv = req.Saltenv
	}
	if req.Pillar, err = m.override(ctx, a); err != nil {
		return nil, err
	}
	if req.Saltenv == "" && !value.Truth(c.Config.Get("saltenv")) {
		req.Saltenv = defaultEnv
	}
	if c.JID != "" {
		p := pauses{dir: filepath.Join(cacheDir(c), pauseDir)}
		req.Hold = func(ctx context.Context, id string) bool { return p.hold(ctx, c.JID, id) }
	}
	return highstate.Open(ctx, m.deps.Deps, c, req)
}

func word(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

// test decides whether a run is only a test; nil means that the option decides.
func (a *args) test(c *fn.Call) *bool {
	yes, no := true, false
	if a.Test != nil {
		if a.Test == false {
			return &no
		}
		return &yes
	}
	for k, v := range a.Kwargs.All() {
		if s, ok := k.(string); ok && strings.EqualFold(s, "test") && salt.IsTrue(v) {
			return &yes
		}
	}
	for _, r := range []fn.Reader{c.Grains, c.Pillar} {
		if r.Get("test") == true {
			return &yes
		}
	}
	return nil
}

// override reads the pillar that is merged over the minion's own.
func (m *mod) override(ctx context.Context, a args) (*value.Dict, error) {
	v, ok := a.Kwargs.Get("pillar")
	if !ok || v == nil {
		return nil, nil
	}
	enc := strings.ToLower(word(a.Kwargs.At("pillar_enc")))
	if enc == "" {
		d, ok := v.(*value.Dict)
		if !ok {
			return nil, fn.Invalidf("Pillar data must be formatted as a dictionary, unless pillar_enc is specified.")
		}
		return d, nil
	}
	v, err := m.decrypt(ctx, v, enc)
	if err != nil {
		return nil, fn.Errorf("cannot decrypt the pillar override: %w", err)
	}
	if s, ok := v.(string); ok {
		if v, err = yaml.Load([]byte(s), "pillar"); err != nil {
			return nil, fn.Errorf("cannot read the decrypted pillar override: %w", err)
		}
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fn.Invalidf("Pillar override was not passed as a dictionary")
	}
	return d, nil
}

// decrypt renders every string of a tree with a renderer.
func (m *mod) decrypt(ctx context.Context, v any, enc string) (any, error) {
	switch x := v.(type) {
	case string:
		out, err := m.deps.Renderer.Render(ctx, render.Request{Source: []byte(x), Default: enc})
		return out, err
	case *value.List:
		l := &value.List{}
		for _, it := range x.Items {
			w, err := m.decrypt(ctx, it, enc)
			if err != nil {
				return nil, err
			}
			l.Append(w)
		}
		return l, nil
	case *value.Dict:
		d := value.NewDict(x.Len())
		for k, it := range x.All() {
			w, err := m.decrypt(ctx, it, enc)
			if err != nil {
				return nil, err
			}
			d.Set(k, w)
		}
		return d, nil
	}
	return v, nil
}

// session is what a function requires of its session.
type session struct {
	fun string // name that other runs see
	env string // default environment
	of  pillarRule
}

// pillarRule is how a function treats pillar errors.
type pillarRule int

const (
	anyPillar    pillarRule = iota // ignores them
	listFaults                     // returns the list of errors
	failOnFaults                   // fails
)

// in runs a function in a session. If another run conflicts, the result is the
// list of conflicts.
func (m *mod) in(ctx context.Context, c *fn.Call, a args, want session, work func(*highstate.Session) (any, error)) (any, error) {
	leave, conflict := m.enter(ctx, c, a, want.fun)
	if conflict != nil {
		return conflict, nil
	}
	defer leave()
	s, err := m.open(ctx, c, a, want.env)
	if err != nil {
		return nil, err
	}
	switch want.of {
	case listFaults:
		if l := a.pillarFaults(c, s); l != nil {
			return l, nil
		}
	case failOnFaults:
		if err := a.pillarError(c, s); err != nil {
			return nil, err
		}
	}
	return work(s)
}

// pillarFaults returns the list of pillar errors with which a run ends, nil if
// there are none or the caller ignores them (force).
func (a *args) pillarFaults(c *fn.Call, s *highstate.Session) *value.List {
	errs := s.PillarErrors()
	if len(errs) == 0 || a.Kwargs.Bool("force") {
		return nil
	}
	c.SetRetcode(codePillar)
	return &value.List{Items: append([]any{"Pillar failed to render with the following messages:"}, errs...)}
}

// pillarError returns the same as an error, for functions that fail.
func (a *args) pillarError(c *fn.Call, s *highstate.Session) error {
	l := a.pillarFaults(c, s)
	if l == nil {
		return nil
	}
	return fn.Errorf("Pillar failed to render. Additional info follows:\n\n%s", output.Nested(&value.List{Items: l.Items[1:]}))
}

// faulty returns the result for SLS files that do not compile.
func faulty(c *fn.Call, faults []string) *value.List {
	c.SetRetcode(codeCompile)
	return value.Strings(faults)
}

// addExclude adds the caller's exclusions to high data.
func addExclude(high *value.Dict, v any) {
	if !value.Truth(v) {
		return
	}
	items := []any{}
	if l, ok := v.(*value.List); ok {
		items = append(items, l.Items...)
	} else {
		for _, name := range value.Split(v) {
			items = append(items, name)
		}
	}
	if have, ok := high.At("__exclude__").(*value.List); ok {
		have.Append(items...)
		return
	}
	high.Set("__exclude__", &value.List{Items: items})
}

func cacheDir(c *fn.Call) string { return word(c.Config.Get("cachedir")) }

// keep writes a value to the cache directory. Errors are only logged.
func keep(c *fn.Call, name string, v any) {
	as := atomicfile.As{Mode: 0o600, UID: -1, GID: -1, ReplaceLink: true}
	if err := atomicfile.ReplaceAs(filepath.Join(cacheDir(c), name), as, func(w io.Writer) error { return pack(w, v) }); err != nil {
		c.Log.Error("cannot cache the result of the state run", "path", name, "err", err)
	}
}

// pack encodes a value as msgpack, a mapping entry by entry: thousands of
// states are large.
func pack(w io.Writer, v any) error {
	d, ok := v.(*value.Dict)
	if !ok {
		b, err := msgpack.Marshal(v, msgpack.Wire)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	}
	const piece = 16 << 10
	b := msgpack.AppendMapHeader(make([]byte, 0, piece+piece/2), d.Len())
	for k, v := range d.All() {
		var err error
		for _, part := range []any{k, v} {
			if b, err = msgpack.Append(b, part, msgpack.Wire); err != nil {
				return err
			}
		}
		if len(b) < piece {
			continue
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	_, err := w.Write(b)
	return err
}

func cacheName(a args) (string, error) {
	name := "highstate"
	if v := word(a.Kwargs.At("cache_name")); v != "" {
		name = v
	}
	if strings.ContainsAny(name, "/\\\x00") {
		return "", fmt.Errorf("cache_name %q must not lead to another directory", name)
	}
	return name + ".cache.p", nil
}
