package compat

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/target"
	"brine/internal/base/textedit"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

// matchers are the types of targets.
var matchers = strings.Fields("compound compound_pillar_exact glob grain grain_pcre ipcidr list nodegroup pcre pillar pillar_exact pillar_pcre range")

// slsNames looks up SLS files by their names in the directories that are searched.
type slsNames struct {
	c    *checker
	root root
	// whole means that all directories of SLS files are there: no environment has files elsewhere.
	whole bool
	all   map[string][]string // the names of all files, by environment
}

func newSLSNames(c *checker, r root) *slsNames {
	n := &slsNames{c: c, root: r, whole: true, all: map[string][]string{}}
	m := c.master
	if m == nil {
		return n
	}
	remote := slices.ContainsFunc(m.conf.Served.Backends, func(name string) bool { return name != "roots" && name != "file" })
	if r.pillar {
		remote = slices.Contains(unitNames(m.opts.At("ext_pillar")), "git")
	}
	n.whole = !remote
	return n
}

// given reports whether the directories are those of the command line, which are all of one environment.
func (n *slsNames) given() bool {
	if n.root.pillar {
		return len(n.c.cfg.Pillars) > 0 || n.c.master == nil
	}
	return len(n.c.cfg.Trees) > 0 || n.c.master == nil
}

// envs returns the configured environments.
func (n *slsNames) envs() (envs []string) {
	configured, usual := n.c.master.conf.Served.FileRoots, "/srv/salt"
	if n.root.pillar {
		configured, usual = n.c.master.conf.Pillar.Roots, "/srv/pillar"
	}
	for _, r := range fileserver.Roots(configured, usual) {
		envs = append(envs, r.Env)
	}
	return envs
}

func (n *slsNames) hasEnv(env string) bool {
	if n.given() || !n.whole {
		return true
	}
	envs := n.envs()
	return slices.Contains(envs, env) || slices.Contains(envs, "__env__")
}

// topFile checks the targets of a top file, and whether the SLS files that it names exist.
func (n *slsNames) topFile(path, source string) {
	note := func(name string, line int, why string) {
		n.c.add(Finding{Kind: KindTopFile, Name: name, Places: places(path, line), Why: why})
	}
	targets, kinds := map[string]int{}, map[string]string{}
	var named []line             // the SLS files
	lenient := map[string]bool{} // targets whose files may be missing
	outline(source, func(l line) {
		if strings.Contains(strings.Join(l.chain, "")+l.key+l.value, hole) {
			return
		}
		switch {
		case len(l.chain) == 0:
			if env := strings.Trim(l.key, `'"`); !l.plain && env != "include" && !n.hasEnv(env) {
				note(env, l.number, "no root directory is configured for this environment"+near(env, n.envs()))
			}
		case len(l.chain) == 1 && !l.plain && !l.item:
			targets[l.key] = l.number
			items, err := flow(l.value)
			if l.value == "" || err != nil {
				return
			}
			for _, it := range items {
				if name, ok := it.(string); ok {
					named = append(named, line{number: l.number, chain: []string{l.chain[0], l.key}, key: name})
				}
				if d, ok := it.(*value.Dict); ok && d.Str("match") != "" {
					kinds[l.key] = d.Str("match")
				} else if ok && value.Truth(d.At("ignore_missing")) {
					lenient[l.key] = true
				}
			}
		case len(l.chain) == 3 && l.chain[2] == "-" && l.plain:
			l.key = strings.Trim(l.key, `'"`)
			named = append(named, l)
		case len(l.chain) == 3 && l.key == "match":
			kinds[l.chain[1]] = strings.Trim(l.value, `'"`)
		case len(l.chain) == 3 && l.key == "ignore_missing":
			lenient[l.chain[1]] = true
		}
	})
	for _, l := range named {
		if !n.root.pillar || !lenient[l.chain[1]] {
			n.look(l.chain[0], l.key, l.number, note)
		}
	}
	groups := target.Nodegroups{}
	if n.c.master != nil {
		for k, v := range n.c.master.opts.Dict("nodegroups").All() {
			groups[value.Str(k)] = v
		}
	}
	for tgt, number := range targets {
		kind := kinds[tgt]
		if kind == "" {
			kind = "compound"
		}
		if _, err := groups.Parse(kind, tgt, ""); err != nil {
			why := fmt.Sprintf("the target (match: %s) is malformed: %v", kind, err)
			if !slices.Contains(matchers, kind) {
				why = fmt.Sprintf("there is no type of targets %.80q%s", kind, near(kind, matchers))
			}
			note(tgt, number, why)
		}
	}
}

// look reports an SLS file that does not exist.
func (n *slsNames) look(env, name string, line int, note func(name string, line int, why string)) {
	if !n.whole || name == "" || strings.ContainsAny(name, "*?[{ ") || !n.hasEnv(env) || !n.given() && !slices.Contains(n.envs(), env) {
		return
	}
	rel := filepath.Join(strings.Split(name, ".")...)
	for _, r := range n.roots(env) {
		for _, p := range []string{rel + ".sls", filepath.Join(rel, "init.sls"), strings.ReplaceAll(name, ".", "/") + "/init.sls"} {
			if isFile(filepath.Join(r.dir, p)) {
				return
			}
		}
	}
	hint := ""
	if found := textedit.Nearest(name, n.names(env)); len(found) > 0 {
		hint = "; did you mean " + found[0] + "?"
	} else if base, ok := strings.CutSuffix(name, ".sls"); ok && slices.Contains(n.names(env), base) {
		hint = "; did you mean " + base + "?"
	}
	where := "the environment " + env
	if n.given() {
		where = "the given directories"
	}
	note(name, line, "there is no such SLS file in "+where+hint)
}

// roots returns the directories of an environment.
func (n *slsNames) roots(env string) (out []root) {
	for _, r := range n.c.roots {
		if r.pillar == n.root.pillar && (r.env == env || n.given()) {
			out = append(out, r)
		}
	}
	return out
}

// maxNames bounds the number of files among which the nearest name is searched.
const maxNames = 20_000

// names returns the names of all SLS files of an environment.
func (n *slsNames) names(env string) []string {
	if all, ok := n.all[env]; ok {
		return all
	}
	all := []string{}
	for _, r := range n.roots(env) {
		w := &walker{ctx: n.c.ctx, failed: func(string, error) {}, enter: func(path string) bool { return !strings.HasPrefix(filepath.Base(path), ".") }}
		w.file = func(path string, err error) {
			rel, relErr := filepath.Rel(r.dir, path)
			if err != nil || relErr != nil || filepath.Ext(path) != ".sls" || len(all) == maxNames {
				return
			}
			name := strings.ReplaceAll(strings.TrimSuffix(rel, ".sls"), string(filepath.Separator), ".")
			all = append(all, strings.TrimSuffix(name, ".init"))
		}
		if err := w.walk(r.dir, 0); err != nil {
			break // the check ends
		}
	}
	n.all[env] = all
	return all
}
