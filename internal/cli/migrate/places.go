package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/cli/frame"
	"brine/internal/cli/session"
	"brine/internal/daemons/config"
	"brine/internal/daemons/master"
	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/migrate"
	"brine/internal/store/returner"
)

// program is one run.
type program struct {
	env      *frame.Env
	o        *options
	from, to *side
	show     *frame.Display
	line     *frame.Line
}

// side is the configuration of the source master or the target master.
type side struct {
	path  string
	conf  *config.Master
	opts  *value.Dict
	place string // the option --from or --to
}

var quiet = slog.New(slog.DiscardHandler)

// open reads the configurations of both sides.
func (p *program) open(given bool) error {
	usual := p.o.ConfigDir
	if !given {
		usual = ""
	}
	load := func(dir, place string) (*side, error) {
		if dir == "" {
			dir = usual
		} else if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return nil, salt.Errorf(salt.Invalid, "%s is not a directory with the configuration of a master", dir)
		}
		s := &side{path: config.Path(config.MasterKind, dir, p.env.Getenv), place: place}
		tree, err := config.Load(s.path, config.MasterKind, quiet)
		if err != nil {
			return nil, err
		}
		machine := config.ThisMachine()
		machine.FullName = func(name string) string { return name }
		if s.conf, err = config.NewMaster(tree, machine, quiet); err != nil {
			return nil, err
		}
		s.opts, err = config.Dump(tree, s.conf)
		return s, err
	}
	var err error
	if p.from, err = load(p.o.FromConfig, p.o.From); err != nil {
		return err
	}
	if p.to, err = load(p.o.ToConfig, p.o.To); err != nil {
		return err
	}
	if name := p.to.conf.Files.User; os.Geteuid() == 0 && name != "" && name != "root" && !p.o.DryRun {
		if u, err := user.Lookup(name); err == nil && u.Uid != "0" {
			return salt.Errorf(salt.Invalid, "the master of the target runs as %s, which could not change files of root: run this command as %s", name, name)
		}
	}
	if p.show, err = (&frame.Output{Out: p.o.Out}).Open(p.env, p.to.conf.Output, quiet); err != nil {
		return err
	}
	p.line = p.env.Live()
	return nil
}

// named is a report with the name of its data.
type named struct {
	name string
	migrate.Report
}

// copy copies one kind of data.
func (p *program) copy(ctx context.Context, what string) ([]named, error) {
	o := migrate.Options{DryRun: p.o.DryRun, Progress: progress(p.line)}
	switch what {
	case keys:
		return p.copyKeys(ctx, o)
	case jobs:
		r, err := p.copyJobs(ctx, o)
		return []named{{jobs, r}}, err
	}
	r, err := p.copyCache(ctx, o)
	return []named{{values, r}}, err
}

func samePlace(a, b string) error {
	if a == b {
		return salt.Errorf(salt.Invalid, "source and target are both %s", a)
	}
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	if err1 == nil && err2 == nil && os.SameFile(x, y) {
		return salt.Errorf(salt.Invalid, "%s and %s are the same directory", a, b)
	}
	return nil
}

// keyDir returns the directory of keys.
func (s *side) keyDir() string {
	if s.place != "" {
		return s.place
	}
	if s.conf.Cluster.On() && s.conf.Cluster.PKIDir != "" {
		return s.conf.Cluster.PKIDir
	}
	return s.conf.Files.PKIDir
}

func (p *program) copyKeys(ctx context.Context, o migrate.Options) (out []named, err error) {
	from, to := p.from.keyDir(), p.to.keyDir()
	if err := samePlace(from, to); err != nil {
		return nil, err
	}
	if p.o.KeyPair == "" { // a file of exported keys has no key pair
		dir, done, err := keysOf(from)
		if err != nil {
			return nil, err
		}
		defer done()
		from = dir
	}
	if st, err := os.Stat(filepath.Join(from, keystore.Accepted.DirName())); err != nil || !st.IsDir() {
		return nil, salt.Errorf(salt.NotFound, "%s is not a directory of keys: it has no directory %s", from, keystore.Accepted.DirName())
	}
	if o.DryRun {
		if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
			// Opening a missing target would create it.
			if to, err = os.MkdirTemp("", "brine-migrate-"); err != nil {
				return nil, err
			}
			defer os.RemoveAll(to)
		}
	}
	if p.o.KeyPair != "" { // copied first, so that a master that starts meanwhile creates no pair
		r, err := migrate.KeyPair(from, to, p.o.KeyPair, p.from.conf.Options.KeyPass, o)
		out = append(out, named{"key_pair", r})
		if err != nil {
			return out, err
		}
	}
	source, err := keystore.Open(from, quiet)
	if err != nil {
		return out, err
	}
	target, err := keystore.Open(to, quiet)
	if err != nil {
		return out, err
	}
	if p.to.conf.Cluster.Isolated {
		target = target.As(keystore.NoteBeside(p.to.conf.Files.CacheDir, quiet), client.Caller(p.env.Getenv), "brine migrate")
	}
	r, err := migrate.Keys(ctx, source, target, o)
	return append(out, named{keys, r}), err
}

// cacheStore opens a cache driver.
func (s *side) cacheStore() (d cache.Driver, where string, err error) {
	name, dir, _ := strings.Cut(s.place, ":")
	if name == "" {
		name = s.conf.Cache.Driver
	}
	if dir != "" && name != cache.Local {
		return nil, "", salt.Errorf(salt.Invalid, "%s takes no directory: the options of the configuration name its server", name)
	}
	if name == cache.Local {
		if dir == "" {
			dir = s.conf.Files.CacheDir
		}
		return cache.Files(dir), dir, nil
	}
	// A copy has longer timeouts than the requests of a master.
	d, err = drivers.Open(name, remote.Options(s.opts), max(s.conf.Cache.Timeout, waitLimit))
	return d, name + " of " + s.path, err
}

// waitLimit is the timeout of each wait for a server.
const waitLimit = 20 * time.Second

func (p *program) copyCache(ctx context.Context, o migrate.Options) (r migrate.Report, err error) {
	from, a, err := p.from.cacheStore()
	if err != nil {
		return r, err
	}
	defer from.Close()
	to, b, err := p.to.cacheStore()
	if err != nil {
		return r, err
	}
	defer to.Close()
	if err := samePlace(a, b); err != nil {
		return r, err
	}
	banks := p.o.Bank
	if len(banks) == 0 {
		banks = []string{"minions"}
	}
	return migrate.Cache(ctx, from, to, banks, o)
}

// The places of jobs that are not returners.
const (
	placeDatabase = "brine"
	placeFiles    = "local_cache"
)

// jobPlace parses the option.
func (s *side) jobPlace() (name, dir string, err error) {
	name, dir, _ = strings.Cut(s.place, ":")
	if name == "" {
		switch cache := s.conf.Returners.JobCache; {
		case cache != "" && cache != placeFiles && cache != "local":
			name = cache
		case s.conf.Cluster.On() && !s.conf.Cluster.Isolated:
			name = placeFiles
		default:
			name = placeDatabase
		}
	}
	switch {
	case dir != "" && name != placeFiles:
		return "", "", salt.Errorf(salt.Invalid, "%s takes no directory: it is set in the configuration", name)
	case name == placeDatabase && s.conf.Cluster.On() && !s.conf.Cluster.Isolated:
		return "", "", salt.Errorf(salt.Invalid,
			"the masters of a cluster with a shared directory keep jobs in Salt's files and have no database of their own: use %s", placeFiles)
	case name != placeDatabase && name != placeFiles && !slices.Contains(returner.Names(), name):
		return "", "", salt.Errorf(salt.Invalid, "unknown place for jobs %q: use %s, %s or one of the returners %s", name, placeDatabase,
			placeFiles, strings.Join(returner.Names(), ", "))
	}
	if dir == "" {
		dir = s.conf.Files.CacheDir
	}
	return name, dir, nil
}

func (p *program) copyJobs(ctx context.Context, o migrate.Options) (r migrate.Report, err error) {
	name, dir, err := p.from.jobPlace()
	if err != nil {
		return r, err
	}
	toName, toDir, err := p.to.jobPlace()
	if err != nil {
		return r, err
	}
	if name == toName && dir == toDir && (name == placeDatabase || name == placeFiles || p.from.path == p.to.path) {
		return r, salt.Errorf(salt.Invalid, "source and target are both %s", name)
	}
	from, close, err := p.jobMemory(p.from, name, dir, false)
	if err != nil {
		return r, err
	}
	defer close()
	to, close, err := p.jobMemory(p.to, toName, toDir, !o.DryRun)
	if err != nil {
		return r, err
	}
	defer close()
	return migrate.CopyJobs(ctx, from, to, o)
}

// jobMemory opens a job store.
func (p *program) jobMemory(s *side, name, dir string, write bool) (t migrate.Target, close func(), err error) {
	nothing := func() {}
	files, err := job.NewLocalCache(dir, s.conf.Options.HashType)
	if err != nil {
		return nil, nil, err
	}
	switch name {
	case placeFiles:
		return migrate.Files{Cache: files}, nothing, nil
	case placeDatabase:
		return p.database(s, files, write)
	}
	c := returner.Config{Source: remote.Options(s.opts), Keep: s.conf.Jobs.Keep(), Timeout: max(s.conf.Returners.Timeout, waitLimit),
		MasterID: s.conf.Files.ID, History: true}
	ret, err := returner.Open(name, c)
	if err != nil {
		return nil, nil, err
	}
	return migrate.Server{R: ret, OnlyTexts: returner.Texts(name), Timeout: c.Timeout}, func() { ret.Close() }, nil
}

// database opens the master's own job database: directly, or through the master if the master has
// it open.
func (p *program) database(s *side, files *job.LocalCache, write bool) (migrate.Target, func(), error) {
	own, err := master.OwnDir(&master.Config{ID: s.conf.Files.ID, CacheDir: s.conf.Files.CacheDir, Cluster: s.conf.Cluster})
	if err != nil {
		return nil, nil, err
	}
	var store *job.Store
	switch {
	case write && s.conf.Cluster.Isolated:
		// Jobs that the master does not write itself would not reach the other members.
		err = salt.Errorf(salt.Unavailable, "the master has it open")
	case write:
		store, err = job.Open(own, s.conf.Jobs, quiet)
	default:
		store, err = job.OpenReadOnly(own, s.conf.Jobs, quiet)
	}
	switch {
	case err == nil:
		return migrate.Database{Store: store}, func() { store.Close() }, nil
	case salt.KindOf(err) == salt.NotFound && s == p.to: // a dry run
		files, err := job.NewLocalCache(filepath.Join(own, "none"), "")
		return migrate.Files{Cache: files}, func() {}, err
	case salt.KindOf(err) != salt.Unavailable:
		return nil, nil, err
	}
	c, close, err := session.LocalMaster(s.path, p.env.Getenv, quiet)
	if err != nil {
		return nil, nil, err
	}
	m := &migrate.Running{Files: files, Options: s.conf.Jobs,
		Adopt: func(ctx context.Context) error {
			_, err := ask(ctx, c, "jobs.adopt")
			return err
		},
		Snapshot: func(ctx context.Context) (*job.Store, error) {
			ret, err := ask(ctx, c, "jobs.snapshot")
			if err != nil {
				return nil, err
			}
			dir := value.Str(ret)
			store, err := job.OpenReadOnly(dir, s.conf.Jobs, quiet)
			os.RemoveAll(dir) // the store stays usable: its files are open
			return store, err
		},
	}
	return m, func() { m.Close(); close() }, nil
}

// ask runs a runner.
func ask(ctx context.Context, c *client.Client, fun string) (any, error) {
	d, err := c.Run(ctx, client.Runner{Fun: fun}, nil, nil)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "the master that has the job database open does not answer: %w", err)
	}
	if d.At("success") != true {
		return nil, fmt.Errorf("%s", value.Str(d.At("return")))
	}
	return d.At("return"), nil
}
