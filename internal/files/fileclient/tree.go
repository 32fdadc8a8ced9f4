package fileclient

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Sharer is a Source that supports the commands of Brine masters whose answers are shared by many minions:
// _brine_tree and _brine_part. The error is of kind NotFound for a stock master. The caller calls free when
// it no longer uses shared.
type Sharer interface {
	Source
	RequestShared(ctx context.Context, load *value.Dict) (v any, shared []byte, free func(), err error)
}

// tree is the list of all files of an environment.
type tree struct {
	tag      string
	form     string
	names    []string
	sums     map[string]string
	complete bool
}

// hash returns the hash of a file; known is false if the tree does not know whether the file exists.
func (t *tree) hash(at location) (h Hash, known bool) {
	if strings.HasPrefix(at.path, "/") || strings.Contains(at.path, "?") && !strings.HasPrefix(at.path, "|") || strings.Contains(at.path, "../") {
		return Hash{}, false // the server must resolve it
	}
	sum, ok := t.sums[path.Clean(at.file())]
	switch {
	case sum != "":
		return Hash{t.form, sum}, true
	case ok, !t.complete:
		return Hash{}, false
	}
	return Hash{}, true
}

// Trees caches trees for the Clients of a minion, so that unchanged trees are not sent again. The zero value
// is ready to use.
type Trees struct {
	mu   sync.Mutex
	last []*tree // most recently used last
}

// maxTrees bounds the cached trees.
const maxTrees = 8

func (t *Trees) tags() *value.List {
	out := &value.List{}
	if t == nil {
		return out
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.last {
		out.Append(one.tag)
	}
	return out
}

// get returns the tree with a tag, or stores the one that produce returns.
func (t *Trees) get(tag string, produce func() (*tree, error)) (*tree, error) {
	if t == nil {
		return produce()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.last, func(one *tree) bool { return one.tag == tag })
	if i >= 0 {
		one := t.last[i]
		t.last = append(slices.Delete(t.last, i, i+1), one)
		return one, nil
	}
	one, err := produce()
	if err == nil {
		t.last = append(t.last[max(0, len(t.last)+1-maxTrees):], one)
	}
	return one, err
}

// run is the state that a Client keeps about its source during a job.
type run struct {
	mu   sync.Mutex
	envs map[string]*runEnv
	// contents are small fetched files; held is their size in bytes.
	contents map[location]smallContent
	held     int
}

type smallContent struct {
	hash Hash
	data []byte
}

// maxSmall bounds the size of a file that is kept in memory during a job, and maxHeld that of all such files,
// in bytes.
const (
	maxSmall = 32 << 10
	maxHeld  = 1 << 20
)

// small returns the content of a file if it is in memory and has this hash.
func (r *run) small(at location, want Hash) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.contents[at]; c.hash == want {
		return c.data
	}
	return nil
}

func (r *run) keep(at location, h Hash, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += len(data) - len(r.contents[at].data)
	if r.held > maxHeld || len(r.contents) >= maxHeld/64 || r.contents == nil {
		r.contents, r.held = map[location]smallContent{}, len(data)
	}
	r.contents[at] = smallContent{h, data}
}

type runEnv struct {
	mu    sync.Mutex // held while the tree is fetched
	asked int
	tree  *tree
	none  bool // no tree is available
}

func (r *run) env(name string) *runEnv {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.envs == nil {
		r.envs = map[string]*runEnv{}
	}
	e := r.envs[name]
	if e == nil {
		e = &runEnv{}
		r.envs[name] = e
	}
	return e
}

// forget drops the tree of a changed environment.
func (r *run) forget(name string) {
	e := r.env(name)
	e.mu.Lock()
	e.tree = nil
	e.mu.Unlock()
}

// tree returns the tree of an environment, or nil. It is fetched once per job, so that all files are
// consistent, and only when a second file is requested.
func (c *Client) tree(ctx context.Context, env string) (*tree, error) {
	if c.origin.sharer == nil {
		return nil, nil
	}
	e := c.run.env(env)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if e.tree != nil || e.none || e.asked == 1 {
		return e.tree, nil
	}
	v, packed, free, err := c.origin.requestShared(ctx, value.DictOf("cmd", "_brine_tree", "saltenv", env, "known", c.o.Trees.tags()))
	if salt.KindOf(err) == salt.NotFound {
		e.none = true
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask the file server: %w", err)
	}
	defer free()
	d, _ := v.(*value.Dict)
	tag := d.Str("tag")
	if tag == "" {
		e.none = true // the tree is too large
		return nil, nil
	}
	e.tree, err = c.o.Trees.get(tag, func() (*tree, error) { return readTree(tag, packed) })
	return e.tree, err
}

// maxTree bounds the uncompressed size of a tree, in bytes.
const maxTree = 64 << 20

func readTree(tag string, packed []byte) (*tree, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("the file server's list of files cannot be unpacked: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxTree+1))
	if err == nil && len(plain) > maxTree {
		err = fmt.Errorf("it has more than %d bytes", maxTree)
	}
	if err != nil {
		return nil, fmt.Errorf("the file server's list of files cannot be unpacked: %w", err)
	}
	v, err := msgpack.Unmarshal(plain)
	if err != nil {
		return nil, fmt.Errorf("the file server's list of files cannot be read: %w", err)
	}
	l, _ := v.(*value.List)
	if l.Len() != 4 {
		return nil, fmt.Errorf("the file server's list of files has %d parts, not 4", l.Len())
	}
	t := &tree{tag: tag, form: value.Str(l.Items[0]), complete: value.Truth(l.Items[1]), names: texts(l.Items[2])}
	sums := texts(l.Items[3])
	if len(sums) != len(t.names) {
		return nil, fmt.Errorf("the file server's list of files has %d names and %d hashes", len(t.names), len(sums))
	}
	t.sums = make(map[string]string, len(sums))
	for i, name := range t.names {
		t.sums[name] = sums[i]
	}
	return t, nil
}
