package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/bench/simulate"
	"brine/bench/system"
)

// tree is a minion without a master, with files of states and pillar.
type tree struct {
	b    *bench
	kind kind
	dir  string
}

// newTree writes files, by their paths below states/ and pillar/, and a
// configuration that uses them.
func (b *bench) newTree(k kind, files map[string]string) (*tree, error) {
	dir, err := os.MkdirTemp(b.tmp, string(k)+"-tree-")
	if err != nil {
		return nil, err
	}
	t := &tree{b, k, dir}
	files["minion"] = fmt.Sprintf("root_dir: %s\nid: bench\nuser: root\nfile_client: local\nenable_fqdns_grains: false\n"+
		"enable_gpu_grains: false\nfile_roots:\n  base: [%s/states]\npillar_roots:\n  base: [%s/pillar]\n", dir, dir, dir)
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// cost is the cost of one run of a program.
type cost struct {
	cpu float64 // seconds
	// resident is the peak memory in bytes as recorded by the kernel. own is the peak without pages
	// of files, which the system shares and reclaims; it is sampled every few milliseconds.
	resident, own float64
}

// call runs salt-call, whose answer must contain want.
func (t *tree) call(ctx context.Context, want string, args ...string) (cost, error) {
	c := t.b.command(ctx, t.kind, "salt-call", append([]string{"-c", t.dir, "--local", "--out=json"}, args...)...)
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		return cost{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	var used cost
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	var err error
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-look.C:
			if own, most, e := system.ResidentOf(c.Process.Pid); e == nil {
				used.own, used.resident = max(used.own, float64(own)), float64(most)
			}
		}
	}
	if err != nil {
		return cost{}, fmt.Errorf("%s: %w: %s %.2000s", strings.Join(c.Args, " "), err, errs.String(), out.String())
	}
	if !strings.Contains(out.String(), want) {
		return cost{}, fmt.Errorf("%s does not say %q: %.500s", strings.Join(c.Args, " "), want, out.String())
	}
	used.cpu = (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
	return used, nil
}

// runHighstate applies a state tree of 1,000 files to a machine that has none of them, and then
// again.
func runHighstate(ctx context.Context, b *bench, k kind) error {
	n := b.size(1000)
	t, err := b.newTree(k, map[string]string{
		"states/top.sls": "base:\n  '*': [files]\n",
		"states/source":  strings.Repeat("a line of a file that is managed\n", 32),
	})
	if err != nil {
		return err
	}
	// The tree stays until the bench ends: on ext4, creating files is slow if many were removed
	// just before.
	var sls strings.Builder
	for i := range n {
		fmt.Fprintf(&sls, "file_%d:\n  file.managed:\n    - name: %s/out/%02d/file_%d\n    - source: salt://source\n    - mode: '0640'\n    - "+
			"makedirs: true\n", i, t.dir, i%20, i)
	}
	if err := os.WriteFile(filepath.Join(t.dir, "states/files.sls"), []byte(sls.String()), 0o644); err != nil {
		return err
	}
	for _, run := range []string{"first", "second"} {
		c, err := t.call(ctx, fmt.Sprintf("file_%d", n-1), "state.apply")
		if err != nil {
			return err
		}
		b.add("highstate-"+run, k, 0, c.cpu)
		b.add("highstate-memory-"+run, k, 0, c.own/1e6)
		b.add("highstate-resident-"+run, k, 0, c.resident/1e6)
	}
	last := filepath.Join(t.dir, fmt.Sprintf("out/%02d/file_%d", (n-1)%20, n-1))
	if st, err := os.Stat(last); err != nil || st.Mode().Perm() != 0o640 {
		return fmt.Errorf("%s is not as the state says: %v %w", last, st, err)
	}
	return nil
}

// runLowstate compiles 1,000 states from jinja and yaml.
func runLowstate(ctx context.Context, b *bench, k kind) error {
	n := b.size(1000)
	files := map[string]string{
		"states/top.sls": "base:\n  '*': [web]\n",
		"states/web/init.sls": fmt.Sprintf(`{%%- from "web/map.jinja" import web with context %%}
include:
  - web.service
{%%- for i in range(%d) %%}
site_{{ i }}:
  file.managed:
    - name: {{ web.root | default('/srv') }}/site_{{ '%%04d' %% i }}.conf
    - source: salt://web/files/site.conf
    - template: jinja
    - context: {port: {{ web.port + i }}, name: {{ ('site_' ~ i) | yaml_encode }}, os: {{ grains.os_family }}}
    - mode: '0644'
    {%%- if i > 0 %%}
    - require:
      - file: site_{{ i - 1 }}
    {%%- endif %%}
    - watch_in:
      - service: web
{%%- endfor %%}
`, n-1),
		"states/web/service.sls": "web:\n  service.running:\n    - name: web\n    - enable: true\n",
		"states/web/map.jinja": "{% set web = salt['grains.filter_by']({'default': {'root': '/etc/web', 'port': 8000}}, " +
			"merge=salt['pillar.get']('web')) %}\n",
		"pillar/top.sls": "base:\n  '*': [web]\n",
		"pillar/web.sls": "web:\n  port: 9000\n",
	}
	t, err := b.newTree(k, files)
	if err != nil {
		return err
	}
	defer os.RemoveAll(t.dir)
	c, err := t.call(ctx, fmt.Sprintf("site_%d", n-2), "state.show_lowstate")
	if err == nil {
		b.add("lowstate", k, 0, c.cpu)
	}
	return err
}

// runTemplates renders a formula's map.jinja and 20 templates of files that
// use it.
func runTemplates(ctx context.Context, b *bench, k kind) error {
	const templates = 20
	files := map[string]string{
		"states/top.sls": "base:\n  '*': [formula]\n",
		"states/formula/defaults.yaml": "formula:\n  pkg: thing\n  config:\n    port: 80\n    user: www\n    modules: [a, b, c]\n" +
			"    options: {keepalive: true, timeout: 30}\n",
		"states/formula/osfamily.yaml": "Debian:\n  config: {user: www-data}\nRedHat:\n  config: {user: apache}\n",
		"states/formula/map.jinja": `{%- import_yaml "formula/defaults.yaml" as defaults %}
{%- import_yaml "formula/osfamily.yaml" as families %}
{%- set formula = salt['grains.filter_by'](families, grain='os_family', merge=salt['pillar.get']('formula:lookup', {}), base=none) or {} %}
{%- do defaults.formula.config.update(formula.get('config', {})) %}
{%- set formula = defaults.formula %}
`,
		"states/formula/macros.jinja": `{%- macro option(name, value) -%}
{{ name | upper }}={% if value is mapping %}{{ value | json }}{% elif value is iterable and value is not string %}{{ value | join(',') }}{% else %}{{ value }}{% endif %}
{%- endmacro %}
`,
		"pillar/top.sls":     "base:\n  '*': [formula]\n",
		"pillar/formula.sls": "formula:\n  lookup: {}\n  sites: {{ range(30) | list }}\n",
	}
	t, err := b.newTree(k, files)
	if err != nil {
		return err
	}
	defer os.RemoveAll(t.dir)
	var sls strings.Builder
	sls.WriteString("{%- from 'formula/map.jinja' import formula with context %}\n")
	for i := range templates {
		fmt.Fprintf(&sls, "%s/out/%d.conf:\n  file.managed:\n    - source: salt://formula/files/%d.conf\n    - template: jinja\n    - makedirs: "+
			"true\n    - context: {n: %d, user: {{ formula.config.user }}}\n", t.dir, i, i, i)
		text := fmt.Sprintf(`{%%- from 'formula/map.jinja' import formula with context %%}
{%%- from 'formula/macros.jinja' import option %%}
# template %d, number {{ n }} of {{ user }}
{%%- for key, value in formula.config | dictsort %%}
{{ option(key, value) }}
{%%- endfor %%}
{%%- for site in salt['pillar.get']('formula:sites', []) %%}
{%%- if loop.first %%}
[sites]
{%%- endif %%}
site_{{ '%%03d' %% site }} = {{ formula.config.port + site }} {{ loop.index }}/{{ loop.length }} {{ 'even' if loop.index is even else 'odd' }}
{%%- endfor %%}
`, i)
		name := filepath.Join(t.dir, fmt.Sprintf("states/formula/files/%d.conf", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(t.dir, "states/formula/init.sls"), []byte(sls.String()), 0o644); err != nil {
		return err
	}
	c, err := t.call(ctx, "19.conf", "state.apply")
	if err == nil {
		b.add("templates", k, 0, c.cpu)
	}
	return err
}

// served runs a master with files below the directory that an option names, and signs minions in.
// The caller closes the fleet and removes the master.
func (b *bench) served(ctx context.Context, k kind, minions int, option string, files map[string]string) (*master, *simulate.Fleet, error) {
	m, err := b.newMaster(k, "zeromq", minions, "")
	if err != nil {
		return nil, nil, err
	}
	root := filepath.Join(m.dir, "srv", option)
	err = os.MkdirAll(root, 0o755)
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	// Salt resolves /srv under root_dir only in the defaults.
	if err = errors.Join(err, m.option(option+": {base: ["+root+"]}\n")); err == nil {
		err = m.run(ctx, b)
	}
	f := m.fleet(b, minions, 0)
	if err == nil {
		err = f.SignIn(ctx, 64)
	}
	if err != nil {
		f.Close()
		m.remove()
		return nil, nil, err
	}
	return m, f, nil
}

// runPillar makes 100 minions request their pillar: 200 lines with jinja.
func runPillar(ctx context.Context, b *bench, k kind) error {
	minions := b.size(100)
	var sls strings.Builder
	sls.WriteString("{%- set number = grains['id'].split('-')[1] | int %}\nminion: {{ grains['id'] }}\nusers:\n")
	for i := range 32 {
		fmt.Fprintf(&sls, `  user_%d:
    uid: {{ 1000 + %d }}
    {%%- if number is even %%}
    shell: /bin/bash
    {%%- else %%}
    shell: /bin/sh
    {%%- endif %%}
`, i, i)
	}
	m, f, err := b.served(ctx, k, minions, "pillar_roots", map[string]string{"top.sls": "base:\n  '*': [data]\n", "data.sls": sls.String()})
	if err != nil {
		return err
	}
	defer m.remove()
	defer f.Close()
	ask := func(mi *simulate.Minion) error {
		v, err := mi.Pillar(ctx, map[string]any{"id": mi.ID, "os": "Debian", "os_family": "Debian"})
		if err != nil {
			return err
		}
		if v.Str("minion") != mi.ID || v.Dict("users").Len() != 32 {
			text, _ := json.Marshal(v.Keys())
			return fmt.Errorf("%s: the pillar is not whole: %s", mi.ID, text)
		}
		return nil
	}
	if err := f.Each(16, ask); err != nil { // caches fill
		return err
	}
	n := b.requests(k, 3000)
	cost, err := m.cost(func() error { return repeated(f, n, 16, ask) })
	if err == nil {
		b.add("pillar", k, 0, per(cost, n))
	}
	return err
}

// runFiles makes 100 minions fetch a file of 1 MB and one of 100 KB each.
func runFiles(ctx context.Context, b *bench, k kind) error {
	minions := b.size(100)
	large, small := pseudoRandom(1<<20), pseudoRandom(100<<10)
	m, f, err := b.served(ctx, k, minions, "file_roots", map[string]string{"large": string(large), "small": string(small)})
	if err != nil {
		return err
	}
	defer m.remove()
	defer f.Close()
	for _, file := range []struct {
		name, figure string
		content      []byte
	}{{"large", "files-1mb", large}, {"small", "files-100kb", small}} {
		sum := sha256.Sum256(file.content)
		shared := func(ctx context.Context, mi *simulate.Minion, to io.Writer) error {
			return mi.FileOf(ctx, file.name, hex.EncodeToString(sum[:]), to)
		}
		plain := func(ctx context.Context, mi *simulate.Minion, to io.Writer) error { return mi.File(ctx, file.name, to) }
		if k == stock {
			shared = plain // each kind uses its fastest protocol
		}
		if err := b.fetch(ctx, m, f, file.figure, file.content, shared); err != nil {
			return err
		}
		if err := b.fetch(ctx, m, f, file.figure+"-salt", file.content, plain); err != nil {
			return err
		}
	}
	return nil
}

// getter fetches one file.
type getter func(context.Context, *simulate.Minion, io.Writer) error

// arriving compares a file with the expected content, part by part as it arrives. It stores none,
// because a whole file per minion would cost the minions, which share the cores with the master,
// more than everything else.
type arriving struct{ missing []byte }

func (a *arriving) Write(part []byte) (int, error) {
	if !bytes.HasPrefix(a.missing, part) {
		return 0, errors.New("the file has bytes that are not its own")
	}
	a.missing = a.missing[len(part):]
	return len(part), nil
}

// exactly fetches a file whose content must equal content.
func exactly(ctx context.Context, mi *simulate.Minion, get getter, content []byte) error {
	a := arriving{content}
	if err := get(ctx, mi, &a); err != nil {
		return fmt.Errorf("%s: %w", mi.ID, err)
	}
	if len(a.missing) > 0 {
		return fmt.Errorf("%s: %d bytes of the file are missing", mi.ID, len(a.missing))
	}
	return nil
}

// fetch makes all minions fetch a file at once, ten times.
func (b *bench) fetch(ctx context.Context, m *master, f *simulate.Fleet, figure string, content []byte, get getter) error {
	const times = 10
	minions := len(f.Minions)
	var mu sync.Mutex
	var took []float64
	fetch := func(mi *simulate.Minion) error {
		from := time.Now()
		err := exactly(ctx, mi, get, content)
		mu.Lock()
		took = append(took, time.Since(from).Seconds())
		mu.Unlock()
		return err
	}
	if err := simulate.Each(f.Minions[:1], 1, fetch); err != nil { // hashes are known
		return err
	}
	var wall time.Duration
	slowest := 0.0
	before := ownCPU()
	cost, err := m.cost(func() error {
		for range times {
			took = took[:0]
			from := time.Now()
			if err := f.Each(minions, fetch); err != nil {
				return err
			}
			wall += time.Since(from)
			slices.Sort(took)
			slowest = max(slowest, slices.Max(took)/took[len(took)/2])
		}
		return nil
	})
	if err != nil {
		return err
	}
	own := ownCPU() - before
	mb := float64(times*minions*len(content)) / 1e6
	// Both ends share the cores, so this bounds the throughput.
	b.add(figure+"-both", m.kind, 0, (cost+own).Seconds()*1e3/mb)
	b.add(figure+"-cpu", m.kind, 0, cost.Seconds()*1e3/mb)
	b.add(figure+"-rate", m.kind, 0, mb/wall.Seconds())
	b.add(figure+"-slowest", m.kind, 0, slowest)
	return nil
}

// runCrowd makes 1,000 minions fetch a file of 1 MB at once, and 200 by Salt's protocol, and
// records the memory that the master uses for it. It does not use 1,000 with Salt's protocol: so
// many minions in one process could not answer the master's heartbeats while each decrypts its MB.
func runCrowd(ctx context.Context, b *bench, k kind) error {
	minions := b.size(1000)
	m, err := b.newMaster(k, "zeromq", minions, "")
	if err != nil {
		return err
	}
	defer m.remove()
	root := filepath.Join(m.dir, "srv/salt")
	content := pseudoRandom(1 << 20)
	if err := errors.Join(os.MkdirAll(root, 0o755), os.WriteFile(filepath.Join(root, "large"), content, 0o644),
		m.option("file_roots: {base: ["+root+"]}\n")); err != nil {
		return err
	}
	if err := m.run(ctx, b); err != nil {
		return err
	}
	f := m.fleet(b, minions, 0)
	defer f.Close()
	if err := f.SignIn(ctx, 64); err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	for _, way := range []struct {
		figure  string
		minions int
		get     getter
	}{
		{"crowd", minions, func(ctx context.Context, mi *simulate.Minion, to io.Writer) error {
			return mi.FileOf(ctx, "large", hex.EncodeToString(sum[:]), to)
		}},
		{"crowd-salt", minions / 5, func(ctx context.Context, mi *simulate.Minion, to io.Writer) error { return mi.File(ctx, "large", to) }},
	} {
		var most atomic.Int64
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if mem, err := system.MemoryOf(m.pid()); err == nil {
					most.Store(max(most.Load(), int64(mem.PSS)))
				}
				select {
				case <-done:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
		from := time.Now()
		err := simulate.Each(f.Minions[:way.minions], way.minions, func(mi *simulate.Minion) error {
			return exactly(ctx, mi, way.get, content)
		})
		wall := time.Since(from)
		close(done)
		wg.Wait()
		if err != nil {
			return err
		}
		b.add(way.figure+"-memory", k, 0, float64(most.Load())/1e6)
		b.add(way.figure+"-wall", k, 0, wall.Seconds())
	}
	return nil
}

// pseudoRandom returns bytes that do not compress.
func pseudoRandom(n int) []byte {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// option adds lines to the configuration of a stopped master.
func (m *master) option(lines string) error {
	f, err := os.OpenFile(filepath.Join(m.dir, "master"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(lines)
	return errors.Join(err, f.Close())
}
