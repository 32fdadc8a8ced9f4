package gitrepo

import (
	"bufio"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"brine/internal/base/log/redact"
)

// Kind is the type of an entry in a tree.
type Kind uint8

// The kinds.
const (
	File Kind = iota
	Executable
	Symlink
	Directory
	Submodule
)

// Mode returns the mode of the kind in git's trees, which is that of stat(2).
func (k Kind) Mode() uint32 {
	switch k {
	case Executable:
		return 0o100755
	case Symlink:
		return 0o120000
	case Directory:
		return 0o40000
	case Submodule:
		return 0o160000
	}
	return 0o100644
}

// Entry is a file or directory in a tree.
type Entry struct {
	Path string
	Kind Kind
	// ID is the object id, Size the size of a file in bytes.
	ID   string
	Size int64
}

// Tree is the content of a commit. It does not change.
type Tree struct {
	// Entries are sorted bytewise by Path.
	Entries []Entry
	// Odd are paths, quoted as in Go, that are not UTF-8 or lead elsewhere. They are
	// not in Entries.
	Odd []string
}

// Find returns the entry of a path.
func (t *Tree) Find(path string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(t.Entries, path, func(e Entry, p string) int { return strings.Compare(e.Path, p) })
	if !ok {
		return Entry{}, false
	}
	return t.Entries[i], true
}

// maxOdd bounds the number of odd names.
const maxOdd = 20

// readTree parses the output of git ls-tree -z.
func readTree(out []byte) (*Tree, error) {
	text := string(out) // a single string, of which the entries are parts
	t := &Tree{Entries: make([]Entry, 0, strings.Count(text, "\x00"))}
	for line := range strings.SplitSeq(text, "\x00") {
		if line == "" {
			continue
		}
		about, name, ok := strings.Cut(line, "\t")
		f := strings.Fields(about)
		if !ok || len(f) != 4 || !isObjectID(f[2]) {
			return nil, fmt.Errorf("git lists %.100q, which cannot be read", line)
		}
		if !fit(name) {
			if len(t.Odd) < maxOdd {
				t.Odd = append(t.Odd, strconv.Quote(name))
			}
			continue
		}
		e := Entry{Path: name, ID: f[2]}
		if n, err := strconv.ParseInt(f[3], 10, 64); err == nil {
			e.Size = n
		}
		switch {
		case f[1] == "tree":
			e.Kind = Directory
		case f[1] == "commit":
			e.Kind = Submodule
		case f[1] != "blob":
			continue
		case f[0] == "120000":
			e.Kind = Symlink
		case f[0] == "100755":
			e.Kind = Executable
		}
		t.Entries = append(t.Entries, e)
	}
	slices.SortFunc(t.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	// A manually created tree may have duplicate names; the first one is used.
	t.Entries = slices.CompactFunc(t.Entries, func(a, b Entry) bool { return a.Path == b.Path })
	return t, nil
}

func fit(name string) bool {
	return utf8.ValidString(name) && filepath.IsLocal(name) && path.Clean(name) == name && name != "." && !strings.Contains("/"+name+"/", "/.git/")
}

// treeCache caches recently requested trees. A tree is identified by its commit, so
// that it never becomes outdated.
type treeCache struct {
	mu    sync.Mutex
	items map[string]*list.Element
	order *list.List // newest first
	size  int        // entries
}

type cachedTree struct {
	commit string
	ready  chan struct{}
	tree   *Tree
	err    error
}

// maxEntries bounds the entries of all cached trees of a remote.
const maxEntries = 600_000

func newTreeCache() *treeCache {
	return &treeCache{items: map[string]*list.Element{}, order: list.New()}
}

// get returns a tree. Concurrent requests for the same tree read it once.
func (tc *treeCache) get(ctx context.Context, commit string, read func() (*Tree, error)) (*Tree, error) {
	tc.mu.Lock()
	if el, ok := tc.items[commit]; ok {
		tc.order.MoveToFront(el)
		it := el.Value.(*cachedTree)
		tc.mu.Unlock()
		select {
		case <-it.ready:
			return it.tree, it.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	it := &cachedTree{commit: commit, ready: make(chan struct{})}
	el := tc.order.PushFront(it)
	tc.items[commit] = el
	tc.mu.Unlock()
	it.tree, it.err = read()
	tc.mu.Lock()
	defer tc.mu.Unlock()
	defer close(it.ready)
	if it.err != nil {
		tc.drop(el)
		return nil, it.err
	}
	tc.size += len(it.tree.Entries) + 1
	for tc.size > maxEntries && tc.order.Len() > 1 {
		last := tc.order.Back()
		select {
		case <-last.Value.(*cachedTree).ready:
		default:
			if last != el {
				return it.tree, nil // it is being read
			}
		}
		if last == el {
			break
		}
		tc.drop(last)
	}
	return it.tree, nil
}

func (tc *treeCache) drop(el *list.Element) {
	it := el.Value.(*cachedTree)
	if tc.items[it.commit] == el {
		delete(tc.items, it.commit)
	}
	tc.order.Remove(el)
	if it.tree != nil {
		tc.size -= len(it.tree.Entries) + 1
	}
}

// Tree returns the tree of a served commit.
func (c *Clone) Tree(ctx context.Context, s *Snapshot, commit string) (*Tree, error) {
	if !isObjectID(commit) {
		return nil, fmt.Errorf("%q is no commit", commit)
	}
	c.mu.Lock()
	trees := c.trees
	c.mu.Unlock()
	return trees.get(ctx, commit, func() (*Tree, error) {
		// A caller that waits for the same tree must not fail because the first
		// caller's context ended.
		ctx := context.WithoutCancel(ctx)
		out, err := runGit(ctx, filepath.Join(c.c.Dir, s.Directory), nil, "ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit)
		if err != nil {
			var complaint *gitError
			if errors.As(err, &complaint) {
				err = fmt.Errorf("%w: %w", errBroken, err)
			}
			return nil, c.spoilt(&Error{c.remote.ID, "list the files of", err})
		}
		t, err := readTree(out)
		if err == nil && len(t.Odd) > 0 {
			c.log.Warn("skipping files of a git remote: their names are not UTF-8, or lead outside", "remote", redact.Text(c.remote.ID),
				"commit", commit, "names", strings.Join(t.Odd, ", "))
		}
		return t, err
	})
}

// Commit resolves an abbreviated commit id of at least four hexadecimal digits. ok
// is false if no commit or several commits match.
func (c *Clone) Commit(ctx context.Context, s *Snapshot, id string) (commit string, ok bool) {
	if s == nil || len(id) < 4 || len(id) > 64 || strings.Trim(id, "0123456789abcdefABCDEF") != "" {
		return "", false
	}
	out, err := runGit(ctx, filepath.Join(c.c.Dir, s.Directory), nil, "rev-parse", "--verify", "--quiet", "--end-of-options", id+"^{commit}")
	commit = strings.TrimSpace(string(out))
	return commit, err == nil && isObjectID(commit)
}

// Copy writes the content of a file to w.
func (c *Clone) Copy(ctx context.Context, s *Snapshot, id string, w io.Writer) error {
	if !isObjectID(id) {
		return fmt.Errorf("%q is no object", id)
	}
	c.mu.Lock()
	o := c.objects[s.Directory]
	if o == nil {
		o = &objects{dir: filepath.Join(c.c.Dir, s.Directory)}
		c.objects[s.Directory] = o
	}
	c.mu.Unlock()
	if err := o.copy(ctx, id, w); err != nil {
		return c.spoilt(&Error{c.remote.ID, "read a file of", err})
	}
	return nil
}

// Text returns the content of a small file, such as the target of a symbolic link.
func (c *Clone) Text(ctx context.Context, s *Snapshot, id string) (string, error) {
	var b limited
	if err := c.Copy(ctx, s, id, &b); err != nil {
		return "", err
	}
	return string(b.b), nil
}

// limited keeps the first 64 KiB.
type limited struct{ b []byte }

func (l *limited) Write(p []byte) (int, error) {
	l.b = append(l.b, p[:min(len(p), 64<<10-len(l.b))]...)
	return len(p), nil
}

// objects reads contents of one copy through a long-running git cat-file.
type objects struct {
	dir string

	mu    sync.Mutex
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	timer *time.Timer
}

// idle is how long an unused process is kept.
const idle = 30 * time.Second

func (o *objects) start() error {
	cmd := exec.Command("git", "cat-file", "--batch")
	cmd.Env, cmd.Dir = environment(o.dir, nil), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithUs(cmd.SysProcAttr)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return ErrNoGit
		}
		return err
	}
	o.cmd, o.in, o.out = cmd, in, bufio.NewReaderSize(out, 64<<10)
	o.timer = time.AfterFunc(idle, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.cmd == cmd {
			o.end()
		}
	})
	return nil
}

// end stops the program; mu is held.
func (o *objects) end() {
	if o.cmd == nil {
		return
	}
	o.timer.Stop()
	o.in.Close()
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait() // it was killed
	o.cmd = nil
}

func (o *objects) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end()
}

func (o *objects) copy(ctx context.Context, id string, w io.Writer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.once(ctx, id, w)
	if errors.Is(err, errGone) { // the process was killed or died: retry once
		err = o.once(ctx, id, w)
		if errors.Is(err, errGone) {
			err = fmt.Errorf("%w: git cannot read the object %s", errBroken, id)
		}
	}
	return err
}

// errGone means that the process ended before it wrote any data of an object.
var errGone = errors.New("git cat-file has ended")

func (o *objects) once(ctx context.Context, id string, w io.Writer) error {
	if o.cmd == nil {
		if err := o.start(); err != nil {
			return err
		}
	}
	o.timer.Reset(idle)
	cmd := o.cmd
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if _, err := io.WriteString(o.in, id+"\n"); err != nil {
		o.end()
		return errGone
	}
	head, err := o.out.ReadString('\n')
	if err != nil {
		o.end()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errGone
	}
	f := strings.Fields(head)
	if len(f) != 3 || f[1] != "blob" {
		o.end()
		return fmt.Errorf("%w: the object %s: %s", errBroken, id, strings.TrimSpace(head))
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err == nil {
		_, err = io.CopyN(w, o.out, size)
	}
	if err == nil {
		_, err = o.out.Discard(1)
	}
	if err != nil {
		o.end()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: the object %s ends early", errBroken, id)
		}
		return err
	}
	return nil
}

// Export writes the files of a commit to dest, a new directory that appears only
// when it is complete. Submodules are empty directories, as after a checkout.
func (c *Clone) Export(ctx context.Context, s *Snapshot, commit, dest string) error {
	t, err := c.Tree(ctx, s, commit)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dest), 0o700); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dest), ".export-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	root, err := os.OpenRoot(temp) // prevents writing outside through a link
	if err != nil {
		return err
	}
	defer root.Close()
	for _, e := range t.Entries {
		if err := c.exportOne(ctx, s, root, e); err != nil {
			return err
		}
	}
	if err := os.Chmod(temp, 0o700); err != nil {
		return err
	}
	err = os.Rename(temp, dest) // rename: a directory, made again if it is lost
	if err != nil && isDir(dest) {
		return nil // another process was faster
	}
	return err
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

func (c *Clone) exportOne(ctx context.Context, s *Snapshot, root *os.Root, e Entry) error {
	switch e.Kind {
	case Directory, Submodule:
		return root.MkdirAll(e.Path, 0o700)
	case Symlink:
		to, err := c.Text(ctx, s, e.ID)
		if err != nil {
			return err
		}
		return root.Symlink(to, e.Path)
	}
	mode := os.FileMode(0o600)
	if e.Kind == Executable {
		mode = 0o700
	}
	f, err := root.OpenFile(e.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	err = c.Copy(ctx, s, e.ID, f)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
