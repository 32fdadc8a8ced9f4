package beacons

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"brine/internal/base/target"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

func init() {
	kinds.Register("inotify", func(machine) Beacon {
		return Beacon{
			Settings: "files coalesce",
			Doc: "Report changes of files and directories. Settings of each: mask (create, modify, delete and others of inotify), recurse, " +
				"auto_add and exclude. coalesce combines equal events.",
			Example:  "- files:\n    /etc/nginx:\n      mask: [create, modify, delete]\n      recurse: true\n      auto_add: true\n- disable_during_state_run: true\n",
			Validate: validInotify, Look: inotify,
		}
	})
}

// inotifyMasks maps the words of mask and the names of changes to bits: "create"
// is reported as IN_CREATE.
var inotifyMasks = map[string]uint32{
	"access": unix.IN_ACCESS, "attrib": unix.IN_ATTRIB, "close_nowrite": unix.IN_CLOSE_NOWRITE, "close_write": unix.IN_CLOSE_WRITE,
	"create": unix.IN_CREATE, "delete": unix.IN_DELETE, "delete_self": unix.IN_DELETE_SELF, "modify": unix.IN_MODIFY,
	"moved_from": unix.IN_MOVED_FROM, "moved_to": unix.IN_MOVED_TO, "move_self": unix.IN_MOVE_SELF, "open": unix.IN_OPEN,
	"dont_follow": unix.IN_DONT_FOLLOW, "excl_unlink": unix.IN_EXCL_UNLINK, "oneshot": unix.IN_ONESHOT, "onlydir": unix.IN_ONLYDIR,
	"ignored": unix.IN_IGNORED, "unmount": unix.IN_UNMOUNT, // sent by the kernel without being requested
}

const (
	inotifyEvents = unix.IN_ALL_EVENTS | unix.IN_IGNORED | unix.IN_UNMOUNT
	defaultMask   = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY
	// maxChanges bounds the changes that one check reports; the rest waits in the
	// kernel's bounded queue.
	maxChanges = 10_000
	// maxWatches bounds the watched directories of one beacon.
	maxWatches = 100_000
)

// watched is one entry of files.
type watched struct {
	path             string
	mask             uint32
	recurse, autoAdd bool
	exclude          []func(path string) bool
}

func (w *watched) excludes(path string) bool {
	return slices.ContainsFunc(w.exclude, func(is func(string) bool) bool { return is(path) })
}

func validInotify(c Config) error {
	_, err := inotifyFiles(c)
	return err
}

// inotifyFiles reads the setting files.
func inotifyFiles(c Config) (map[string]*watched, error) {
	files, ok := c.Get("files").(*value.Dict)
	if !ok {
		return nil, errors.New("it requires files, a map of paths")
	}
	out := map[string]*watched{}
	for k, v := range files.All() {
		path := value.Str(k)
		set, ok := v.(*value.Dict)
		if !ok || !set.Has("mask") && !set.Has("recurse") && !set.Has("auto_add") {
			return nil, fmt.Errorf("files: %s: expected a map with mask, recurse or auto_add", path)
		}
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("files: %s: expected an absolute path", path)
		}
		w := &watched{path: filepath.Clean(path), mask: defaultMask}
		for _, flag := range []struct {
			key string
			to  *bool
		}{{"recurse", &w.recurse}, {"auto_add", &w.autoAdd}} {
			if v, ok := set.Get(flag.key); ok {
				if *flag.to, ok = v.(bool); !ok {
					return nil, fmt.Errorf("files: %s: %s: expected true or false, got %s", path, flag.key, value.Repr(v))
				}
			}
		}
		var err error
		if v, ok := set.Get("mask"); ok {
			if w.mask, err = inotifyMask(v); err != nil {
				return nil, fmt.Errorf("files: %s: %w", path, err)
			}
		}
		if w.exclude, err = exclusions(set.At("exclude")); err != nil {
			return nil, fmt.Errorf("files: %s: exclude: %w", path, err)
		}
		out[w.path] = w
	}
	return out, nil
}

func inotifyMask(v any) (mask uint32, err error) {
	l, ok := v.(*value.List)
	if !ok {
		return 0, fmt.Errorf("mask: expected a list, got %s", value.Repr(v))
	}
	for _, word := range l.Items {
		m, ok := inotifyMasks[value.Str(word)]
		if !ok {
			return 0, fmt.Errorf("mask: unknown word %s", value.Repr(word))
		}
		mask |= m
	}
	if mask&unix.IN_ALL_EVENTS == 0 {
		return 0, errors.New("mask: it names no change to report")
	}
	return mask, nil
}

// exclusions reads what not to report: the prefix of a path, a pattern with *,
// or, with regex set, a regular expression.
func exclusions(v any) (out []func(string) bool, err error) {
	if v == nil {
		return nil, nil
	}
	l, ok := v.(*value.List)
	if !ok {
		return nil, fmt.Errorf("expected a list, got %s", value.Repr(v))
	}
	for _, it := range l.Items {
		text, isRegex := value.Str(it), false
		if d, ok := it.(*value.Dict); ok && d.Len() > 0 {
			for k, set := range d.All() {
				text = value.Str(k)
				s, _ := set.(*value.Dict)
				isRegex = value.Truth(s.At("regex"))
				break
			}
		}
		switch {
		case isRegex:
			re, err := pyre.Compile(text, 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", text, err)
			}
			out = append(out, func(path string) bool { m, err := re.Search(path); return err == nil && m != nil })
		case strings.Contains(text, "*"):
			out = append(out, target.ParseGlob(text).Match)
		default:
			out = append(out, func(path string) bool { return strings.HasPrefix(path, text) })
		}
	}
	return out, nil
}

// notifier is an open inotify queue with its watches.
type notifier struct {
	fd    int
	dirs  map[int32]string // path by watch
	files map[string]*watched
	added map[string]bool // entries of files that are watched
	full  error           // why some watches failed
}

// Close ends all watches.
func (n *notifier) Close() error { return unix.Close(n.fd) }

// inotify reports changes below paths. path is the changed path, change the
// kernel's name of the change, and the tag ends with the watched path.
func inotify(_ context.Context, l Look) ([]*value.Dict, error) {
	n, _ := (*l.Held).(*notifier)
	if n == nil {
		files, err := inotifyFiles(l.Config)
		if err != nil {
			return nil, err
		}
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("cannot use inotify: %w (see fs.inotify.max_user_instances)", err)
		}
		n = &notifier{fd: fd, dirs: map[int32]string{}, files: files, added: map[string]bool{}}
		*l.Held = n
	}
	out, err := n.changes(l.Config.Flag("coalesce", false))
	for path, w := range n.files {
		if !n.added[path] {
			n.added[path] = n.add(path, w, w.recurse)
		}
	}
	if n.full != nil && err == nil {
		err, n.full = n.full, nil
	}
	return out, err
}

// add watches a path, recursively if configured, and reports whether it exists.
// Links to directories are watched if they are configured and not followed below.
func (n *notifier) add(path string, w *watched, below bool) bool {
	mask := w.mask&^(unix.IN_IGNORED|unix.IN_UNMOUNT) | unix.IN_MOVE_SELF // watched in order to follow the path
	if w.recurse || w.autoAdd {
		mask |= unix.IN_MOVED_FROM
	}
	if w.autoAdd {
		mask |= unix.IN_CREATE | unix.IN_MOVED_TO
	}
	if len(n.dirs) >= maxWatches {
		n.full = fmt.Errorf("more than %d directories: %s is not watched", maxWatches, path)
		return true
	}
	wd, err := unix.InotifyAddWatch(n.fd, path, mask)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return false
	case errors.Is(err, unix.ENOSPC):
		n.full = fmt.Errorf("%s is not watched: raise fs.inotify.max_user_watches", path)
		return true
	case err != nil:
		n.full = fmt.Errorf("cannot watch %s: %w", path, err)
		return true
	}
	n.dirs[int32(wd)] = path
	if !below {
		return true
	}
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		n.full = err
	}
	for _, e := range entries {
		if sub := filepath.Join(path, e.Name()); e.IsDir() && !w.excludes(sub) {
			n.add(sub, w, true)
		}
	}
	return true
}

// of returns the entry of files that a path belongs to: that of the nearest
// parent.
func (n *notifier) of(path string) *watched {
	for {
		if w := n.files[path]; w != nil || path == "/" {
			return w
		}
		path = filepath.Dir(path)
	}
}

// changes reads the kernel's queue.
func (n *notifier) changes(coalesce bool) (out []*value.Dict, err error) {
	buf := make([]byte, 64<<10)
	seen := map[string]bool{}
	for len(out) < maxChanges {
		got, err := unix.Read(n.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) || err == nil && got <= 0 {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("inotify: %w", err)
		}
		for rest := buf[:got]; len(rest) >= unix.SizeofInotifyEvent; {
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			if size > len(rest) {
				break
			}
			one := rest[:size]
			rest = rest[size:]
			if coalesce {
				if seen[string(one)] {
					continue
				}
				seen[string(one)] = true
			}
			wd, mask := int32(binary.NativeEndian.Uint32(one)), binary.NativeEndian.Uint32(one[4:])
			name := strings.TrimRight(string(one[unix.SizeofInotifyEvent:]), "\x00")
			out = n.change(out, wd, mask, name)
		}
	}
	return out, nil
}

// change appends the event of one change if it is to be reported, and adds or
// removes watches.
func (n *notifier) change(out []*value.Dict, wd int32, mask uint32, name string) []*value.Dict {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		n.full = errors.New("too many changes at once: the kernel has dropped some; see fs.inotify.max_queued_events")
		return out
	}
	dir, ok := n.dirs[wd]
	if !ok {
		return out
	}
	path := dir
	if name != "" {
		path = filepath.Join(dir, name)
	}
	w := n.of(dir)
	if w == nil {
		return out
	}
	switch configured := n.files[dir] != nil; {
	case mask&unix.IN_IGNORED != 0: // removed, or no longer watched
		delete(n.dirs, wd)
		if configured {
			delete(n.added, dir) // it may be created again
		}
	case mask&unix.IN_MOVE_SELF != 0 && configured:
		n.leave(dir) // watch the next file at this path
		delete(n.added, dir)
	case mask&unix.IN_MOVED_FROM != 0 && mask&unix.IN_ISDIR != 0:
		n.leave(path)
	}
	if w.excludes(path) {
		return out
	}
	if mask&inotifyEvents&(w.mask|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0 {
		out = append(out, value.DictOf("tag", dir, "path", path, "change", changeName(mask)))
	}
	if w.autoAdd && mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && n.add(path, w, true) && mask&w.mask&unix.IN_CREATE != 0 {
		out = found(out, path, w)
	}
	return out
}

// found reports what was created in a new directory before it was watched.
func found(out []*value.Dict, directory string, w *watched) []*value.Dict {
	_ = filepath.WalkDir(directory, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return nil // skip what has disappeared again
		}
		if w.excludes(path) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if len(out) >= maxChanges {
			return fs.SkipAll
		}
		mask := uint32(unix.IN_CREATE)
		if e.IsDir() {
			mask |= unix.IN_ISDIR
		}
		out = append(out, value.DictOf("tag", filepath.Dir(path), "path", path, "change", changeName(mask)))
		return nil
	})
	return out
}

// leave removes the watches of a directory that was moved, and of those below.
func (n *notifier) leave(directory string) {
	for wd, path := range n.dirs {
		if path == directory || strings.HasPrefix(path, directory+"/") {
			_, _ = unix.InotifyRmWatch(n.fd, uint32(wd)) // it may not exist any more
			delete(n.dirs, wd)
		}
	}
}

// changeName returns the kernel's name of a change.
func changeName(mask uint32) string {
	text := ""
	for word, m := range inotifyMasks {
		if m&inotifyEvents&mask != 0 {
			text = "IN_" + strings.ToUpper(word)
		}
	}
	if mask&unix.IN_ISDIR != 0 {
		text += "|IN_ISDIR"
	}
	return text
}
