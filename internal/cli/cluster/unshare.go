package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/ha/cluster"
	"brine/internal/store/keystore"
	"brine/internal/store/migrate"
)

// unsharedConf is the file with the options of a master that has left the
// shared directory. Its name sorts after cluster.conf, so that it takes
// precedence.
const unsharedConf = "cluster.unshared.conf"

// unshare moves the master of this machine from the directory shared with the other masters to its
// own directories: it copies the contents and writes the options. In the shared directory it adds
// only the secret, with which the other masters later join the same cluster.
func unshare(ctx context.Context, env *frame.Env, o *options) error {
	path := config.Path(config.MasterKind, o.Resolve(env), env.Getenv)
	quiet := slog.New(slog.DiscardHandler)
	c, _, err := config.LoadMaster(path, quiet)
	if err != nil {
		return err
	}
	switch {
	case !c.Cluster.On():
		return salt.Errorf(salt.Invalid, "this master is not in a cluster: run brine cluster init or join first")
	case c.Cluster.Isolated:
		return salt.Errorf(salt.Exists, "this master has no shared directory already")
	case len(c.Cluster.Peers) == 0:
		return salt.Errorf(salt.Invalid, "cluster_peers names no other master")
	}
	from := directories{c.Cluster.PKIDir, c.Files.CacheDir}
	to := directories{o.PKIDir, o.CacheDir}
	if to.pki == "" {
		to.pki = filepath.Join(c.Files.PKIDir, "cluster")
	}
	if to.cache == "" {
		to.cache = strings.TrimRight(from.cache, "/") + "-own"
	}
	for _, dir := range []string{to.pki, to.cache} {
		switch {
		case !filepath.IsAbs(dir):
			return salt.Errorf(salt.Invalid, "%s is not an absolute path", dir)
		case within(dir, from.pki) || within(dir, from.cache):
			return salt.Errorf(salt.Invalid, "%s is in the shared directory: name a local directory with --pki-dir or --cache-dir", dir)
		}
	}
	conf := filepath.Join(filepath.Dir(path), "master.d", unsharedConf)
	if _, err := os.Lstat(conf); err == nil {
		return salt.Errorf(salt.Exists, "%s exists already", conf)
	}
	if _, err := os.Stat(filepath.Join(from.pki, cluster.KeyFile)); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot read the keys of the cluster: %w", err)
	}
	secret, err := commonSecret(from.pki)
	if err != nil {
		return err
	}
	keys, files, err := from.copyTo(ctx, to, c.Files.ID, quiet)
	if err != nil {
		return err
	}
	root := strings.TrimRight(c.Files.RootDir, "/")
	text := fmt.Sprintf("# Written by brine cluster unshare. Keep its secrets to the masters of this cluster.\n"+
		"cluster_isolated_filesystem: True\ncluster_secret: %s\ncluster_pki_dir: %s\ncachedir: %s\n",
		secret, to.pki, strings.TrimPrefix(to.cache, root))
	if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Create(conf, []byte(text), 0o600); err != nil {
		return err
	}
	now, _, err := config.LoadMaster(path, quiet)
	if err == nil && (!now.Cluster.Isolated || now.Cluster.PKIDir != to.pki || filepath.Clean(now.Files.CacheDir) != filepath.Clean(to.cache)) {
		err = salt.Errorf(salt.Invalid,
			"%s has no effect: a configuration file that is read later sets cluster_isolated_filesystem, cluster_pki_dir or cachedir "+
				"(or default_include names another directory); remove them there", conf)
	}
	if err != nil {
		return errors.Join(err, os.Remove(conf))
	}
	fmt.Fprintf(env.Stdout, "copied %d minion keys and %d files to %s and %s; the options are in %s. Start the master of this machine, then do "+
		"the same on the others, one after the other.\n", keys, files, to.pki, to.cache, conf)
	return nil
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// commonSecret returns the secret for the masters that leave a shared directory. The first one
// creates it there.
func commonSecret(pki string) (string, error) {
	var b [16]byte
	rand.Read(b[:])
	err := atomicfile.Create(filepath.Join(pki, cluster.SecretFile), []byte(hex.EncodeToString(b[:])+"\n"), 0o600)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return cluster.CurrentSecret(pki, "")
}

// directories are the directories of a master's cluster data.
type directories struct{ pki, cache string }

// copyTo copies the keys and the data of minions. Existing keys stay, other
// existing files are replaced.
func (f directories) copyTo(ctx context.Context, to directories, id string, log *slog.Logger) (keys, files int, err error) {
	for _, dir := range []string{to.pki, to.cache} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return 0, 0, salt.Errorf(salt.Unavailable, "cannot create a directory: %w", err)
		}
	}
	source, err := keystore.Open(f.pki, log)
	if err != nil {
		return 0, 0, err
	}
	target, err := keystore.Open(to.pki, log)
	if err != nil {
		return 0, 0, err
	}
	r, err := migrate.Keys(ctx, source, target, migrate.Options{})
	if err == nil && r.Failed+r.Kept > 0 {
		err = salt.Errorf(salt.Unavailable, "cannot copy all keys of minions: %s", strings.Join(r.Notes, "; "))
	}
	if err != nil {
		return 0, 0, err
	}
	audit := filepath.Join("brine/masters", id, "audit")
	// Copy the cluster's key last: with it this master is a member.
	for _, pair := range [][2]string{
		{filepath.Join(f.cache, "minions"), filepath.Join(to.cache, "minions")},
		{filepath.Join(f.cache, "tokens"), filepath.Join(to.cache, "tokens")},
		{filepath.Join(f.cache, audit), filepath.Join(to.cache, audit)},
		{filepath.Join(f.pki, "peers"), filepath.Join(to.pki, "peers")},
		{filepath.Join(f.pki, "members"), filepath.Join(to.pki, "members")},
		{filepath.Join(f.pki, "roster"), filepath.Join(to.pki, "roster")},
		{filepath.Join(f.pki, cluster.SecretFile), filepath.Join(to.pki, cluster.SecretFile)},
		{filepath.Join(f.pki, ".aes"), filepath.Join(to.pki, ".aes")},
		{filepath.Join(f.pki, cluster.PublicFile), filepath.Join(to.pki, cluster.PublicFile)},
		{filepath.Join(f.pki, cluster.KeyFile), filepath.Join(to.pki, cluster.KeyFile)},
	} {
		n, err := copyAll(ctx, pair[0], pair[1])
		if err != nil {
			return 0, 0, salt.Errorf(salt.Unavailable, "cannot copy %s: %w", pair[0], err)
		}
		files += n
	}
	return r.Found, files, nil
}

// copyAll copies a file, or a directory recursively. Missing files are skipped.
func copyAll(ctx context.Context, from, to string) (n int, err error) {
	err = filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		fi, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir():
			return os.MkdirAll(target, fi.Mode().Perm())
		case !e.Type().IsRegular() || strings.HasPrefix(e.Name(), atomicfile.TempPrefix):
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(target), 0o700)
		}
		if err == nil {
			err = atomicfile.Write(target, b, fi.Mode().Perm(), true)
		}
		n++
		return err
	})
	return n, err
}
