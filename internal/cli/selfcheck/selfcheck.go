// Package selfcheck is the program `brine self-check`: it compares an installation with the
// manifests of its packages, and checks who can read the private keys.
package selfcheck

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
)

var command = frame.Command{
	Name: "self-check", Usage: "[options]",
	Doc: "Verifies an installation from packages: the content and mode of each file, the links of the programs, units that are masked, and the owner and " +
		"mode of the keys of master and minion. It changes nothing. The exit code is 1 if something is wrong. Example: brine self-check.",
}

type options struct {
	Config string `flag:"-c --config-dir" arg:"DIR" default:"/etc/salt" doc:"Directory of the configuration. Default: %default."`
	Root   string `flag:"--root" arg:"DIR" default:"/" doc:"Root directory of the installation. Default: %default."`
}

// manifests is the directory of the package manifests. A line has a kind, a mode, a hash or link
// target, and a path.
const manifests = "usr/share/brine/manifest"

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "verify an installation from packages", Run: run}
}

func run(_ context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	if len(inv.Args) > 0 {
		return command.Fail(env, "unexpected argument "+inv.Args[0])
	}
	c := &check{root: o.Root, out: env.Stdout}
	c.packages()
	c.keys(config.MasterKind, o.Config)
	c.keys(config.MinionKind, o.Config)
	if c.faults > 0 {
		fmt.Fprintf(env.Stdout, "%d fault(s) in %d files of %d packages\n", c.faults, c.files, c.count)
		return frame.ExitFailure
	}
	fmt.Fprintf(env.Stdout, "OK: %d files of %d packages\n", c.files, c.count)
	return frame.ExitOK
}

// check is one run of the program.
type check struct {
	root   string
	out    io.Writer
	files  int // listed in manifests
	count  int // number of manifests
	faults int
}

func (c *check) fault(format string, args ...any) {
	c.faults++
	fmt.Fprintf(c.out, format+"\n", args...)
}

// reinstall is the advice for a file that differs from its package.
const reinstall = "install the package again"

// packages compares the files of all packages with their manifests.
func (c *check) packages() {
	paths, err := filepath.Glob(filepath.Join(c.root, manifests, "*"))
	if err != nil || len(paths) == 0 {
		c.fault("%s: no manifest; this installation is not from packages", filepath.Join(c.root, manifests))
		return
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			c.fault("%v", err)
			continue
		}
		c.count++
		for line := range strings.Lines(string(text)) {
			f := strings.SplitN(strings.TrimSpace(line), " ", 4)
			if len(f) != 4 {
				c.fault("%s: invalid line %q; %s", path, line, reinstall)
				continue
			}
			c.files++
			if f[0] == "link" {
				c.link(f[3], f[2])
			} else {
				c.file(f[3], f[1], f[2])
			}
			c.masked(f[3])
		}
	}
}

func (c *check) link(path, target string) {
	switch got, err := os.Readlink(filepath.Join(c.root, path)); {
	case err != nil:
		c.fault("%s: %v; %s", path, reason(err), reinstall)
	case got != target:
		c.fault("%s: leads to %s instead of %s; %s", path, got, target, reinstall)
	}
}

func (c *check) file(path, mode, hash string) {
	// An installation may leave out the documentation, as container images do.
	f, err := os.Open(filepath.Join(c.root, path))
	if errors.Is(err, fs.ErrNotExist) && (strings.HasPrefix(path, "/usr/share/doc/") || strings.HasPrefix(path, "/usr/share/man/")) {
		return
	}
	if err != nil {
		c.fault("%s: %v; %s", path, reason(err), reinstall)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		c.fault("%s: %v", path, reason(err))
		return
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		c.fault("%s: %v", path, reason(err))
		return
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != hash {
		c.fault("%s: its content differs from the package's; %s", path, reinstall)
	}
	bits := uint64(info.Mode().Perm())
	if info.Mode()&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if got := strconv.FormatUint(bits, 8); got != mode {
		c.fault("%s: has mode %s instead of %s; run chmod %s %s", path, got, mode, mode, path)
	}
	if own, ok := info.Sys().(*syscall.Stat_t); ok && own.Uid != 0 && os.Geteuid() == 0 {
		c.fault("%s: belongs to user %d; run chown root:root %s", path, own.Uid, path)
	}
}

// masked reports a unit that an administrator or a removed package has masked.
func (c *check) masked(path string) {
	name := filepath.Base(path)
	if !strings.HasSuffix(name, ".service") {
		return
	}
	if target, err := os.Readlink(filepath.Join(c.root, "etc/systemd/system", name)); err == nil && target == "/dev/null" {
		c.fault("%s: is masked; run systemctl unmask %s", name, name)
	}
}

// reason removes the path from an error, because the message has it.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// owned are the options for the location and the owner of keys.
type owned struct {
	RootDir string `salt:"root_dir" default:"/"`
	User    string `salt:"user" default:""`
	PKIDir  string `salt:"pki_dir" default:""`
}

// keys checks the owner and the mode of a daemon's private keys, if it has any.
func (c *check) keys(k config.Kind, dir string) {
	main := filepath.Join(c.root, dir, string(k))
	if _, err := os.Stat(main); errors.Is(err, fs.ErrNotExist) {
		return
	}
	log := slog.New(slog.DiscardHandler)
	tree, err := config.Load(main, k, log)
	if err != nil {
		c.fault("%v", err)
		return
	}
	var all struct{ Keys owned }
	if err := config.Decode(tree, &all); err != nil {
		c.fault("%v", err)
		return
	}
	o := &all.Keys
	if o.PKIDir == "" {
		o.PKIDir = "/etc/salt/pki/" + string(k)
	}
	if !strings.HasPrefix(o.PKIDir, filepath.Clean(o.RootDir)) {
		o.PKIDir = filepath.Join(o.RootDir, o.PKIDir)
	}
	if o.User == "" {
		o.User = "root"
	}
	owner, err := user.Lookup(o.User)
	if err != nil {
		c.fault("%s: user %s: %v; create it or change the option user", main, o.User, err)
		return
	}
	owners := []*user.User{owner}
	if k == config.MinionKind {
		owners = append(owners, c.syndicUser(dir)...)
	}
	pki := filepath.Join(c.root, o.PKIDir)
	info, err := os.Stat(pki)
	if errors.Is(err, fs.ErrNotExist) {
		return // the daemon has not run yet
	}
	if err != nil {
		c.fault("%v", err)
		return
	}
	c.private(pki, info, owners, 0o027, "750")
	keys, err := filepath.Glob(filepath.Join(pki, "*.pem"))
	if err != nil {
		c.fault("%v", err)
	}
	slices.Sort(keys)
	for _, path := range keys {
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			c.fault("%v", err)
		case info.Mode().IsRegular():
			c.private(path, info, owners, 0o077, "600")
		}
	}
}

// syndicUser returns the user of the syndic that is configured beside a minion, if there is one: it
// takes over the minion's keys, as Salt's does.
func (c *check) syndicUser(dir string) []*user.User {
	tree, err := config.Load(filepath.Join(c.root, dir, string(config.MasterKind)), config.MasterKind, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil
	}
	var all struct{ Syndic syndicOptions }
	if err := config.Decode(tree, &all); err != nil || tree.Values.At("syndic_master") == nil {
		return nil
	}
	u, err := user.Lookup(cmp.Or(all.Syndic.SyndicUser, all.Syndic.User, "root"))
	if err != nil {
		return nil
	}
	return []*user.User{u}
}

// syndicOptions are the options for the user of a syndic.
type syndicOptions struct {
	User       string `salt:"user" default:""`
	SyndicUser string `salt:"syndic_user" default:""`
}

// private reports a file or directory with one of the refused permissions, or with none of these
// owners.
func (c *check) private(path string, info fs.FileInfo, owners []*user.User, refused fs.FileMode, mode string) {
	if info.Mode().Perm()&refused != 0 {
		c.fault("%s: has mode %o, so that others can read it; run chmod %s %s", path, info.Mode().Perm(), mode, path)
	}
	own, ok := info.Sys().(*syscall.Stat_t)
	is := func(u *user.User) bool { return strconv.FormatUint(uint64(own.Uid), 10) == u.Uid }
	if ok && !slices.ContainsFunc(owners, is) {
		c.fault("%s: belongs to user %d; run chown %s %s", path, own.Uid, owners[0].Username, path)
	}
}
