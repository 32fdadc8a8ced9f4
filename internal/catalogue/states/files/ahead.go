package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"brine/internal/base/atomicfile"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/sources"
)

// A file is on the disk before it takes its name, so that a power cut leaves
// the old one or the whole new one. To flush one file takes a disk
// milliseconds, and hardly more for dozens at once. So the first state of a
// run that writes a file looks what the next file.managed will hold, writes
// that to files without names as well, and flushes all of it together. So does
// the first file of a file.recurse with those that come after it. Nothing
// of it is to be seen: each file gets its name when its own state runs, and
// only if it holds exactly what that state then wants. What no state took is
// gone when the run ends, however it does.

const (
	// aheadStates is how many states, or files of one, are looked at, and so how
	// many files are open.
	aheadStates = 64
	// aheadFile and aheadBytes bound, in bytes, a file and all of them.
	aheadFile  = 1 << 20
	aheadBytes = 16 << 20
)

// ahead are the files of a run that were written aside.
type ahead struct {
	once  sync.Once
	mu    sync.Mutex
	index map[*value.Dict]int // of the run's chunks
	until int                 // the first chunk that was not looked at yet
	files map[string]asideFile
	buf   []byte // what holds reads into
}

type asideFile struct {
	f   *os.File
	dir inherited
	// open is set for a file with the mode that new files get.
	open bool
}

func aheadOf(r *state.Run) *ahead {
	a := r.Shared("file.ahead", func() any {
		a := &ahead{index: make(map[*value.Dict]int, len(r.Chunks)), files: map[string]asideFile{}}
		for i, low := range r.Chunks {
			a.index[low] = i
		}
		return a
	}).(*ahead)
	a.once.Do(func() { r.AtEnd(a.drop) })
	return a
}

func (a *ahead) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.files {
		x.f.Close()
	}
	clear(a.files)
}

// ready returns the state's content as a file that is on the disk and can take
// the name final, where old is now, or nil.
func (t *managedFile) ready(ctx context.Context, want *sources.Content, final string, old fs.FileInfo) *os.File {
	if t.e.Run == nil || t.e.Low == nil || t.e.Low.Has("umask") || t.e.Low.Has("parallel") {
		return nil
	}
	a := aheadOf(t.e.Run)
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.group != nil {
		a.lookIn(t.group, t.place)
	} else if i, ok := a.index[t.e.Low]; !ok {
		return nil
	} else if i >= a.until {
		a.look(ctx, t, want, i)
	}
	x, ok := a.files[t.name]
	if !ok {
		return nil
	}
	delete(a.files, t.name)
	// Whose directory was made or changed meanwhile would have another group, and
	// a new file without a declared mode has the one that new files get.
	if x.dir != inheritedFrom(final) || x.open != (t.own.bits < 0 && old == nil) || !a.holds(x.f, want) {
		x.f.Close()
		return nil
	}
	return x.f
}

// holds reports whether a file that was written aside has just this content.
func (a *ahead) holds(f *os.File, want *sources.Content) bool {
	if rest := want.Data; len(rest) > 0 {
		if a.buf == nil {
			a.buf = make([]byte, 32<<10)
		}
		for at := int64(0); ; {
			n, err := unix.Pread(int(f.Fd()), a.buf, at)
			if err != nil || n > len(rest) || !bytes.Equal(a.buf[:n], rest[:n]) {
				return false
			}
			if rest, at = rest[n:], at+int64(n); n < len(a.buf) {
				return len(rest) == 0
			}
		}
	}
	r, err := want.Open()
	if err != nil {
		return false
	}
	defer r.Close()
	same, err := sources.SameContent(io.NewSectionReader(f, 0, aheadFile+1), r)
	return err == nil && same
}

// look writes aside what the state wants, and what those right after it will.
func (a *ahead) look(ctx context.Context, t *managedFile, want *sources.Content, i int) {
	chunks := t.e.Run.Chunks
	b := &batch{ahead: a, left: aheadBytes}
	b.add(t, want)
	for a.until = i + 1; a.until < min(i+aheadStates, len(chunks)); a.until++ {
		low := chunks[a.until]
		if low.At("state") != "file" || low.At("fun") != "managed" || ctx.Err() != nil {
			break
		}
		if next, want := t.next(ctx, low); want != nil {
			b.add(next, want)
		}
	}
	b.sync()
}

// group are the files that one state writes one after the other, whose contents
// are known before the first is written.
type group struct {
	files []*managedFile
	until int // the first that was not looked at yet
}

// add has a file know its place in the group.
func (g *group) add(t *managedFile) {
	t.group, t.place = g, len(g.files)
	g.files = append(g.files, t)
}

// lookIn writes aside a file of a group and those after it.
func (a *ahead) lookIn(g *group, i int) {
	if i < g.until {
		return
	}
	b := &batch{ahead: a, left: aheadBytes}
	for g.until = i; g.until < min(i+aheadStates, len(g.files)); g.until++ {
		next := g.files[g.until]
		b.add(next, next.want)
	}
	b.sync()
}

// batch are files that are written aside and flushed together.
type batch struct {
	*ahead
	left  int64 // bytes that may still be written
	names []string
	open  []*os.File
}

func (b *batch) add(t *managedFile, want *sources.Content) {
	if _, taken := b.files[t.name]; taken {
		return
	}
	if x, ok := t.aside(want, &b.left); ok {
		b.files[t.name] = x
		b.names, b.open = append(b.names, t.name), append(b.open, x.f)
	}
}

func (b *batch) sync() {
	for i, err := range atomicfile.SyncAll(b.open) {
		if err != nil {
			b.open[i].Close()
			delete(b.files, b.names[i])
		}
	}
}

// declaration reads the arguments of file.managed.
var declaration = sync.OnceValue(func() state.Func {
	return state.Of("managed", func(context.Context, *state.Env, managedArgs) (p state.Plan, err error) { return p, err }, "")
})

// next returns what another file.managed is going to write, as far as that can
// be told without its turn: templates are rendered once, and no command is run
// before it is due. The content is nil if there is nothing to write.
func (t *managedFile) next(ctx context.Context, low *value.Dict) (*managedFile, *sources.Content) {
	f := declaration()
	kwargs, extra := f.Arguments(low)
	if len(extra) > 0 || low.Has("umask") || low.Has("parallel") || t.e.Run.Result(state.Tag(low)) != nil {
		return nil, nil
	}
	bound, err := f.Bind(nil, kwargs)
	if err != nil {
		return nil, nil
	}
	args := bound.Args().(*managedArgs)
	n := &managedFile{file: t.file, e: &state.Env{Call: t.e.Call, Low: low, Run: t.e.Run, Saltenv: state.SaltenvOf(low)}, args: args,
		name: filesys.ExpandUser(args.Name)}
	n.see()
	source, _ := args.Source.(string)
	switch {
	case args.Template != "" || args.CheckCmd != "" || args.Signature != nil || !args.Create,
		source != "" && !strings.HasPrefix(source, "salt://"), source == "" && args.Source != nil,
		!filepath.IsAbs(n.name) || n.check() != nil || n.keep && n.seen.fileErr == nil:
		return nil, nil
	}
	if n.own, err = n.owner(ctx, args.User, args.Group, n.mode()); err != nil || n.load(ctx) != nil || n.want == nil {
		return nil, nil
	}
	if n.seen.isFile() {
		if same, err := n.want.Same(n.name); err != nil || same {
			return nil, nil
		}
	}
	return n, n.want
}

// aside writes a content to the directory that it is for.
func (t *managedFile) aside(want *sources.Content, left *int64) (asideFile, bool) {
	size, err := want.Size()
	if err != nil || size > min(aheadFile, *left) {
		return asideFile{}, false
	}
	final, old := t.name, fs.FileInfo(nil)
	if !errors.Is(t.seen.linkErr, fs.ErrNotExist) {
		if final, old, err = t.target(); err != nil {
			return asideFile{}, false
		}
	}
	x := asideFile{dir: inheritedFrom(final), open: t.own.bits < 0 && old == nil}
	perm := fs.FileMode(0o600)
	if x.open {
		perm = 0o666
	}
	if x.f, err = atomicfile.Aside(filepath.Dir(final), perm, want.Pour); err != nil {
		return asideFile{}, false
	}
	*left -= size
	return x, true
}

// target returns the path that the file is to have, and what is there.
func (t *managedFile) target() (string, fs.FileInfo, error) {
	if !t.args.FollowSymlinks {
		st, err := os.Lstat(t.name)
		if err != nil || !st.Mode().IsRegular() {
			st = nil
		}
		return t.name, st, nil
	}
	return atomicfile.Resolve(t.name)
}

// inherited is what a new file takes over from its directory.
type inherited struct {
	inode, dev uint64
	mode, gid  uint32
}

func inheritedFrom(path string) inherited {
	var st unix.Stat_t
	if unix.Stat(filepath.Dir(path), &st) != nil {
		return inherited{}
	}
	return inherited{inode: uint64(st.Ino), dev: uint64(st.Dev), mode: uint32(st.Mode), gid: st.Gid}
}
