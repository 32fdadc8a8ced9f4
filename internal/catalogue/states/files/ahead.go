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
	"brine/internal/catalogue/actions/managed"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/sources"
)

// A file is flushed to disk before it is renamed to its final name, so that a
// power failure leaves either the old file or the complete new one. Flushing one
// file takes a disk milliseconds, and dozens at once hardly more. So the first
// state of a run that writes a file determines what the next file.managed states
// will write, writes that to unnamed files as well, and flushes all of them
// together. The first file of a file.recurse does the same for those that follow.
// None of this is visible: each file gets its name when its own state runs, and
// only if it holds exactly what that state then wants. Unused files are gone when
// the run ends, even if it crashes.

const (
	// aheadStates is how many states, or files of one state, are examined ahead.
	// It bounds the number of open files.
	aheadStates = 64
	// aheadFile and aheadBytes bound the size of one file and of all files, in
	// bytes.
	aheadFile  = 1 << 20
	aheadBytes = 16 << 20
)

// ahead holds the files of a run that were written ahead.
type ahead struct {
	once  sync.Once
	mu    sync.Mutex
	index map[*value.Dict]int // index of each chunk of the run
	until int                 // index of the first chunk that was not examined
	files map[string]asideFile
	buf   []byte // read buffer of holds
}

type asideFile struct {
	f   *os.File
	dir inherited
	// open is set if the file has the default mode of new files.
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

// ready returns a function that looks for the state's content among the files
// written ahead, or nil if this state cannot use them.
func (t *managedFile) ready(ctx context.Context) managed.Ready {
	if t.e.Run == nil || t.e.Low == nil || t.e.Low.Has("umask") || t.e.Low.Has("parallel") {
		return nil
	}
	want := t.want
	if want == nil {
		want = &sources.Content{}
	}
	return func(final string, old fs.FileInfo) *os.File { return aheadOf(t.e.Run).take(ctx, t, want, final, old) }
}

// take returns a flushed file with the content, which can be renamed to final, or
// nil. old is the present file.
func (a *ahead) take(ctx context.Context, t *managedFile, want *sources.Content, final string, old fs.FileInfo) *os.File {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.group != nil {
		a.lookIn(t.group, t.place)
	} else if i, ok := a.index[t.e.Low]; !ok {
		return nil
	} else if i >= a.until {
		a.look(ctx, t, want, i)
	}
	x, ok := a.files[t.Name]
	if !ok {
		return nil
	}
	delete(a.files, t.Name)
	// If the directory was created or changed meanwhile, the file would inherit
	// another group. A new file without a declared mode must have the default
	// mode.
	if x.dir != inheritedFrom(final) || x.open != (t.Own.Bits < 0 && old == nil) || !a.holds(x.f, want) {
		x.f.Close()
		return nil
	}
	return x.f
}

// holds reports whether a file written ahead has exactly this content.
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

// look writes ahead the content of the state and of those that follow it.
func (a *ahead) look(ctx context.Context, t *managedFile, want *sources.Content, i int) {
	chunks := t.e.Run.Chunks
	b := &batch{ahead: a, left: aheadBytes}
	b.add(t, want)
	for a.until = i + 1; a.until < min(i+aheadStates, len(chunks)); a.until++ {
		low := chunks[a.until]
		if low.At("state") != "file" || low.At("fun") != "managed" || ctx.Err() != nil {
			break
		}
		if next := t.next(ctx, low); next != nil {
			b.add(next, next.want)
		}
	}
	b.sync()
}

// group holds the files that one state writes one after the other. Their contents
// are known before the first is written.
type group struct {
	files []*managedFile
	until int // index of the first file that was not examined
}

// add appends a file to the group.
func (g *group) add(t *managedFile) {
	t.group, t.place = g, len(g.files)
	g.files = append(g.files, t)
}

// lookIn writes ahead a file of a group and those that follow it.
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

// batch is a set of files that are written ahead and flushed together.
type batch struct {
	*ahead
	left  int64 // remaining bytes
	names []string
	open  []*os.File
}

func (b *batch) add(t *managedFile, want *sources.Content) {
	if _, taken := b.files[t.Name]; taken {
		return
	}
	if x, ok := b.write(t, want); ok {
		b.files[t.Name] = x
		b.names, b.open = append(b.names, t.Name), append(b.open, x.f)
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

// declaration returns the state function file.managed, which declares the
// arguments.
var declaration = sync.OnceValue(func() state.Func {
	return state.Of("managed", func(context.Context, *state.Env, managedArgs) (p state.Plan, err error) { return p, err }, "")
})

// next returns another file.managed with the content that it will write, as far as
// this can be predicted: templates are rendered only once, and no command runs early.
// It returns nil if there is nothing to write.
func (t *managedFile) next(ctx context.Context, low *value.Dict) *managedFile {
	f := declaration()
	kwargs, extra := f.Arguments(low)
	if len(extra) > 0 || low.Has("umask") || low.Has("parallel") || t.e.Run.Result(state.Tag(low)) != nil {
		return nil
	}
	bound, err := f.Bind(nil, kwargs)
	if err != nil {
		return nil
	}
	args := bound.Args().(*managedArgs)
	n := newManaged(t.M, &state.Env{Call: t.e.Call, Low: low, Run: t.e.Run, Saltenv: state.SaltenvOf(low)}, args)
	n.seen = look(n.M, n.Name)
	if n.keep, err = args.check(); err != nil {
		return nil
	}
	source, _ := args.Source.(string)
	switch {
	case args.Template != "" || args.CheckCmd != "" || args.Signature != nil || !args.Create,
		source != "" && !strings.HasPrefix(source, "salt://"), source == "" && args.Source != nil,
		!filepath.IsAbs(n.Name) || n.keep && n.seen.fileErr == nil:
		return nil
	}
	if n.Own, err = managed.OwnerOf(ctx, n.M, args.User, args.Group, args.mode()); err != nil || n.load(ctx) != nil || n.want == nil {
		return nil
	}
	if n.seen.isFile() {
		if same, err := n.want.Same(n.Name); err != nil || same {
			return nil
		}
	}
	return n
}

// write writes a content to an unnamed file in its directory.
func (b *batch) write(t *managedFile, want *sources.Content) (asideFile, bool) {
	size, err := want.Size()
	if err != nil || size > min(aheadFile, b.left) {
		return asideFile{}, false
	}
	final, old := t.Name, fs.FileInfo(nil)
	if !errors.Is(t.seen.linkErr, fs.ErrNotExist) {
		if final, old, err = t.target(); err != nil {
			return asideFile{}, false
		}
	}
	x := asideFile{dir: inheritedFrom(final), open: t.Own.Bits < 0 && old == nil}
	perm := fs.FileMode(0o600)
	if x.open {
		perm = 0o666
	}
	if x.f, err = atomicfile.Aside(filepath.Dir(final), perm, want.Pour); err != nil {
		return asideFile{}, false
	}
	b.left -= size
	return x, true
}

// target returns the final path of the file, and what exists there.
func (t *managedFile) target() (string, fs.FileInfo, error) {
	if !t.Follow {
		st, err := os.Lstat(t.Name)
		if err != nil || !st.Mode().IsRegular() {
			st = nil
		}
		return t.Name, st, nil
	}
	return atomicfile.Resolve(t.Name)
}

// inherited is what a new file inherits from its directory.
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
