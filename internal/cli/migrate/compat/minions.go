package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/calls"
	"brine/internal/py/value"
	"brine/internal/sls/highstate"
	"brine/internal/sls/render"
	"brine/internal/sls/state"
	"brine/internal/sls/top"
	"brine/internal/store/cache"
)

// pure are the functions that neither inspect nor change a machine, by module.
var pure = map[string]string{
	"config":   "backup_mode dot_vals get items manage_mode merge option valid_fileproto",
	"defaults": "deepcopy get merge update",
	"grains":   "equals fetch filter_by get has_value item items ls",
	"hashutil": "base64_b64decode base64_b64encode base64_decodestring base64_encodestring digest github_signature hmac_compute hmac_signature md5_digest " +
		"sha256_digest sha512_digest",
	"match":   "compound data glob grain grain_pcre ipcidr list pcre pillar pillar_pcre",
	"pillar":  "fetch filter_by get item keys raw",
	"slsutil": "banner boolstr deserialize file_exists merge merge_all path_exists serialize update",
	"test":    "echo false ping true",
}

// isPure reports whether a function may run while SLS files are rendered here.
func isPure(module, name string) bool {
	return slices.Contains(strings.Fields(pure[module]), name)
}

// errMachine is the error of a function that would inspect the minion's machine.
var errMachine = errors.New("its result depends on the minion's machine")

type anything struct {
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// functions returns the functions that SLS files may call while they are rendered here. Those that
// only read the recorded data work; a call of any other ends the rendering.
func (c *checker) functions(met *[]string) (*fn.Registry, error) {
	var out []fn.Module
	has := func(name string) bool {
		return slices.ContainsFunc(out, func(o fn.Module) bool { return o.Name == name })
	}
	for _, m := range c.known.all {
		m.When = nil
		funcs := slices.Clone(m.Funcs)
		for i := range funcs {
			if name := funcs[i].Name(); !isPure(m.Name, name) || c.known.python["_modules/"+m.Name] != nil {
				funcs[i] = stub(m.Name+"."+name, met)
			}
		}
		m.Funcs = funcs
		if !has(m.Name) {
			out = append(out, m)
		}
	}
	for key, files := range c.known.python {
		module, ok := strings.CutPrefix(key, "_modules/")
		if !ok || has(module) {
			continue
		}
		var names []string
		for _, p := range files {
			names = append(names, p.functions...)
		}
		slices.Sort(names)
		m := fn.Module{Name: module}
		for _, name := range slices.Compact(names) {
			m.Funcs = append(m.Funcs, stub(module+"."+name, met))
		}
		out = append(out, m)
	}
	return fn.NewRegistry(nil, out...)
}

// noSDB refuses all drivers of sdb:// references.
type noSDB struct{ met *[]string }

// Has implements fn.SDB.
func (noSDB) Has(string) bool { return true }

// Call implements fn.SDB.
func (n noSDB) Call(context.Context, *fn.Call, string, string, []any, *value.Dict) (any, error) {
	return nil, refuse("sdb.get", n.met)
}

// stub returns a function that only records that a template called it, and fails.
func stub(full string, met *[]string) fn.Func {
	_, name, _ := strings.Cut(full, ".")
	return fn.Of(name, func(context.Context, *fn.Call, anything) (any, error) { return nil, refuse(full, met) }, `Not called.`)
}

// refuse records a function or filter that must not run, and returns its error.
func refuse(name string, met *[]string) error {
	if len(*met) < maxMet {
		*met = append(*met, name)
	}
	return fn.Errorf("%s is not called: %w", name, errMachine)
}

// apart returns a context for rendering in which templates cannot inspect this machine.
func (c *checker) apart(met *[]string) context.Context {
	return render.Apart(c.ctx, func(filter string) error { return refuse(filter, met) })
}

// maxMet bounds the recorded calls of one rendering.
const maxMet = 100

// noRenderers are the renderers that run programs.
var noRenderers = []string{"gpg"}

// recorded is the data of one minion in the master's cache.
type recorded struct {
	id             string
	grains, pillar *value.Dict
}

// recordedMinions reads the master's cache: the bank minions up to Salt 3007, the banks grains and
// pillar of Salt 3008.
func (c *checker) recordedMinions() ([]recorded, error) {
	dir := c.master.conf.Files.CacheDir
	o := c.master.conf.Cache
	o.MinionDataCache = true
	data := cache.New(dir, o, c.cfg.Log)
	old, err := data.Minions()
	if err != nil {
		return nil, fmt.Errorf("cannot list the recorded minions: %w", err)
	}
	newer, err := data.List("grains")
	if err != nil {
		return nil, fmt.Errorf("cannot list the recorded minions: %w", err)
	}
	ids := slices.Concat(old, newer)
	slices.Sort(ids)
	var out []recorded
	for _, id := range slices.Compact(ids) {
		r := recorded{id: id}
		switch {
		case slices.Contains(old, id) && regular(dir, "minions", id, "data.p"):
			d := data.MinionData(id)
			r.grains, r.pillar = d.Grains, d.Pillar
		case slices.Contains(newer, id) && regular(dir, "grains", id+".p"):
			r.grains = fetch(data, "grains", id)
			if regular(dir, "pillar", id+".p") {
				r.pillar = fetch(data, "pillar", id)
			}
		}
		if r.pillar == nil {
			r.pillar = value.NewDict(0)
		}
		out = append(out, r)
	}
	return out, nil
}

func fetch(data *cache.Cache, bank, key string) *value.Dict {
	v, _, err := data.Fetch(bank, key)
	if err != nil {
		return nil
	}
	d, _ := v.(*value.Dict)
	return d
}

// regular reports whether a path is a file that can be read without blocking.
func regular(elem ...string) bool { return isFile(filepath.Join(elem...)) }

// renderAll renders the SLS files of the top file for each minion in the cache.
func (c *checker) renderAll() error {
	if c.master == nil {
		return salt.Errorf(salt.Invalid, "--minions needs the configuration of the master, which names its cache: use --config")
	}
	minions, err := c.recordedMinions()
	if err != nil {
		return err
	}
	dir := c.master.conf.Files.CacheDir
	if len(minions) == 0 {
		c.add(Finding{Kind: KindNote, Name: "minions", Places: at(dir, 0), Why: "the cache has no data of minions: no SLS file was rendered"})
		return nil
	}
	tmp, err := os.MkdirTemp("", "brine-check")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	r := &renderings{c: c, cacheDir: tmp, done: map[string]bool{}, failed: map[string]bool{}, partly: map[string]bool{}, exhausted: map[string]bool{}}
	for i, m := range minions {
		c.progress("render for "+m.id, i, len(minions))
		if m.grains == nil {
			c.add(Finding{Kind: KindNote, Name: m.id, Places: at(dir, 0), Why: "the cache has no grains of this minion: nothing was rendered for it"})
			continue
		}
		c.report.Minions++
		if err := r.pillars(m); err != nil {
			return err
		}
		if err := r.minion(m); err != nil {
			return err
		}
	}
	c.report.Rendered, c.report.Failed, c.report.Partly = len(r.done), len(r.failed), len(r.partly)
	return r.compare()
}

// renderings renders SLS files for minions and collects the results.
type renderings struct {
	c        *checker
	cacheDir string
	// done, failed and partly are the files that were rendered, by result.
	done, failed, partly map[string]bool
	// exhausted are the files that exceeded a limit of time or memory. They are not rendered for
	// further minions.
	exhausted map[string]bool
	// compiled are the lowstates to compare with those of stock Salt.
	compiled []compiled
}

// session opens a session that renders for a minion.
func (r *renderings) session(m recorded, met *[]string) (*highstate.Session, error) {
	funcs, err := r.c.functions(met)
	if err != nil {
		return nil, err
	}
	opts := r.c.master.opts.Clone()
	for k, v := range map[string]any{"id": m.id, "file_client": "local", "grains": m.grains, "__role": "minion"} {
		opts.Set(k, v)
	}
	opts.Set("renderer_blacklist", value.Strings(append(value.ListTexts(opts.At("renderer_blacklist")), noRenderers...)))
	for _, k := range []string{"saltenv", "pillarenv"} { // those are the minion's own options, which are not recorded
		opts.Delete(k)
	}
	served := r.c.master.conf.Served
	served.FileRoots, served.Backends, served.FollowSymlinks = r.c.trees(false), []string{"roots"}, true
	files := calls.FileSource{CacheDir: r.cacheDir, HashType: r.c.master.conf.Options.HashType, Files: served, Opts: opts}.Local(r.c.cfg.Log)
	call := (&fn.Call{ID: m.id, Grains: fn.Tree{Dict: m.grains}, Pillar: fn.Tree{Dict: m.pillar}, Config: fn.Tree{Dict: opts}, Funcs: funcs, Files: files,
		Log: r.c.cfg.Log, SDB: noSDB{met}}).Prepare()
	deps := highstate.Deps{Renderer: render.New(render.Options{Log: r.c.cfg.Log, Limits: r.c.limits()}), States: r.c.known.states}
	s, err := highstate.Open(r.c.apart(met), deps, call, highstate.Request{})
	if err != nil {
		return nil, fmt.Errorf("cannot prepare the rendering for %s: %w", m.id, err)
	}
	return s, nil
}

// limits returns the configured limits, with a shorter time because there are many renderings.
func (c *checker) limits() render.Limits {
	l := c.master.conf.Templates
	if l.MaxTime == 0 || l.MaxTime > maxRender {
		l.MaxTime = maxRender
	}
	return l
}

// trees returns the directories of SLS files or of pillar files by environment.
func (c *checker) trees(pillar bool) *value.Dict {
	trees := value.NewDict(0)
	for _, root := range c.roots {
		if root.pillar == pillar {
			trees.Set(root.env, value.Strings(append(value.Texts(trees.At(root.env)), root.dir)))
		}
	}
	return trees
}

func (r *renderings) minion(m recorded) error {
	met := []string{}
	s, err := r.session(m, &met)
	if err != nil {
		return err
	}
	ctx := r.c.apart(&met)
	matches, faults, err := s.Matches(ctx)
	if ctxErr := r.c.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if err != nil || len(faults) > 0 {
		why := strings.Join(faults, "; ")
		if err != nil {
			why = err.Error()
		}
		r.c.add(Finding{Kind: KindRender, Name: "top", Places: at(r.path("base", "top"), 0), Why: oneLine(why), Minions: []string{m.id}, Missing: true})
		return nil
	}
	for _, match := range matches {
		for _, name := range match.SLS {
			met = met[:0]
			r.slsFor(ctx, s, m.id, match.Saltenv, name, &met)
			if err := r.c.ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// slsFor renders one SLS and those that it includes, and checks what they use.
func (r *renderings) slsFor(ctx context.Context, s *highstate.Session, id, env, name string, met *[]string) {
	path := r.path(env, name)
	if r.exhausted[path] {
		return
	}
	high, faults := s.High(ctx, []top.Match{{Saltenv: env, SLS: []string{name}}})
	if r.c.ctx.Err() != nil {
		return
	}
	r.done[path] = true
	if len(*met) > 0 {
		r.partly[path] = true
		r.c.add(Finding{Kind: KindNote, Name: name, Places: at(path, 0), Minions: []string{id},
			Why: "was not rendered to its end, because it calls " + names(*met) + ", whose result depends on the minion's machine"})
		return
	}
	if len(faults) > 0 {
		r.failed[path] = true
		if isLimit(faults[0]) {
			r.exhausted[path] = true
		}
		failed, place := r.failedAt(name, path, faults[0])
		r.c.add(Finding{Kind: KindRender, Name: failed, Places: []Place{place}, Why: oneLine(faults[0]), Minions: []string{id}, Missing: true})
		r.keep(id, env, name, path, nil, faults)
		return
	}
	for _, v := range high.All() {
		if body, ok := v.(*value.Dict); ok && body.Has("__sls__") {
			r.done[r.path(env, value.Str(body.At("__sls__")))] = true
		}
	}
	copied := value.DeepCopy(high).(*value.Dict)
	chunks, faults := s.Low(ctx, high)
	r.keep(id, env, name, path, chunks, faults)
	if len(faults) > 0 {
		// Requisites may be in other SLS files, which are missing here. That is not an error.
		chunks, _ = s.Chunks(ctx, copied)
	}
	for _, low := range chunks {
		r.chunk(low, id)
	}
}

// inSLS matches the file and the line in the error message of a failed rendering.
var inSLS = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^Rendering SLS '([^':]+):([^']+)' failed(?s:.*?); line (\d+)`)
})

// failedAt returns the SLS that failed according to a message. It may be an included one.
func (r *renderings) failedAt(name, path, fault string) (string, Place) {
	m := inSLS().FindStringSubmatch(fault)
	if m == nil {
		return name, Place{path, 0}
	}
	line, err := strconv.Atoi(m[3])
	if err != nil {
		line = 0
	}
	return m[2], Place{r.path(m[1], m[2]), line}
}

// names joins the first names of a list of functions.
func names(all []string) string {
	all = slices.Clone(all)
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) > shown {
		all = append(all[:shown:shown], "...")
	}
	return strings.Join(all, ", ")
}

// isLimit reports whether an error says that a template exceeded a limit.
func isLimit(fault string) bool {
	for _, option := range []string{"template_max_memory", "template_max_steps", "template_max_time"} {
		if strings.Contains(fault, option) {
			return true
		}
	}
	return false
}

// chunk checks one state.
func (r *renderings) chunk(low *value.Dict, id string) {
	full := value.Str(low.At("state")) + "." + value.Str(low.At("fun"))
	path := r.path(value.Str(low.At("__env__")), value.Str(low.At("__sls__")))
	source := r.c.lines.of(path)
	line := source.find(value.Str(low.At("__id__")), full)
	r.c.state(full, path, line, id)
	f, err := r.c.known.states.Lookup(full)
	if err != nil {
		return
	}
	r.c.low(f, full, low, func(arg string) []Place { return at(path, source.after(line, arg+":")) }, id)
	if full == "module.run" || full == "module.wait" {
		for k := range low.All() {
			if name, ok := k.(string); ok && isFunction(name) {
				r.c.function(name, path, source.after(line, name), onMinion)
			}
		}
	}
}

// low checks the arguments of a state. minion is "" if the file was not rendered.
func (c *checker) low(f *state.Func, full string, low *value.Dict, where func(arg string) []Place, minion string) {
	var minions []string
	if minion != "" {
		minions = []string{minion}
	}
	add := func(arg, why string, missing bool) {
		c.add(Finding{Kind: KindArgument, Name: full + " " + arg, Places: where(arg), Minions: minions, Why: why, Missing: missing})
	}
	_, extra := f.Arguments(low)
	for _, arg := range extra {
		add(arg, "the state has no such argument and would fail", true)
	}
	for _, w := range f.Misspelt(low) {
		if arg, _, _ := strings.Cut(w, " "); !slices.Contains(extra, arg) {
			add(arg, w, false)
		}
	}
	for k := range low.All() {
		if arg, ok := k.(string); ok && !state.Internal(k) {
			for _, p := range where(arg) {
				c.differs("argument", full+" "+arg, p.File, p.Line)
			}
			if p, declared := f.Param(arg); declared && p.Ignored != "" {
				add(arg, "has no effect: "+p.Ignored, false)
			}
		}
	}
}

// path returns the path of an SLS.
func (r *renderings) path(env, name string) string {
	rel := filepath.Join(strings.Split(name, ".")...)
	for _, root := range r.c.roots {
		if root.pillar || root.env != env {
			continue
		}
		for _, p := range []string{rel + ".sls", filepath.Join(rel, "init.sls")} {
			if full := filepath.Join(root.dir, p); isFile(full) {
				return full
			}
		}
	}
	return "salt://" + rel + ".sls"
}
