package fileclient

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

const (
	// attempts bounds how often the fetch of a file is retried because the file changed during the transfer.
	attempts = 5
	// maxInflated bounds the size of one decompressed part in bytes. A master sends parts of
	// file_buffer_size, 1 MiB by default.
	maxInflated = 256 << 20
)

// CacheFile updates the cached copy of a file and returns its path. Besides salt:// it accepts http, https
// and ftp URLs. Local paths and file:// URLs are returned unchanged.
func (c *Client) CacheFile(ctx context.Context, url, saltenv string) (string, error) {
	return c.GetURL(ctx, url, "", URLOptions{Saltenv: saltenv, Makedirs: true})
}

// Open opens a salt:// file. Its content has the hash that the source reported, even if the cache changes
// meanwhile.
func (c *Client) Open(ctx context.Context, url, saltenv string) (*os.File, error) {
	at, ok := locate(url, saltenv)
	if !ok {
		return nil, errScheme(url)
	}
	f, err := c.fetch(ctx, at, c.cachePath(at), fetchOptions{cache: true})
	return f, err
}

// Read returns the content of a salt:// file; see Open.
func (c *Client) Read(ctx context.Context, url, saltenv string) ([]byte, error) {
	f, err := c.Open(ctx, url, saltenv)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// GetOptions control GetFile.
type GetOptions struct {
	Saltenv string
	// Makedirs creates the directory of the file; without it, a missing directory is an error of kind
	// NotFound.
	Makedirs bool
	// Gzip is the compression level of the transfer, 1 to 9; 0 means none.
	Gzip int
}

// GetFile copies a salt:// file to dest, or to the cache if dest is empty, and returns its path. If dest is a
// directory or ends in a slash, the file keeps its name. An existing file with the right content is not
// touched; another one keeps its mode and owner.
func (c *Client) GetFile(ctx context.Context, url, dest string, o GetOptions) (string, error) {
	at, ok := locate(url, o.Saltenv)
	if !ok {
		return "", errScheme(url)
	}
	fo := fetchOptions{makedirs: o.Makedirs, gzip: min(max(o.Gzip, 0), 9)}
	switch {
	case dest == "":
		dest, fo.cache = c.cachePath(at), true
	case isDir(dest) || strings.HasSuffix(dest, "/"):
		dest = filepath.Join(dest, path.Base(at.file()))
	}
	f, err := c.fetch(ctx, at, dest, fo)
	if err != nil {
		return "", err
	}
	return dest, f.Close()
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

type fetchOptions struct {
	cache    bool // dest is in the cache
	makedirs bool
	gzip     int
}

// fetch updates dest from the source, and opens it.
func (c *Client) fetch(ctx context.Context, at location, dest string, o fetchOptions) (*os.File, error) {
	if err := at.check(); err != nil {
		return nil, err
	}
	want, err := c.hashRemote(ctx, at)
	if err != nil {
		return nil, err
	}
	return c.fetchAs(ctx, at, dest, want, o)
}

// fetchAs does the same for a file whose hash the source has just reported.
func (c *Client) fetchAs(ctx context.Context, at location, dest string, want Hash, o fetchOptions) (*os.File, error) {
	for try := 1; ; try++ {
		f, err := c.obtain(ctx, at, dest, want, o)
		var changed *changedError
		if !errors.As(err, &changed) || try == attempts {
			return f, err
		}
		c.run.forget(at.env)
		c.log.Debug("file changed while it was fetched; fetching it again", "path", at.path, "saltenv", at.env)
		if want, err = c.hashRemote(ctx, at); err != nil {
			return nil, err
		}
	}
}

// obtain replaces dest by a file with this hash, if necessary.
func (c *Client) obtain(ctx context.Context, at location, dest string, want Hash, o fetchOptions) (*os.File, error) {
	if c.origin.sharer == nil || !o.cache {
		if f := unchanged(dest, want); f != nil {
			return f, nil
		}
		return c.download(ctx, at, dest, want, o)
	}
	f, err := c.store().keep(ctx, c.origin, at, dest, want, o.gzip)
	if err != nil {
		return nil, err
	}
	if err := c.store().name(want, f, dest); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Content ensures that a file with the current content of a salt:// URL exists, and returns its path. The path
// never gets other content, except by a manual change in the cache.
func (c *Client) Content(ctx context.Context, url, saltenv string) (string, error) {
	if c.origin.sharer == nil {
		return c.CacheFile(ctx, url, saltenv)
	}
	at, ok := locate(url, saltenv)
	if !ok {
		return "", errScheme(url)
	}
	dest := c.cachePath(at)
	f, err := c.fetch(ctx, at, dest, fetchOptions{cache: true})
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), nil
}

// Small is Content for files that may be kept in memory, so that a file used by many states is read once. data
// is the content of the URL. For a large file, data is nil, and path names a file with the content. data must
// not be changed.
func (c *Client) Small(ctx context.Context, url, saltenv string) (data []byte, path string, err error) {
	at, ok := locate(url, saltenv)
	if !ok || at.check() != nil {
		path, err = c.Content(ctx, url, saltenv)
		return nil, path, err
	}
	want, err := c.hashRemote(ctx, at)
	if err != nil {
		return nil, "", err
	}
	if data := c.run.small(at, want); data != nil {
		return data, "", nil
	}
	dest := c.cachePath(at)
	f, err := c.fetchAs(ctx, at, dest, want, fetchOptions{cache: true})
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if c.origin.sharer != nil {
		dest = f.Name() // as in Content
	}
	if data, err = io.ReadAll(io.LimitReader(f, maxSmall+1)); err != nil {
		return nil, "", err
	}
	h := NewHash(want.Type)
	h.Write(data)
	if len(data) > maxSmall || hex.EncodeToString(h.Sum(nil)) != want.Sum { // the cached file may have changed
		return nil, dest, nil
	}
	c.run.keep(at, want, data)
	return data, "", nil
}

// unchanged opens a file that has this hash, or returns nil.
func unchanged(path string, want Hash) *os.File {
	f, err := openRegular(path)
	if err != nil {
		return nil
	}
	if sum, err := hashOf(f, want.Type); err != nil || sum != want.Sum {
		f.Close()
		return nil
	}
	return f
}

// changedError means that the content does not match the reported hash.
type changedError struct{ at location }

func (e *changedError) Error() string {
	return fmt.Sprintf("the file salt://%s of the environment %s does not have the hash that its source tells", e.at.path, e.at.env)
}

// download fetches a file to dest through a temporary file.
func (c *Client) download(ctx context.Context, at location, dest string, want Hash, o fetchOptions) (*os.File, error) {
	if err := prepare(dest, o); err != nil {
		return nil, err
	}
	var f *os.File
	pour := func(w io.Writer) error {
		if err := c.store().pourTo(ctx, c.origin, at, w, want, o.gzip); err != nil {
			return err
		}
		var err error
		f, err = openRegular(w.(*os.File).Name())
		return err
	}
	mode := -1
	if o.cache {
		mode = 0o600
	}
	err := atomicfile.Replace(dest, mode, pour)
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return f, err
}

// prepare creates the directory of a file. In the cache, it removes obstructing files, which are left from an
// earlier state of the source.
func prepare(dest string, o fetchOptions) error {
	dir := filepath.Dir(dest)
	if !o.cache {
		if isDir(dir) {
			return nil
		}
		if !o.makedirs {
			return salt.Errorf(salt.NotFound, "there is no directory %s; makedirs=True makes it", dir)
		}
		return os.MkdirAll(dir, 0o777)
	}
	if st, err := os.Lstat(dest); err == nil && !st.Mode().IsRegular() {
		if err := os.RemoveAll(dest); err != nil {
			return err
		}
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		return nil
	}
	for p := dir; len(p) > 1; p = filepath.Dir(p) { // a file where a directory must be
		if st, e := os.Lstat(p); e == nil {
			if !st.IsDir() {
				os.Remove(p)
			}
			break
		}
	}
	return os.MkdirAll(dir, 0o700)
}

func inflate(part []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(part))
	if err != nil {
		return nil, fmt.Errorf("a part of a file cannot be unpacked: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, maxInflated+1))
	if err == nil && len(out) > maxInflated {
		err = fmt.Errorf("it has more than %d bytes", maxInflated)
	}
	if err != nil {
		return nil, fmt.Errorf("a part of a file cannot be unpacked: %w", err)
	}
	return out, nil
}

// CacheLocal copies a local file into the cache, unless the cached copy is equal, and returns its path there.
func (c *Client) CacheLocal(path string) (string, error) {
	want, err := c.hashLocal(path)
	if err != nil {
		return "", err
	}
	dest := filepath.Join(c.o.CacheDir, "localfiles", path)
	if f := unchanged(dest, want); f != nil {
		return dest, f.Close()
	}
	from, err := openRegular(path)
	if err != nil {
		return "", missing(err)
	}
	defer from.Close()
	if err := prepare(dest, fetchOptions{cache: true}); err != nil {
		return "", err
	}
	return dest, atomicfile.Replace(dest, 0o600, func(w io.Writer) error { _, err := io.Copy(w, from); return err })
}

// walkFiles returns the files below some directories, sorted.
func walkFiles(dirs ...string) ([]string, error) {
	var out []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case !d.IsDir() && !strings.HasPrefix(d.Name(), atomicfile.TempPrefix):
				out = append(out, p)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return sorted(out), nil
}
