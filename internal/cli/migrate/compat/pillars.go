package compat

import (
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/render"
)

// pillarSLS matches the name of the file in a message of the pillar compiler.
var pillarSLS = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`SLS '([^']+)'`) })

// pillars renders the pillar files of a minion, without external sources and without decryption.
func (r *renderings) pillars(m recorded) error {
	trees := r.c.trees(true)
	conf := r.c.master.conf
	if trees.Len() == 0 || len(r.exhausted) > 0 && r.exhausted[pillarTop] {
		return nil
	}
	if conf.Pillar.ExternalFirst && len(unitNames(conf.Pillar.External)) > 0 {
		o, _ := r.c.master.tree.Origin("ext_pillar_first")
		r.c.add(Finding{Kind: KindNote, Name: "ext_pillar_first", Places: places(o.File, o.Line),
			Why: "pillar files were not rendered, because they may use what ext_pillar returns"})
		return nil
	}
	met := []string{}
	funcs, err := r.c.functions(&met)
	if err != nil {
		return err
	}
	o := conf.Pillar
	o.Roots, o.External, o.Cache, o.SafeErrors, o.Decrypt, o.OnDemand = trees, nil, false, false, nil, nil
	groups := target.Nodegroups{}
	for k, v := range r.c.master.opts.Dict("nodegroups").All() {
		groups[value.Str(k)] = v
	}
	opts := r.c.master.opts.Clone()
	opts.Set("pillar_roots", trees)
	c := pillar.New(pillar.Config{
		Options: o, Top: conf.Top, Renderer: render.New(render.Options{Log: r.c.cfg.Log, Limits: r.c.limits()}), Default: r.c.master.opts.Str("renderer"),
		Blacklist: noRenderers, Opts: opts, Nodegroups: groups, Funcs: funcs, CacheDir: r.cacheDir, Log: r.c.cfg.Log,
		Call: func() *fn.Call { return &fn.Call{SDB: noSDB{&met}} },
	})
	d, err := c.Compile(r.c.apart(&met), pillar.Request{ID: m.id, Grains: value.DeepCopy(m.grains).(*value.Dict)})
	if err != nil {
		return r.c.ctx.Err()
	}
	for _, e := range value.Texts(d.At("_errors")) {
		place := Place{File: filepath.Join(value.Texts(trees.At(firstEnv(trees)))[0], conf.Top.File())}
		name := "pillar"
		if match := pillarSLS().FindStringSubmatch(e); match != nil {
			name = match[1]
			if path := r.pillarPath(name); path != "" {
				place.File = path
			} else {
				place.Line = r.c.lines.of(place.File).after(1, name)
			}
		}
		if isLimit(e) {
			r.exhausted[pillarTop] = true
		}
		if strings.Contains(e, errMachine.Error()) {
			r.c.add(Finding{Kind: KindNote, Name: name, Places: []Place{place}, Minions: []string{m.id},
				Why: "was not rendered to its end, because it calls " + names(met) + ", whose result depends on the master's machine"})
			continue
		}
		r.c.add(Finding{Kind: KindRender, Name: name, Places: []Place{place}, Why: "pillar: " + oneLine(e), Minions: []string{m.id}, Missing: true})
	}
	return nil
}

// pillarTop is the key of all pillar files in exhausted.
const pillarTop = "pillar"

func firstEnv(trees *value.Dict) string {
	for k := range trees.All() {
		return value.Str(k)
	}
	return ""
}

// pillarPath returns the file of a pillar SLS, or "".
func (r *renderings) pillarPath(name string) string {
	rel := filepath.Join(strings.Split(name, ".")...)
	for _, root := range r.c.roots {
		for _, p := range []string{rel + ".sls", filepath.Join(rel, "init.sls")} {
			if full := filepath.Join(root.dir, p); root.pillar && isFile(full) {
				return full
			}
		}
	}
	return ""
}
