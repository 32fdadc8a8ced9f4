// Package compat finds what a Salt installation uses and Brine lacks: options, SLS files that do
// not render, states, functions, arguments, renderers, and modules in Python that are not run, each
// with file and line. It reads files and renders SLS files. It runs no state, and no function that
// inspects or changes a machine.
//
// The files may be hostile: sizes, depths and times are bounded, loops of links end, and names are
// shown without control characters.
package compat

import (
	"context"
	"log/slog"
	"slices"

	"brine/internal/daemons/config"
	"brine/internal/sls/render"
)

// Config selects what to check.
type Config struct {
	// ConfigDir is the directory of Salt's configuration, "" for none.
	ConfigDir string
	// Trees and Pillars are directories of SLS files and of pillar files of the environment base.
	// If empty, those of the master's configuration are checked.
	Trees, Pillars []string
	// Minions enables rendering of the SLS files for the minions in the master's cache.
	Minions bool
	// Stock is the Python that runs stock Salt, whose lowstates are compared, "" for none.
	// StockPath is added to its module search path.
	Stock, StockPath string
	// Progress, if set, is called with the current step.
	Progress func(what string, done, total int)
	Getenv   func(string) string
	Log      *slog.Logger
}

// checker collects the findings.
type checker struct {
	ctx      context.Context
	cfg      Config
	known    *known
	renderer *render.Renderer // for parsing
	findings map[string]*Finding
	order    []string
	sources  map[string]bool // SLS files
	// pythonSLS are the SLS files that are Python.
	pythonSLS map[string][]byte
	master    *master
	configs   []*config.Tree
	roots     []root
	lines     lineIndex
	report    Report
}

// Check returns the report. Only an invalid Config and the end of ctx are errors; a file that
// cannot be read is a finding.
func Check(ctx context.Context, cfg Config) (*Report, error) {
	k, err := newKnown()
	if err != nil {
		return nil, err
	}
	c := &checker{ctx: ctx, cfg: cfg, known: k, renderer: render.New(render.Options{Log: cfg.Log}), findings: map[string]*Finding{},
		sources: map[string]bool{}, pythonSLS: map[string][]byte{}}
	if err := (installed{c}).configurations(); err != nil {
		return nil, err
	}
	if err := c.findRoots(); err != nil {
		return nil, err
	}
	for _, r := range c.roots {
		if err := c.findPython(r.dir); err != nil {
			return nil, err
		}
	}
	for _, t := range c.configs {
		installed{c}.named(t)
	}
	for i, r := range c.roots {
		c.progress("search "+r.dir, i, len(c.roots))
		if err := c.scan(r); err != nil {
			return nil, err
		}
	}
	if err := c.reactions(); err != nil {
		return nil, err
	}
	if cfg.Minions {
		if err := c.renderAll(); err != nil {
			return nil, err
		}
	}
	c.reportPython()
	installed{c}.notSearched()
	bad := map[string]bool{}
	for _, key := range c.order {
		f := c.findings[key]
		c.report.Findings = append(c.report.Findings, *f)
		for _, p := range f.Places {
			bad[p.File] = bad[p.File] || f.Missing
		}
	}
	c.report.SLS = len(c.sources)
	for path := range c.sources {
		if !bad[path] {
			c.report.Good++
		}
	}
	c.report.sort()
	return &c.report, ctx.Err()
}

func (c *checker) progress(what string, done, total int) {
	if c.cfg.Progress != nil {
		c.cfg.Progress(what, done, total)
	}
}

// add records a finding. If the finding exists, its places and minions are added to it.
func (c *checker) add(f Finding) {
	key := f.Kind + " " + f.Name
	if f.Kind == KindOption && !f.Missing {
		key += " " + f.Why // the remarks about one option are about its parts
	}
	if slices.Contains([]string{KindOption, KindRender, KindNote, KindUnread, KindLowstate, KindTopFile}, f.Kind) {
		key += " " + f.first().File
	}
	old := c.findings[key]
	if old == nil {
		f.Uses = max(1, len(f.Places))
		c.findings[key] = &f
		c.order = append(c.order, key)
		return
	}
	for _, p := range f.Places {
		switch {
		case len(old.Places) >= maxPlaces: // looking up each of many more places would take too long
			old.Uses++
		case !slices.Contains(old.Places, p):
			old.Uses++
			old.Places = append(old.Places, p)
		}
	}
	old.Missing = old.Missing || f.Missing
	for _, m := range f.Minions {
		if !slices.Contains(old.Minions, m) {
			old.Minions = append(old.Minions, m)
		}
	}
}

// unread records a file that cannot be checked.
func (c *checker) unread(path string, err error) {
	c.add(Finding{Kind: KindUnread, Name: path, Places: at(path, 0), Why: "was not checked: " + err.Error(), Missing: true})
}
