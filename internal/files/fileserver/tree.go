package fileserver

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"os"
	"slices"
	"sync"

	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// A tree is the list of all files of an environment, with their hashes. Brine minions request it once instead
// of the hash of each file. It is gzip of the list
//
//	[hash_type, complete, [name …], [hash in hexadecimal or "" …]]
//
// sorted by name. A missing hash must be requested. complete says that no other files exist; without it, a
// missing name must be requested too.

const (
	// maxTree bounds the files of a tree. Above it hashes are requested one by one, since comparing the time
	// stamps of all files would take longer.
	maxTree = 20000
	// maxSummed bounds the size of files that are hashed before their hash is requested, in bytes.
	maxSummed = 4 << 20
	// maxTrees bounds the environments with cached trees.
	maxTrees = 64
)

// Summer computes hashes of files.
type Summer struct {
	// Form is the option hash_type.
	Form string
	// File returns the hash of a file. It is cached until the file changes.
	File func(path string) (string, error)
	// Known is File for a file whose hash is cached.
	Known func(path string) (string, bool)
}

// Sums are the hashes of an environment's files by name, "" if computing one would take long. They must not be
// changed.
type Sums struct {
	Files map[string]string
	// Complete means that Find finds no other files.
	Complete bool
}

// Summed is a Backend that knows the hashes of all its files.
type Summed interface {
	Backend
	Sums(ctx context.Context, env string, by Summer) (Sums, error)
}

// Older is a Backend that can still serve a file of a recent tree after an update, so that a client of that
// tree gets a consistent state.
type Older interface {
	Backend
	Older(env, name, sum string) (path string, ok bool)
}

// tree is a computed tree.
type tree struct {
	finger uint64
	tag    string
	shared *crypt.Shared
}

// trees computes trees, one at a time for an environment. Requests that arrive meanwhile share the next one.
// So each gets a tree that was computed after its request.
type trees struct {
	seed maphash.Seed

	mu  sync.Mutex
	env map[string]*envTree
}

type envTree struct {
	last          *tree
	running, next *making
}

type making struct {
	done chan struct{} // closed when the tree is known
	tree *tree
	err  error
}

func (ts *trees) get(env string, produce func(last *tree) (*tree, error)) (*tree, error) {
	ts.mu.Lock()
	e := ts.env[env]
	if e == nil {
		if len(ts.env) >= maxTrees {
			for name, old := range ts.env {
				if old.running == nil {
					delete(ts.env, name)
				}
			}
		}
		e = &envTree{}
		ts.env[env] = e
	}
	if e.running != nil {
		m := e.next
		if m == nil {
			m = &making{done: make(chan struct{})}
			e.next = m
		}
		ts.mu.Unlock()
		<-m.done
		return m.tree, m.err
	}
	m := &making{done: make(chan struct{})}
	e.running = m
	ts.mu.Unlock()
	ts.run(e, m, produce)
	return m.tree, m.err
}

// run computes a tree, and starts a goroutine for the next one if requests wait.
func (ts *trees) run(e *envTree, m *making, produce func(last *tree) (*tree, error)) {
	m.tree, m.err = produce(e.last)
	ts.mu.Lock()
	if m.err == nil {
		e.last = m.tree
	}
	next := e.next
	e.running, e.next = next, nil
	ts.mu.Unlock()
	close(m.done)
	if next != nil {
		go ts.run(e, next, produce)
	}
}

func (ts *trees) forget() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for name, e := range ts.env {
		if e.running == nil {
			delete(ts.env, name)
		}
	}
}

// serveTree answers with the tree of an environment, or only with its tag if the client knows that tree.
func (s *Server) serveTree(ctx context.Context, load *value.Dict) (*value.Dict, *crypt.Shared, error) {
	env, ok := envOf(load)
	if envs := s.Envs(); !ok || !validEnv(env) || !slices.Contains(envs, env) && !slices.Contains(envs, "__env__") {
		return value.NewDict(0), nil, nil
	}
	t, err := s.trees.get(env, func(last *tree) (*tree, error) { return s.makeTree(ctx, env, last) })
	if err != nil || t.shared == nil {
		return value.NewDict(0), nil, err
	}
	head := value.DictOf("tag", t.tag)
	if slices.Contains(load.List("known"), any(t.tag)) {
		return head, nil, nil
	}
	return head, t.shared, nil
}

// makeTree returns last if nothing has changed.
func (s *Server) makeTree(ctx context.Context, env string, last *tree) (*tree, error) {
	files, complete, asked := map[string]string{}, true, false
	by := Summer{Form: s.hashes.form, File: s.hashes.of, Known: s.hashes.known}
	for _, b := range s.backends {
		var got Sums
		if sb, ok := b.(Summed); ok {
			var err error
			if got, err = sb.Sums(ctx, env, by); err != nil {
				return nil, err
			}
		} else {
			l, err := b.Lists(ctx, env)
			if err != nil {
				return nil, err
			}
			got.Files = make(map[string]string, len(l.Files))
			for _, name := range l.Files {
				got.Files[name] = ""
			}
		}
		_, own := b.(Asked)
		asked = asked || own
		complete = complete && got.Complete
		for name, sum := range got.Files {
			if asked {
				sum = "" // a backend before this one may find the file without listing it
			}
			if _, ok := files[name]; !ok {
				files[name] = sum
			}
		}
	}
	if len(files) > maxTree {
		return &tree{}, nil
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var h maphash.Hash
	h.SetSeed(s.trees.seed)
	for _, name := range names {
		h.WriteString(name)
		h.WriteByte(0)
		h.WriteString(files[name])
	}
	if complete {
		h.WriteByte(1)
	}
	if finger := h.Sum64(); last != nil && last.shared != nil && last.finger == finger {
		return last, nil
	}
	sums := &value.List{Items: make([]any, len(names))}
	for i, name := range names {
		sums.Items[i] = files[name]
	}
	plain, err := msgpack.Marshal(value.ListOf(s.hashes.form, complete, value.Strings(names), sums), msgpack.Wire)
	if err != nil {
		return nil, err
	}
	tag := sha256.Sum256(plain)
	packed, err := compress(plain, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &tree{h.Sum64(), hex.EncodeToString(tag[:]), crypt.NewShared(packed)}, nil
}

// Sums implements Summed.
func (r *roots) Sums(ctx context.Context, env string, by Summer) (Sums, error) {
	out := Sums{Files: map[string]string{}, Complete: !r.o.IgnoreSymlinks && len(r.ignore.res) == 0 && len(r.ignore.globs) == 0}
	l, err := r.Lists(ctx, env)
	if err != nil {
		return out, err
	}
	if len(l.Files) > maxTree {
		for _, name := range l.Files {
			out.Files[name] = ""
		}
		return out, nil
	}
	for _, name := range l.Files {
		f, ok := r.Find(env, name, nil)
		if !ok {
			continue // not a regular file
		}
		out.Files[name] = small(f.Path, by)
	}
	return out, nil
}

// small returns the hash of a file, "" for a large one.
func small(path string, by Summer) string {
	sum, ok := by.Known(path)
	if ok {
		return sum
	}
	if st, err := os.Stat(path); err != nil || st.Size() > maxSummed {
		return ""
	}
	if sum, err := by.File(path); err == nil {
		return sum
	}
	return ""
}
