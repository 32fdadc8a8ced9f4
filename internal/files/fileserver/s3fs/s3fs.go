// Package s3fs is the file server backend for buckets of Amazon S3 and compatible
// services. Depending on the form of the option s3.buckets, each environment has
// some buckets, or each bucket has a directory for each environment.
//
// The list of objects is fetched periodically and stored on disk, so that a master
// can serve stored contents while the service is unreachable. Only complete lists
// are used. Contents are stored by bucket, key and ETag.
package s3fs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/files/fetch"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

// Options are Salt's options of s3fs.
type Options struct {
	Buckets    any           `salt:"s3.buckets" default:"null" doc:"buckets with files: a map of environments to lists of buckets, or a list of buckets that have a directory for each environment" change:"live"`
	KeyID      string        `salt:"s3.keyid" default:"" doc:"id of the access key; empty: of the environment (AWS_ACCESS_KEY_ID), or none" change:"live"`
	Key        string        `salt:"s3.key" default:"" doc:"secret access key" change:"live"`
	ServiceURL string        `salt:"s3.service_url" default:"s3.amazonaws.com" doc:"host of the service, with a port if it has one of its own" change:"live"`
	VerifySSL  bool          `salt:"s3.verify_ssl" default:"true" doc:"refuse servers whose certificate is not known" change:"live"`
	Location   string        `salt:"s3.location" default:"us-east-1" doc:"region of the buckets" change:"live"`
	PathStyle  bool          `salt:"s3.path_style" default:"false" doc:"name the bucket in the path, not in the name of the host" change:"live"`
	HTTPS      bool          `salt:"s3.https_enable" default:"true" doc:"use https" change:"live"`
	Sync       bool          `salt:"s3.s3_sync_on_update" default:"true" doc:"fetch all files when they change, not when they are asked for first" change:"live"`
	Expire     time.Duration `salt:"s3.s3_cache_expire" default:"30" doc:"seconds between looks at the buckets" change:"live"`
}

// FS is the file server backend.
type FS struct {
	o       Options
	name    string
	dir     string
	perEnv  bool
	buckets []bucket
	c       *client
	ignored func(string) bool
	alone   bool
	log     *slog.Logger

	mu    sync.Mutex
	l     *listing
	turn  fetch.Turn
	fault string

	fetching sync.Mutex
	updating sync.Mutex
}

// bucket is a bucket in the option. env is its environment, "" if it holds several.
type bucket struct{ env, name string }

// listing holds the objects that the last update found, by bucket.
type listing struct {
	Buckets map[string][]object `json:"buckets"`
	Time    time.Time           `json:"time"`

	envs map[string]*environment
}

type environment struct {
	files map[string]place
	lists *fileserver.Lists
}

type place struct {
	bucket string
	object object
}

var _ fileserver.Fetcher = (*FS)(nil)

// New returns the backend for a cachedir. alone means that Due is not called.
func New(o Options, name, cacheDir string, ignored func(string) bool, alone bool, log *slog.Logger) (*FS, error) {
	f := &FS{o: o, name: name, dir: filepath.Join(cacheDir, "s3cache"), c: newClient(o), ignored: ignored, alone: alone, log: log}
	switch x := o.Buckets.(type) {
	case *value.Dict:
		f.perEnv = true
		for env, names := range x.All() {
			for _, n := range value.Texts(names) {
				f.buckets = append(f.buckets, bucket{value.Str(env), n})
			}
		}
	case *value.List:
		for _, n := range value.Texts(x) {
			f.buckets = append(f.buckets, bucket{"", n})
		}
	default:
		return nil, salt.Errorf(salt.Invalid, "s3.buckets is a %s, not a map of environments or a list", value.TypeName(o.Buckets))
	}
	for _, b := range f.buckets {
		if b.name == "" || strings.Trim(b.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != "" || strings.Contains(b.name, "..") {
			return nil, salt.Errorf(salt.Invalid, "%q of s3.buckets is no name of a bucket", b.name)
		}
	}
	if o.KeyID != "" && o.Key == "" {
		return nil, salt.Errorf(salt.Invalid, "s3.keyid is set, but not s3.key")
	}
	return f, nil
}

// Name implements fileserver.Backend.
func (f *FS) Name() string { return f.name }

// now returns the current listing, nil if nothing has been fetched yet.
func (f *FS) now() *listing {
	if f.alone {
		if _, _, err := f.Due(context.Background(), true); err != nil {
			f.log.Error("cannot update s3fs", "err", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.l == nil {
		b, err := os.ReadFile(filepath.Join(f.dir, "listing.json"))
		if err != nil {
			return nil
		}
		l := &listing{}
		if err := json.Unmarshal(b, l); err != nil {
			f.log.Error("cannot read the bucket lists of s3fs", "err", err)
			return nil
		}
		f.arrange(l)
		f.l = l
	}
	return f.l
}

// arrange computes the environments of a listing.
func (f *FS) arrange(l *listing) {
	l.envs = map[string]*environment{}
	for _, b := range f.buckets {
		for _, o := range l.Buckets[b.name] {
			env, name := b.env, o.Key
			if !f.perEnv {
				var ok bool
				if env, name, ok = strings.Cut(o.Key, "/"); !ok {
					continue
				}
			}
			f.enter(l, env, name, place{b.name, o})
		}
	}
	for _, e := range l.envs {
		dirs := map[string]bool{}
		for _, d := range e.lists.Dirs {
			dirs[d] = true
		}
		for name := range e.files {
			e.lists.Files = append(e.lists.Files, name)
			for d := path.Dir(name); d != "." && !dirs[d]; d = path.Dir(d) {
				dirs[d] = true
			}
		}
		e.lists.Dirs = e.lists.Dirs[:0]
		for d := range dirs {
			e.lists.Dirs = append(e.lists.Dirs, d)
		}
		slices.Sort(e.lists.Files)
		slices.Sort(e.lists.Dirs)
	}
}

func (f *FS) enter(l *listing, env, name string, p place) {
	e := l.envs[env]
	if e == nil {
		e = &environment{files: map[string]place{}, lists: &fileserver.Lists{Links: map[string]string{}}}
		l.envs[env] = e
	}
	dir, isDir := strings.CutSuffix(name, "/")
	if dir == "" || !filepath.IsLocal(dir) || path.Clean(dir) != dir || !utf8.ValidString(dir) {
		return
	}
	if isDir {
		e.lists.Dirs = append(e.lists.Dirs, dir)
		return
	}
	if _, ok := e.files[name]; !ok && !f.ignored(name) {
		e.files[name] = p
	}
}

// Envs implements fileserver.Backend.
func (f *FS) Envs() []string {
	var out []string
	if l := f.now(); l != nil {
		for env := range l.envs {
			out = append(out, env)
		}
	}
	slices.Sort(out)
	return out
}

// Lists implements fileserver.Backend.
func (f *FS) Lists(_ context.Context, env string) (*fileserver.Lists, error) {
	if l := f.now(); l != nil && l.envs[env] != nil {
		return l.envs[env].lists, nil
	}
	return &fileserver.Lists{Links: map[string]string{}}, nil
}

// Find implements fileserver.Backend.
func (f *FS) Find(env, name string, _ map[string]string) (fileserver.Found, bool) {
	l := f.now()
	if l == nil || l.envs[env] == nil {
		return fileserver.Found{}, false
	}
	p, ok := l.envs[env].files[name]
	if !ok {
		return fileserver.Found{}, false
	}
	full, err := f.content(context.Background(), p)
	if err != nil {
		f.log.Error("cannot fetch a file of s3fs", "path", name, "saltenv", env, "err", err)
		return fileserver.Found{}, false
	}
	return fileserver.Found{Path: full, Rel: name}, true
}

// content returns the path of a file with the content of an object, and fetches it
// if necessary.
func (f *FS) content(ctx context.Context, p place) (string, error) {
	sum := sha256.Sum256([]byte(p.bucket + "\x00" + p.object.Key + "\x00" + p.object.ETag))
	id := hex.EncodeToString(sum[:])
	full := filepath.Join(f.dir, "objects", id[:2], id[2:])
	whole := func() bool {
		st, err := os.Lstat(full)
		return err == nil && st.Mode().IsRegular() && st.Size() == p.object.Size
	}
	if whole() {
		return full, nil
	}
	f.fetching.Lock()
	defer f.fetching.Unlock()
	if whole() {
		return full, nil
	}
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		return "", err
	}
	body, err := f.c.get(ctx, p.bucket, p.object.Key, nil)
	if err != nil {
		return "", err
	}
	defer body.Close()
	return full, atomicfile.Replace(full, 0o600, func(w io.Writer) error {
		n, err := io.Copy(w, io.LimitReader(body, p.object.Size+1))
		if err == nil && n != p.object.Size {
			err = fmt.Errorf("the object %s of the bucket %s has another size than its list says; it has changed", p.object.Key, p.bucket)
		}
		return err
	})
}

// Update implements fileserver.Backend.
func (f *FS) Update(ctx context.Context) (fileserver.Changes, error) {
	f.updating.Lock()
	defer f.updating.Unlock()
	f.turn.Take()
	c := fileserver.Changes{Backend: "s3fs", Faults: map[string]string{}}
	changed, err := f.update(ctx)
	c.Any = changed
	f.mu.Lock()
	defer f.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != f.fault {
		c.Faults["s3"] = text
	}
	f.fault = text
	if err == nil {
		c.Fetched = fetch.States{told: f.l.state()}
	}
	return c, err
}

func (f *FS) update(ctx context.Context) (changed bool, err error) {
	l := &listing{Buckets: map[string][]object{}, Time: time.Now().UTC()}
	for _, b := range f.buckets {
		if _, ok := l.Buckets[b.name]; ok {
			continue
		}
		objects, err := f.c.list(ctx, b.name)
		if err != nil {
			return false, err
		}
		l.Buckets[b.name] = objects
	}
	f.arrange(l)
	f.mu.Lock()
	old := f.l
	f.mu.Unlock()
	if f.o.Sync {
		for _, env := range slices.Sorted(maps.Keys(l.envs)) {
			files := l.envs[env].files
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if _, err := f.content(ctx, files[name]); err != nil {
					return false, err
				}
			}
		}
	}
	b, err := json.Marshal(l)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return false, err
	}
	if err := atomicfile.Write(filepath.Join(f.dir, "listing.json"), b, 0o600, true); err != nil {
		return false, err
	}
	f.mu.Lock()
	f.l = l
	f.mu.Unlock()
	f.sweep(l)
	return old == nil || !same(old, l), nil
}

func same(a, b *listing) bool {
	if len(a.Buckets) != len(b.Buckets) {
		return false
	}
	for name, objects := range a.Buckets {
		if !slices.Equal(objects, b.Buckets[name]) {
			return false
		}
	}
	return true
}

// sweep removes contents that have not been listed for some time.
func (f *FS) sweep(l *listing) {
	used := map[string]bool{}
	for name, objects := range l.Buckets {
		for _, o := range objects {
			sum := sha256.Sum256([]byte(name + "\x00" + o.Key + "\x00" + o.ETag))
			used[hex.EncodeToString(sum[:])] = true
		}
	}
	top := filepath.Join(f.dir, "objects")
	directories, err := os.ReadDir(top)
	if err != nil {
		return
	}
	for _, d := range directories {
		files, err := os.ReadDir(filepath.Join(top, d.Name()))
		if err != nil {
			continue
		}
		for _, e := range files {
			if st, err := e.Info(); err == nil && !used[d.Name()+e.Name()] && steady.Removal().Sub(st.ModTime()) > 24*time.Hour {
				_ = os.Remove(filepath.Join(top, d.Name(), e.Name()))
			}
		}
	}
}

// UpdateOnly implements fileserver.Fetcher. It updates everything, as there is only
// one service.
func (f *FS) UpdateOnly(ctx context.Context, _ []string) (fileserver.Changes, error) {
	return f.Update(ctx)
}

// Due implements fileserver.Fetcher.
func (f *FS) Due(ctx context.Context, leads bool) (fileserver.Changes, bool, error) {
	if !f.turn.Due(max(f.o.Expire, time.Second), leads) {
		return fileserver.Changes{}, false, nil
	}
	c, err := f.Update(ctx)
	return c, true, err
}

// told is the name that identifies the fetched data for other masters.
const told = "s3fs"

// Told implements fileserver.Fetcher.
func (f *FS) Told(states fetch.States, regular bool) {
	state, ok := states[told]
	if !ok {
		return
	}
	f.mu.Lock()
	same := f.l.state() == state
	f.mu.Unlock()
	f.turn.Told(same, regular)
}

// state returns a string that is equal for equal listings, "" for none.
func (l *listing) state() string {
	if l == nil {
		return ""
	}
	b, err := json.Marshal(l.Buckets)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Forget implements fileserver.Backend. It does nothing, as the lists are those of
// the last update.
func (f *FS) Forget([]string) []string { return nil }

// ClearCache implements fileserver.Fetcher.
func (f *FS) ClearCache() (failed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.l = nil
	f.turn.Reset()
	if err := os.RemoveAll(f.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		failed = append(failed, fmt.Sprintf("Unable to delete %s: %v", f.dir, err))
	}
	return failed
}

// Lock implements fileserver.Fetcher: there are no locks.
func (f *FS) Lock(string) (done, failed []string) { return nil, nil }

// ClearLock implements fileserver.Fetcher.
func (f *FS) ClearLock(string, string) (done, failed []string) { return nil, nil }

// Remotes implements fileserver.Fetcher.
func (f *FS) Remotes() *value.Dict {
	l := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	d := value.DictOf("url", f.c.scheme+"://"+f.c.host, "served_since", nil, "error", nil)
	if l != nil {
		d.Set("served_since", l.Time.Format(time.RFC3339))
	}
	if f.fault != "" {
		d.Set("error", f.fault)
	}
	return value.DictOf("s3", d)
}
