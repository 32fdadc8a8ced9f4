package fileserver

import (
	"container/list"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/host"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// shared answers a command that only Brine minions send, with a map and with data shared by all minions that
// request the same.
type shared func(s *Server, ctx context.Context, load *value.Dict) (*value.Dict, *crypt.Shared, error)

var sharedTable = map[string]shared{
	"_brine_tree": (*Server).serveTree,
	"_brine_part": (*Server).servePart,
}

// SharedCommands returns the names of the commands that RequestShared answers.
func SharedCommands() []string { return slices.Sorted(maps.Keys(sharedTable)) }

// RequestShared answers a command of Brine minions. The shared data may be nil.
func (s *Server) RequestShared(ctx context.Context, load *value.Dict) (*value.Dict, *crypt.Shared, error) {
	f, ok := sharedTable[load.Str("cmd")]
	if !ok {
		return nil, nil, salt.Errorf(salt.NotFound, "%q is no command of the file server", load.Str("cmd"))
	}
	return f(s, ctx, load)
}

// PartSize is the maximum size of a part of a file in bytes.
func (s *Server) PartSize() int64 { return s.part }

// servePart answers with the size of a file and its bytes from loc on, if the file has the hash hsum. If the
// file has another hash, the answer has changed set; if it does not exist, the answer is empty.
func (s *Server) servePart(ctx context.Context, load *value.Dict) (*value.Dict, *crypt.Shared, error) {
	none := value.NewDict(0)
	loc, isInt := load.At("loc").(int64)
	if !isInt || loc < 0 {
		return nil, nil, salt.Errorf(salt.Invalid, "loc is not an offset in a file")
	}
	env, _ := envOf(load)
	want := load.Str("hsum")
	path, err := s.holding(ctx, load, env, want)
	if errors.Is(err, ErrOther) {
		return value.DictOf("changed", true), nil, nil
	}
	if err != nil || path == "" {
		return none, nil, err
	}
	p, err := s.parts.get(partKey{want, loc}, func() (*part, error) {
		p, err := readShared(path, loc, s.part)
		if err == nil && p.firm { // it is cached under this hash
			sum, err := s.hashes.of(path)
			p.firm = err == nil && sum == want // not so for another algorithm
		}
		return p, err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return value.DictOf("size", p.size), p.shared, nil
}

// ErrOther means that a file does not have the wanted hash.
var ErrOther = errors.New("the file has another hash")

// holding returns the path of a file with this name and hash, "" for no file.
func (s *Server) holding(ctx context.Context, load *value.Dict, env, want string) (string, error) {
	name := load.Str("path")
	f, found, err := s.lookup(ctx, name, env)
	if err != nil {
		return "", err
	}
	if found && f.asked != nil {
		return s.askedContent(ctx, load, f, want)
	}
	if found {
		sum, err := s.hashes.of(f.Path)
		if err == nil && sum == want {
			return f.Path, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	if name, ok := cleanName(name); ok && validEnv(env) {
		for _, b := range s.backends {
			if o, ok := b.(Older); ok {
				if path, ok := o.Older(env, name, want); ok {
					return path, nil
				}
			}
		}
	}
	if found {
		return "", ErrOther
	}
	return "", nil
}

// askedContent returns the path of a file with the content of a file that a backend names. The backend
// has to vouch for the hash at each request. If the file that it names has that hash, that file is served;
// otherwise the content is the one that the backend serves.
func (s *Server) askedContent(ctx context.Context, load *value.Dict, f Found, want string) (string, error) {
	v, err := f.asked.Hash(ctx, load, f)
	if err != nil {
		return "", err
	}
	d, _ := v.(*value.Dict)
	form := d.Str("hash_type")
	switch sum := d.Str("hsum"); {
	case sum == "":
		return "", nil
	case sum != want:
		return "", ErrOther
	}
	if form == s.hashes.form && path.IsAbs(f.Path) {
		if sum, err := s.hashes.of(f.Path); err == nil && sum == want {
			return f.Path, nil
		}
	}
	return f.asked.Content(ctx, load, f, form, want)
}

// part is a part of a file.
type part struct {
	shared *crypt.Shared
	size   int64 // of the whole file
	// firm means that the file was unchanged after the part was read.
	firm bool
}

func readShared(path string, loc, size int64) (*part, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	before, err := host.StampOfFile(f)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, min(size, max(before.Size()-loc, 0)))
	n, err := f.ReadAt(buf, loc)
	if err != nil && err != io.EOF {
		return nil, err
	}
	after, err := host.StampOf(path)
	return &part{crypt.NewShared(buf[:n]), before.Size(), err == nil && after == before && before.Settled()}, nil
}

type partKey struct {
	sum string
	loc int64
}

// maxParts bounds the cached parts in bytes.
const maxParts = 32 << 20

// parts caches recently requested parts of files by the hash of the file. Concurrent requests for a part read
// and seal it once.
type parts struct {
	mu    sync.Mutex
	m     map[partKey]*list.Element // of *keptPart
	order list.List                 // most recently used first
	bytes int
}

type keptPart struct {
	key  partKey
	done chan struct{} // closed when the part is known
	part *part
	err  error
	kept bool // its size counts towards maxParts; guarded by parts.mu
}

// cost is the size of a part in memory. Empty parts count too, since minions choose the offsets.
func (k *keptPart) cost() int { return len(k.part.shared.Sealed()) + 1<<10 }

func (p *parts) get(key partKey, read func() (*part, error)) (*part, error) {
	p.mu.Lock()
	if el, ok := p.m[key]; ok {
		p.order.MoveToFront(el)
		p.mu.Unlock()
		k := el.Value.(*keptPart)
		<-k.done
		return k.part, k.err
	}
	k := &keptPart{key: key, done: make(chan struct{})}
	el := p.order.PushFront(k)
	p.m[key] = el
	p.mu.Unlock()
	k.part, k.err = read()
	close(k.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.err != nil || !k.part.firm {
		p.drop(el)
		return k.part, k.err
	}
	k.kept = true
	p.bytes += k.cost()
	for el := p.order.Back(); el != nil && p.bytes > maxParts; {
		prev := el.Prev()
		if old := el.Value.(*keptPart); old.kept {
			p.bytes -= old.cost()
			p.drop(el)
		}
		el = prev
	}
	return k.part, nil
}

func (p *parts) drop(el *list.Element) {
	delete(p.m, el.Value.(*keptPart).key)
	p.order.Remove(el)
}
