package compat

import (
	"context"
	"log/slog"
	"path/filepath"

	"brine/internal/daemons/config"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// Served returns the findings about files that the configuration of a master, or of a minion without one, names
// itself: the top files, and the SLS files of the option reactor. It does not search the trees.
// opts are all of its options; of conf only those of files, pillar and top files are used.
func Served(ctx context.Context, t *config.Tree, opts *value.Dict, conf *config.Master, log *slog.Logger) ([]Finding, error) {
	k, err := newKnown()
	if err != nil {
		return nil, err
	}
	c := &checker{ctx: ctx, cfg: Config{Log: log}, known: k, renderer: render.New(render.Options{Log: log}), findings: map[string]*Finding{},
		sources: map[string]bool{}, pythonSLS: map[string][]byte{}, master: &master{t, conf, opts}}
	if err := c.findRoots(); err != nil {
		return nil, err
	}
	if err := (installed{c}).moduleDirs(t); err != nil {
		return nil, err
	}
	for _, r := range c.roots {
		if err := c.findPython(r.dir); err != nil {
			return nil, err
		}
		if path := filepath.Join(r.dir, r.top); isFile(path) {
			if text, err := readFile(path, maxSLS); err == nil {
				newSLSNames(c, r).topFile(path, string(text))
			}
		}
	}
	if err := c.reactions(); err != nil {
		return nil, err
	}
	for _, key := range c.order {
		if f := c.findings[key]; f.Kind != KindRoot && f.Kind != KindDifference && f.Kind != KindNote {
			c.report.Findings = append(c.report.Findings, *f)
		}
	}
	c.report.sort()
	return c.report.Findings, ctx.Err()
}
