package compat

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// stockProgram compiles the same SLS files in stock Salt.
//
//go:embed stock.py
var stockProgram string

// compiled is the lowstate of one SLS for one minion, or the errors of its compilation.
type compiled struct {
	minion, env, sls, path string
	chunks                 []*value.Dict
	faults                 []string
}

// keep stores a compilation, to be compared with that of stock Salt.
func (r *renderings) keep(minion, env, sls, path string, chunks []*value.Dict, faults []string) {
	if r.c.cfg.Stock == "" {
		return
	}
	own := make([]*value.Dict, len(chunks))
	for i, low := range chunks {
		own[i] = value.DeepCopy(low).(*value.Dict)
	}
	r.compiled = append(r.compiled, compiled{minion, env, sls, path, own, faults})
}

// stockTime is the timeout for the start of stock Salt and the compilation of one SLS file.
const stockTime = time.Minute

// compare compiles the same files in stock Salt, and records the differences.
func (r *renderings) compare() error {
	if r.c.cfg.Stock == "" || len(r.compiled) == 0 {
		return nil
	}
	byMinion := map[string][]compiled{}
	var ids []string
	for _, c := range r.compiled {
		if byMinion[c.minion] == nil {
			ids = append(ids, c.minion)
		}
		byMinion[c.minion] = append(byMinion[c.minion], c)
	}
	minions, err := r.c.recordedMinions()
	if err != nil {
		return err
	}
	ids = covering(ids, byMinion)
	for i, id := range ids {
		r.c.progress("compare with stock Salt: "+id, i, len(ids))
		at := slices.IndexFunc(minions, func(m recorded) bool { return m.id == id })
		if at < 0 {
			continue
		}
		if err := r.compareMinion(minions[at], byMinion[id]); err != nil {
			return err
		}
	}
	return nil
}

// maxSame bounds the minions for which one SLS is compared.
const maxSame = 3

// covering chooses minions so that each SLS is compared for up to maxSame of them. Stock Salt needs
// seconds to start for each minion.
func covering(ids []string, byMinion map[string][]compiled) (chosen []string) {
	seen := map[string]int{}
	for _, id := range ids {
		if slices.ContainsFunc(byMinion[id], func(c compiled) bool { return seen[c.path] < maxSame }) {
			chosen = append(chosen, id)
			for _, c := range byMinion[id] {
				seen[c.path]++
			}
		}
	}
	return chosen
}

func (r *renderings) compareMinion(m recorded, all []compiled) error {
	list := &value.List{}
	for _, c := range all {
		list.Append(value.ListOf(c.env, c.sls))
	}
	allowed := value.NewDict(len(pure))
	for module, functions := range pure {
		allowed.Set(module, value.Strings(strings.Fields(functions)))
	}
	opts := value.NewDict(0)
	for _, key := range []string{"renderer", "state_auto_order", "jinja_env", "jinja_sls_env", "jinja_lstrip_blocks", "jinja_trim_blocks", "allow_undefined",
		"state_top", "state_aggregate", "nodegroups", "pillar_source_merging_strategy", "pillar_merge_lists"} {
		if v, ok := r.c.master.tree.Values.Get(key); ok {
			opts.Set(key, v)
		}
	}
	request := value.DictOf("id", m.id, "grains", m.grains, "pillar", m.pillar, "file_roots", r.c.trees(false), "opts", opts, "sls", list, "pure", allowed,
		"filters", value.Strings(render.MachineFilters()), "dir", r.cacheDir+"/stock")
	text, err := json.Dump(request, json.Format{})
	if err != nil {
		return salt.Errorf(salt.Internal, "cannot pass the data of %s to stock Salt: %w", m.id, err)
	}
	answer, err := r.runStock(text, time.Duration(1+len(all))*stockTime)
	if err != nil {
		return err
	}
	r.c.report.Stock = answer.Str("version")
	for i, v := range answer.List("compiled") {
		if d, ok := v.(*value.Dict); ok && i < len(all) && d.At("machine") != true {
			r.c.report.Compared++
			if len(all[i].faults) > 0 && len(d.List("faults")) > 0 {
				_, place := r.failedAt(all[i].sls, all[i].path, all[i].faults[0])
				r.alike(place.File)
			} else if why := differ(all[i], d); why != "" {
				r.c.add(Finding{Kind: KindLowstate, Name: all[i].sls, Places: at(all[i].path, 0), Why: why, Minions: []string{m.id}, Missing: true})
			}
		}
	}
	return nil
}

// alike records that an SLS file does not render with stock Salt either.
func (r *renderings) alike(path string) {
	for _, f := range r.c.findings {
		if f.Kind == KindRender && f.first().File == path && f.Missing && len(f.Minions) > 0 {
			f.Missing = false
			f.Why += "; it does not render with stock Salt either"
		}
	}
}

// runStock runs stockProgram with stock Salt's Python.
func (r *renderings) runStock(request string, limit time.Duration) (*value.Dict, error) {
	cmd := exec.CommandContext(r.c.ctx, r.c.cfg.Stock, "-W", "ignore", "-c", stockProgram)
	cmd.Stdin = strings.NewReader(request)
	cmd.Env = os.Environ()
	if r.c.cfg.StockPath != "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+r.c.cfg.StockPath)
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{&out, maxAnswer}, &limited{&stderr, 1 << 20}
	cmd.WaitDelay = time.Second
	timer := time.AfterFunc(limit, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // Run returns the error
		}
	})
	defer timer.Stop()
	if err := cmd.Run(); err != nil {
		if r.c.ctx.Err() != nil {
			return nil, r.c.ctx.Err()
		}
		return nil, salt.Errorf(salt.Unavailable, "cannot compile by stock Salt with %s: %w: %s", r.c.cfg.Stock, err, lastLine(stderr.String()))
	}
	v, err := json.Load(out.String())
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, salt.Errorf(salt.Internal, "cannot read the answer of stock Salt: %v", err)
	}
	return d, nil
}

// maxAnswer bounds the output of stock Salt, in bytes.
const maxAnswer = 256 << 20

// limited passes writes on until room bytes were written, then fails.
type limited struct {
	to   *bytes.Buffer
	room int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.room -= len(p); l.room < 0 {
		return 0, errors.New("it prints too much")
	}
	return l.to.Write(p)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// differ describes the difference of two compilations, or returns "".
func differ(ours compiled, theirs *value.Dict) string {
	faults := value.Texts(theirs.At("faults"))
	switch {
	case len(ours.faults) > 0:
		return "does not compile: " + oneLine(ours.faults[0]) + "; stock Salt compiles it"
	case len(faults) > 0:
		return "compiles; with stock Salt it does not: " + oneLine(faults[0])
	}
	low := theirs.List("low")
	for i := range max(len(low), len(ours.chunks)) {
		switch {
		case i >= len(low):
			return "stock Salt lacks the state " + nameOf(ours.chunks[i])
		case i >= len(ours.chunks):
			d, _ := low[i].(*value.Dict)
			return "the state " + nameOf(d) + " of stock Salt is missing"
		}
		d, _ := low[i].(*value.Dict)
		if why := differLow(ours.chunks[i], d); why != "" {
			return why
		}
	}
	return ""
}

func nameOf(low *value.Dict) string {
	return fmt.Sprintf("%s.%s of %s", value.Str(low.At("state")), value.Str(low.At("fun")), value.Str(low.At("__id__")))
}

// differLow describes the difference of two states, or returns "". It ignores their order numbers,
// since the states are compared in order.
func differLow(a, b *value.Dict) string {
	if nameOf(a) != nameOf(b) {
		return fmt.Sprintf("runs %s where stock Salt runs %s", nameOf(a), nameOf(b))
	}
	for _, key := range slices.Concat(a.Keys(), b.Keys()) {
		name := value.Str(key)
		if name == "order" || strings.HasPrefix(name, "__") {
			continue
		}
		x, okX := a.Get(name)
		y, okY := b.Get(name)
		x = plain(x)
		if okX != okY || !value.Equal(x, y) {
			return fmt.Sprintf("%s has %s: %s, with stock Salt %s", nameOf(a), name, brief(x, okX), brief(y, okY))
		}
	}
	return ""
}

// plain converts a value by encoding it as JSON and decoding it.
func plain(v any) any {
	text, err := json.Dump(v, json.Format{})
	if err != nil {
		return v
	}
	out, err := json.Load(text)
	if err != nil {
		return v
	}
	return out
}

func brief(v any, ok bool) string {
	if !ok {
		return "no such argument"
	}
	s := value.Repr(v)
	if len(s) > maxBrief {
		s = s[:maxBrief] + "..."
	}
	return s
}

// maxBrief bounds the length of a value in a message.
const maxBrief = 80
