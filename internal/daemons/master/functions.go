package master

import (
	"context"
	"io/fs"
	"os"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/catalogue"
	"brine/internal/catalogue/grains"
	"brine/internal/catalogue/modules/core"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
)

// templateFunctions are the execution functions that templates of the pillar
// can call. They run on the master; grains and pillar are those of the minion
// that the pillar is for.
func (m *Master) templateFunctions() (*fn.Registry, error) {
	all := catalogue.Modules()
	all = append(all, core.Grains(givenGrains{}), m.runnerModule())
	return fn.NewRegistry(&ownGrains{m: m}, all...)
}

// givenGrains lets templates read a minion's grains; they cannot be changed
// from here.
type givenGrains struct{}

// Grains implements core.GrainStore.
func (givenGrains) Grains() *value.Dict { return value.NewDict(0) }

// Change implements core.GrainStore.
func (givenGrains) Change(*value.Dict, []string) {}

// Refresh implements core.GrainStore.
func (givenGrains) Refresh(context.Context, bool) error {
	return salt.Errorf(salt.Denied, "a template of the pillar cannot change a minion's grains")
}

type askRunnerArgs struct {
	Name   string    `salt:"name" doc:"name of the runner"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// runnerModule lets templates ask runners, which know of other minions.
func (m *Master) runnerModule() fn.Module {
	run := func(ctx context.Context, c *fn.Call, a askRunnerArgs) (any, error) {
		args, kwargs := []any(a.Args), a.Kwargs.Clean()
		if l, ok := kwargs.At("arg").(*value.List); ok {
			args = append(args, l.Items...)
			kwargs.Delete("arg")
		}
		if d, ok := kwargs.At("kwarg").(*value.Dict); ok {
			kwargs.Delete("kwarg")
			kwargs.Update(d)
		}
		return m.runners.Call(ctx, (&fn.Call{ID: m.cfg.ID, Config: fn.Tree{Dict: m.cfg.Opts}, Log: m.log, Funcs: m.runners}).Prepare(), a.Name, args, kwargs)
	}
	return fn.Module{Name: "saltutil", Doc: `Ask the master.`, Funcs: []fn.Func{
		fn.Of("runner", run, `Run a runner of this master and return its result.`),
	}}
}

// ownGrains are those of the master's machine, which decide what functions
// there are. They are gathered when a template first asks.
type ownGrains struct {
	m    *Master
	once sync.Once
	d    *value.Dict
}

// Late implements fn.Late.
func (*ownGrains) Late() {}

// Get returns one grain, or nil.
func (g *ownGrains) Get(key string) any { return g.All().At(key) }

// All returns all grains.
func (g *ownGrains) All() *value.Dict {
	g.once.Do(func() {
		d, err := grains.Collect(g.m.context(), grains.Options{ID: g.m.cfg.ID, NoDNS: true}, g.m.log)
		if err != nil {
			g.m.log.Warn("some grains of the master's machine could not be gathered", "err", err)
		}
		g.d = d
	})
	return g.d
}

// newPillar returns what makes pillars by some configuration.
func (m *Master) newPillar(cfg Config, git *gitpillar.Source, groups target.Nodegroups) *pillar.Compiler {
	renderer := cfg.Opts.Str("renderer")
	return pillar.New(pillar.Config{
		Options: cfg.Pillar, Top: cfg.Top, Renderer: m.renderer, Default: renderer, Whitelist: names(cfg.Opts.At("renderer_whitelist")),
		Blacklist: names(cfg.Opts.At("renderer_blacklist")), Opts: cfg.Opts, Nodegroups: groups, Funcs: m.templateFuncs,
		Call: func() *fn.Call { return &fn.Call{Files: m.ownFiles()} },
		Git:  git, CacheDir: m.cfg.CacheDir, Version: cfg.Opts.Str("saltversion"), Log: m.log,
	})
}

// newGitPillar returns the git repositories that ext_pillar names.
func (m *Master) newGitPillar(cfg Config) *gitpillar.Source {
	s := gitpillar.New(cfg.GitPillar, gitpillar.Config{CacheDir: m.cfg.CacheDir, HashType: cfg.Options.HashType, Log: m.log})
	for _, entry := range pillar.Entries(cfg.Pillar, "git") {
		if _, err := s.Add(entry); err != nil && cfg.GitPillar.Verify {
			m.log.Error("ext_pillar: git is not configured well; pillars that need it fail", "err", err)
		}
	}
	return s
}

// names returns the texts of a list.
func names(v any) []string {
	var out []string
	if l, ok := v.(*value.List); ok && l != nil {
		for _, it := range l.Items {
			out = append(out, value.Str(it))
		}
	}
	return out
}

// localTemplate reads what templates import by absolute paths: files that the
// master serves to all minions anyway, since minions can influence the name.
func (m *Master) localTemplate(_, path string) ([]byte, error) {
	f, ok := m.fileServer().FindLocal(path, "")
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return os.ReadFile(f.Path)
}

// ownFiles are the master's own files, for the functions in its templates.
func (m *Master) ownFiles() *fileclient.Client {
	return fileclient.New(m.fileServer(), fileclient.Options{CacheDir: m.cfg.CacheDir, HashType: m.options().HashType}, m.log)
}
