// Package fileclient fetches files for a minion or salt-call: from a master's file server, from the local
// file_roots (masterless), and from web servers. It stores them at Salt's paths below the cache directory:
//
//	files/ENV/PATH               salt://PATH of the environment ENV
//	brine/contents/…             the same by hash (Brine only, see store)
//	localfiles/PATH              local files
//	extrn_files/ENV/HOST/PATH    files of http, https and ftp servers
//
// # Contract
//
// A Client belongs to one Source: the master that published a job, or the file server in this process. Each job
// makes a Client for its own master (New is cheap), so that a run never mixes the files of two masters. All
// Clients of a minion share the cache directory; a cached file only counts if its hash is the one that the
// source reports.
//
// Use Open or Read to read files: they return exactly the content whose hash the source reported, even if a
// run for another master replaces the file in the cache meanwhile. Content returns a path with the same
// guarantee. CacheFile returns Salt's path, for functions and programs that need it.
//
// Files are fetched to a temporary file in the same directory, compared with the hash and renamed, so a
// reader never sees a partial file.
//
// A salt:// URL may carry its environment as ?saltenv=NAME, which takes precedence over the argument. A path
// that begins with | is taken literally, including any ?. A missing file is an error of kind salt.NotFound,
// which also matches fs.ErrNotExist.
package fileclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Source answers the commands of a file server (_file_list, _serve_file and others, each a dict with cmd): a
// channel to a master, or the file server of this process.
type Source interface {
	Request(ctx context.Context, load *value.Dict) (any, error)
}

// Options configure where files are stored and how they are fetched.
type Options struct {
	// CacheDir is the minion's cachedir.
	CacheDir string
	// HashType is the hash algorithm for files of this machine.
	HashType string
	// Web configures how files of web servers are fetched.
	Web WebOptions
	// Trees, if set, caches lists of files across jobs.
	Trees *Trees
}

// Client fetches files. Any number of goroutines may use it.
type Client struct {
	origin *origin
	o      Options
	log    *slog.Logger
	run    run
}

// New returns a client. src may be nil if there is no master: then only files of this machine and of the web
// are available.
func New(src Source, o Options, log *slog.Logger) *Client {
	if o.HashType == "" {
		o.HashType = "sha256"
	}
	return &Client{origin: newOrigin(src, log), o: o, log: log}
}

// CacheDir returns the cache directory.
func (c *Client) CacheDir() string { return c.o.CacheDir }

// absent is the message of an error that also matches fs.ErrNotExist.
type absent string

func (a absent) Error() string      { return string(a) }
func (absent) Is(target error) bool { return target == fs.ErrNotExist } // exact: errors.Is unwraps

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func notFound(path, saltenv string) error {
	return salt.Errorf(salt.NotFound, "%w", absent(fmt.Sprintf("there is no file salt://%s in the environment %s", path, saltenv)))
}

// Hash is the hash of a file's content.
type Hash struct {
	// Type names the algorithm. Sum is in hexadecimal digits.
	Type, Sum string
}

// Hash returns the hash of a salt:// file, or of a file of this machine with the algorithm of the option
// hash_type.
func (c *Client) Hash(ctx context.Context, path, saltenv string) (Hash, error) {
	at, ok := locate(path, saltenv)
	if !ok {
		return c.hashLocal(path)
	}
	return c.hashRemote(ctx, at)
}

func (c *Client) hashLocal(path string) (Hash, error) {
	sum, err := hashFile(path, c.o.HashType)
	return Hash{c.o.HashType, sum}, err
}

func (c *Client) hashRemote(ctx context.Context, at location) (Hash, error) {
	t, err := c.tree(ctx, at.env)
	if err != nil {
		return Hash{}, err
	}
	if t != nil {
		if h, known := t.hash(at); known && h.Sum == "" {
			return Hash{}, notFound(at.path, at.env)
		} else if known {
			return h, nil
		}
	}
	v, err := c.origin.request(ctx, "_file_hash", "path", at.path, "saltenv", at.env)
	if err != nil {
		return Hash{}, err
	}
	d, _ := v.(*value.Dict)
	h := Hash{d.Str("hash_type"), d.Str("hsum")}
	if h.Sum == "" {
		return Hash{}, notFound(at.path, at.env)
	}
	return h, nil
}

// Stat returns stat(2) of a salt:// file on its server, or of a file of this machine: mode, ino, dev, nlink,
// uid, gid, size, atime, mtime and ctime, in seconds. It returns nil if the source does not provide it.
func (c *Client) Stat(ctx context.Context, path, saltenv string) ([]int64, error) {
	at, ok := locate(path, saltenv)
	if !ok {
		return statNumbers(path)
	}
	v, err := c.origin.request(ctx, "_file_find", "path", at.path, "saltenv", at.env)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	if d.Str("path") == "" {
		return nil, notFound(at.path, at.env)
	}
	var out []int64
	for _, n := range d.List("stat") {
		i, _ := n.(int64)
		out = append(out, i)
	}
	return out, nil
}

// missing adds the kind NotFound to an error about a missing file.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return salt.Errorf(salt.NotFound, "%w", err)
	}
	return err
}

// Listing names a list that a file server provides for an environment.
type Listing string

// The lists.
const (
	Files     Listing = "_file_list"
	Dirs      Listing = "_dir_list"
	EmptyDirs Listing = "_file_list_emptydirs"
)

// List returns one of the lists, sorted. prefix limits it to names with this prefix; slashes around the
// prefix are ignored.
func (c *Client) List(ctx context.Context, what Listing, saltenv, prefix string) ([]string, error) {
	if what == Files && saltenv != "" {
		t, err := c.tree(ctx, saltenv)
		if err != nil {
			return nil, err
		}
		if t != nil {
			prefix = strings.Trim(prefix, "/")
			out := []string{}
			for _, name := range t.names {
				if strings.HasPrefix(name, prefix) {
					out = append(out, name)
				}
			}
			return out, nil
		}
	}
	v, err := c.origin.request(ctx, string(what), "saltenv", saltenv, "prefix", prefix)
	if err != nil {
		return nil, err
	}
	return texts(v), nil
}

// texts returns the names in a list from a source.
func texts(v any) []string {
	l, _ := v.(*value.List)
	out := make([]string, 0, l.Len())
	if l == nil {
		return out
	}
	for _, it := range l.Items {
		switch s := it.(type) {
		case string:
			out = append(out, s)
		case []byte:
			out = append(out, string(s))
		}
	}
	return out
}

// Symlinks returns the symbolic links of an environment and their targets.
func (c *Client) Symlinks(ctx context.Context, saltenv, prefix string) (*value.Dict, error) {
	return c.origin.dict(ctx, "_symlink_list", "saltenv", saltenv, "prefix", prefix)
}

// Envs returns the names of the environments.
func (c *Client) Envs(ctx context.Context) ([]string, error) {
	v, err := c.origin.request(ctx, "_file_envs")
	if err != nil {
		return nil, err
	}
	return texts(v), nil
}

// MasterOpts returns the options of the source that affect states: file_roots (only the names of the
// environments), state_top, nodegroups and others.
func (c *Client) MasterOpts(ctx context.Context) (*value.Dict, error) {
	return c.origin.dict(ctx, "_master_opts")
}

// MasterTops returns the result of the source's master_tops for a minion: a dict of environments and lists
// of SLS names.
func (c *Client) MasterTops(ctx context.Context, id string, opts *value.Dict) (*value.Dict, error) {
	return c.origin.dict(ctx, "_master_tops", "id", id, "opts", opts)
}

// States returns the names of the SLS files of an environment, sorted.
func (c *Client) States(ctx context.Context, saltenv string) ([]string, error) {
	files, err := c.List(ctx, Files, saltenv, "")
	if err != nil {
		return nil, err
	}
	return StateNames(files), nil
}

// State locates an SLS file at its source and in the cache.
type State struct {
	// Source is the salt:// URL, Dest the path in the cache.
	Source, Dest string
}

// State fetches the SLS file for a name such as web.nginx: web/nginx.sls or web/nginx/init.sls.
func (c *Client) State(ctx context.Context, sls, saltenv string) (State, error) {
	base := strings.ReplaceAll(sls, ".", "/")
	for _, p := range []string{base + ".sls", base + "/init.sls"} {
		dest, err := c.CacheFile(ctx, URL(p), saltenv)
		if err == nil || salt.KindOf(err) != salt.NotFound {
			return State{URL(p), dest}, err
		}
	}
	return State{}, salt.Errorf(salt.NotFound, "%w", absent(fmt.Sprintf("there is no SLS %s in the environment %s", sls, saltenv)))
}

// cachePath returns the path of a salt:// file in the cache.
func (c *Client) cachePath(at location) string {
	return filepath.Join(c.o.CacheDir, "files", at.env, at.file())
}

// IsCached returns the path of a file in the cache, or "" if it is not cached. It sends no request to the
// source.
func (c *Client) IsCached(path, saltenv string) string {
	escaped := strings.HasPrefix(path, "|") || strings.HasPrefix(path, scheme+"|")
	at, ok := locate(path, saltenv)
	if !ok {
		at = location{path: strings.TrimPrefix(path, "/"), env: saltenv}
	}
	if at.check() == nil {
		for _, p := range []string{c.cachePath(at), filepath.Join(c.o.CacheDir, "localfiles", at.file())} {
			if _, err := os.Stat(p); err == nil {
				if escaped {
					return "|" + p
				}
				return p
			}
		}
	}
	if p, err := c.ExternPath(path, saltenv); err == nil && !ok {
		if st, err := os.Stat(p); err == nil && !st.IsDir() {
			return p
		}
	}
	return ""
}

// Forget removes a file from the cache, if it exists.
func (c *Client) Forget(url, saltenv string) error {
	path := strings.TrimPrefix(c.IsCached(url, saltenv), "|")
	if path == "" {
		return nil
	}
	if err := c.store().forget(path, c.o.HashType); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %s from the cache: %w", redact.Text(url), err)
	}
	return nil
}

// CacheDest returns the path at which a file would be cached.
func (c *Client) CacheDest(url, saltenv string) (string, error) {
	if at, ok := locate(url, saltenv); ok {
		return c.cachePath(at), at.check()
	}
	if !strings.Contains(url, "://") {
		return url, nil
	}
	return c.ExternPath(url, saltenv)
}

// Cached returns the sorted paths of all cached files of an environment and of this machine.
func (c *Client) Cached(saltenv string) ([]string, error) {
	if !filepath.IsLocal(saltenv) {
		return nil, nil
	}
	return walkFiles(filepath.Join(c.o.CacheDir, "files", saltenv), filepath.Join(c.o.CacheDir, "localfiles"))
}
