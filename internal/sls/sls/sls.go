// Package sls compiles SLS files: from the rendered data of each file, through high data
// (everything that applies to a minion, by id), to low chunks, the list of states in the order in
// which they run.
//
//	high, errs := compiler.Render(ctx, matches)    // include, exclude, extend collected; order assigned
//	chunks, errs := compiler.Low(high)             // extend, requisite_in, exclude applied; sorted
//
// High data and chunks have exactly Salt's structure, because state.show_highstate and
// state.show_lowstate show them. The passes (Extend, Verify, RequisiteIn, Exclude, Chunks) can be
// called separately, because some functions of Salt skip some of them.
//
// Errors in SLS files are collected: each is an *Error with a text that users of Salt know, and
// its place.
//
// The package reads no file and knows no template language: a Source provides the data of one SLS.
// It neither modifies nor keeps that data.
package sls

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"brine/internal/base/target"
	"brine/internal/base/textedit"
	"brine/internal/py/value"
)

// Source provides the rendered SLS files of the environments.
type Source interface {
	// States returns the sorted names of the SLS files of an environment; ok is
	// false if there is no such environment.
	States(ctx context.Context, saltenv string) (names []string, ok bool)
	// Load renders one SLS. The error wraps ErrNotFound if there is no such SLS;
	// any other error is the reason why it could not be rendered.
	Load(ctx context.Context, name, saltenv string) (File, error)
}

// File is a rendered SLS.
type File struct {
	// Path is the path on the file server: "web/init.sls".
	Path string
	// Data is the rendered data. The compiler owns it.
	Data any
}

// ErrNotFound means that no environment has the SLS.
var ErrNotFound = errors.New("there is no such SLS")

// Match is the names or globs that apply to the minion in one environment.
type Match struct {
	Saltenv string
	SLS     []string
}

// Options of the compiler.
type Options struct {
	// AutoOrder gives every state without an order one by its position.
	AutoOrder bool `salt:"state_auto_order" default:"true" doc:"run states in the order in which they are written"`
	// DisabledRequisites are requisites that are ignored.
	DisabledRequisites []string `salt:"disabled_requisites" default:"[]" doc:"requisites that are ignored"`
}

func (o Options) disabled(requisite string) bool {
	for _, d := range o.DisabledRequisites {
		if d == requisite {
			return true
		}
	}
	return false
}

// Error is a fault in an SLS.
type Error struct {
	// Text describes the error.
	Text string
	// SLS and Saltenv name the faulty file, "" if unknown.
	SLS, Saltenv string
	// ID is the faulty state, "" if unknown.
	ID string

	missing string // the missing SLS, "" for other errors
}

func (e *Error) Error() string { return e.Text }

// maxFiles and maxDepth bound a compilation: the number of files and the
// nesting of includes.
const (
	maxFiles = 20_000
	maxDepth = 500
)

// Compiler compiles SLS files into high data. It keeps the order counter across
// calls and must not be used concurrently.
type Compiler struct {
	src    Source
	opts   Options
	iorder int64
	done   map[string]bool // rendered files, as "saltenv:sls"
	match  map[string]bool // environments that apply to the minion
	order  []string        // the same, in order
	avail  map[string]*listing
	errs   []*Error
}

// New returns a compiler of the SLS files of src.
func New(src Source, o Options) *Compiler {
	return &Compiler{src: src, opts: o, iorder: 10000, done: map[string]bool{}, match: map[string]bool{}, avail: map[string]*listing{}}
}

// listing is the names in an environment.
type listing struct {
	names []string
	has   map[string]bool
}

// suggest returns a line with the names that a misspelt one may mean, or "".
func (l *listing) suggest(name string) string {
	if l == nil {
		return ""
	}
	near := textedit.Nearest(name, l.names)
	if dotted := strings.ReplaceAll(strings.TrimSuffix(name, ".sls"), "/", "."); dotted != name && l.has[dotted] {
		near = []string{dotted}
	}
	if len(near) == 0 {
		return ""
	}
	return "\nDid you mean " + strings.Join(near, " or ") + "?"
}

// filter returns the names that match a glob.
func (l *listing) filter(pattern string) []string {
	if l == nil {
		return nil
	}
	if !strings.ContainsAny(pattern, "*?[") {
		if l.has[pattern] {
			return []string{pattern}
		}
		return nil
	}
	var out []string
	g := target.ParseGlob(pattern)
	for _, n := range l.names {
		if g.Match(n) {
			out = append(out, n)
		}
	}
	return out
}

// listing returns nil if there is no such environment. base always exists.
func (c *Compiler) listing(ctx context.Context, saltenv string) *listing {
	if l, ok := c.avail[saltenv]; ok {
		return l
	}
	var l *listing
	if names, ok := c.src.States(ctx, saltenv); ok || saltenv == "base" {
		l = &listing{names: names, has: make(map[string]bool, len(names))}
		for _, n := range names {
			l.has[n] = true
		}
	}
	c.avail[saltenv] = l
	return l
}

func (c *Compiler) fault(e *Error) { c.errs = append(c.errs, e) }

func (c *Compiler) faultf(f place, id, format string, args ...any) {
	c.fault(&Error{Text: fmt.Sprintf(format, args...), SLS: f.sls, Saltenv: f.env, ID: id})
}

// place is the SLS being processed.
type place struct{ env, sls string }

func (p place) String() string { return p.env + ":" + p.sls }

// Render renders what applies to a minion, with all includes, into high data.
func (c *Compiler) Render(ctx context.Context, matches []Match) (*value.Dict, []*Error) {
	high := value.NewDict(0)
	c.errs = nil
	for _, m := range matches {
		if !c.match[m.Saltenv] {
			c.match[m.Saltenv] = true
			c.order = append(c.order, m.Saltenv)
		}
	}
	for _, m := range matches {
		for _, pattern := range m.SLS {
			c.renderMatch(ctx, high, m.Saltenv, pattern)
		}
	}
	cleanExtends(high)
	return high, c.errs
}

// renderMatch adds the files of one line of the top file.
func (c *Compiler) renderMatch(ctx context.Context, high *value.Dict, saltenv, pattern string) {
	l := c.listing(ctx, saltenv)
	if l == nil {
		c.fault(&Error{Text: fmt.Sprintf("No matching salt environment for environment '%s' found", saltenv)})
	}
	names := l.filter(pattern)
	if len(names) == 0 {
		names = []string{pattern} // the list may be older than the file
	}
	for _, name := range names {
		f := place{saltenv, name}
		if c.done[f.String()] {
			continue
		}
		before := len(c.errs)
		data := c.render(ctx, f, 0)
		if data.Len() > 0 {
			c.merge(high, data)
		}
		for _, e := range c.errs[before:] {
			if e.missing == pattern {
				e.Text = fmt.Sprintf("No matching sls found for '%s' in env '%s'", pattern, saltenv) + l.suggest(pattern)
			}
		}
	}
}

// RenderData compiles the data of one SLS without a file. Includes are relative
// to name.
func (c *Compiler) RenderData(ctx context.Context, name, saltenv string, data any) (*value.Dict, []*Error) {
	c.errs = nil
	high := c.data(ctx, place{saltenv, name}, File{Data: data}, 0)
	return high, c.errs
}

// render returns the high data of one SLS with all its includes.
func (c *Compiler) render(ctx context.Context, f place, depth int) *value.Dict {
	switch {
	case ctx.Err() != nil:
		c.faultf(f, "", "Rendering SLS '%s' failed: %v", f, context.Cause(ctx))
		return nil
	case depth > maxDepth:
		c.faultf(f, "", "SLS '%s' is included through more than %d others", f, maxDepth)
		return nil
	case len(c.done) >= maxFiles:
		c.faultf(f, "", "more than %d SLS files apply to this minion", maxFiles)
		return nil
	}
	file, err := c.src.Load(ctx, f.sls, f.env)
	switch {
	case errors.Is(err, ErrNotFound):
		c.fault(&Error{Text: fmt.Sprintf("Specified SLS %s in saltenv %s is not available on the salt master or through a configured fileserver", f.sls,
			f.env), missing: f.sls})
		return nil
	case err != nil:
		c.done[f.String()] = true
		var raised interface{ Unexpected() bool }
		if errors.As(err, &raised) && raised.Unexpected() {
			c.faultf(place{}, "", "Rendering SLS %s failed, render error: %v", f.sls, err)
			return nil
		}
		c.faultf(place{}, "", "Rendering SLS '%s' failed: %v", f, err)
		return nil
	}
	c.done[f.String()] = true
	return c.data(ctx, f, file, depth)
}

func (c *Compiler) data(ctx context.Context, f place, file File, depth int) *value.Dict {
	if !value.Truth(file.Data) {
		return nil
	}
	state, ok := file.Data.(*value.Dict)
	if !ok {
		c.faultf(f, "", "SLS %s does not render to a dictionary\n(it is a %s)", f.sls, value.TypeName(file.Data))
		return nil
	}
	var include []any
	if inc, ok := state.Get("include"); ok {
		if l, isList := inc.(*value.List); isList {
			include = l.Items
			state.Delete("include")
		} else {
			c.faultf(f, "include", "Include Declaration in SLS %s is not formed as a list", f.sls)
		}
	}
	c.takeExtend(state, f)
	c.takeExclude(state, f)
	c.declare(state, f)
	for _, it := range include {
		c.include(ctx, state, f, file.Path, it, depth)
	}
	c.giveOrder(state)
	return state
}

// merge adds the ids of one SLS to those of others.
func (c *Compiler) merge(high, state *value.Dict) {
	for _, key := range []string{"__extend__", "__exclude__"} {
		if l, ok := state.At(key).(*value.List); ok {
			state.Delete(key)
			sublist(high, key).Append(l.Items...)
		}
	}
	for id, body := range state.All() {
		old, ok := high.Get(id)
		if ok && !value.Equal(old, body) {
			a, b := placeOf(old), placeOf(body)
			c.faultf(b, value.Str(id), "Detected conflicting IDs, SLS IDs need to be globally unique.\n"+
				"    The conflicting ID is '%s' and is found in SLS '%s' and SLS '%s'", value.Str(id), a, b)
		}
		high.Set(id, body)
	}
}

func placeOf(body any) place {
	d, _ := body.(*value.Dict)
	return place{value.Str(d.At("__env__")), value.Str(d.At("__sls__"))}
}

// sublist returns the list under a key, and creates it if necessary.
func sublist(d *value.Dict, key string) *value.List {
	l, ok := d.At(key).(*value.List)
	if !ok {
		l = &value.List{}
		d.Set(key, l)
	}
	return l
}

// hidden reports whether a key of high data is internal.
func hidden(key any) bool {
	s, ok := key.(string)
	return ok && strings.HasPrefix(s, "__")
}

// firstKey returns the first key of a mapping and its value.
func firstKey(d *value.Dict) (key, val any) {
	for k, v := range d.All() {
		return k, v
	}
	return nil, nil
}
