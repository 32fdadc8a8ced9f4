package revision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"brine/internal/base/salt"
)

// Bounds of reading directories.
const (
	maxDepth = 100 // maximum nesting of directories
	// readAgain is how often to retry reading a file that changes meanwhile.
	readAgain = 3
)

// reader reads directories. keep stores the content of a file.
type reader struct {
	ctx   context.Context
	keep  func(path string, fi fs.FileInfo) (sum string, size int64, err error)
	real  string // the directory, without symbolic links
	out   []Entry
	total int
}

func read(ctx context.Context, trees []Tree, keep func(string, fs.FileInfo) (string, int64, error)) ([]Listed, error) {
	var out []Listed
	r := &reader{ctx: ctx, keep: keep}
	for _, t := range trees {
		l := Listed{Kind: t.Kind, Env: t.Env}
		for _, dir := range t.Dirs {
			r.out = nil
			real, err := filepath.EvalSymlinks(dir)
			switch {
			case errors.Is(err, fs.ErrNotExist): // empty, as for the file server
			case err != nil:
				return nil, err
			default:
				r.real = real
				if err := r.directory(real, "", nil); err != nil {
					return nil, err
				}
			}
			slices.SortFunc(r.out, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
			l.Dirs = append(l.Dirs, r.out)
		}
		out = append(out, l)
	}
	sortTrees(out)
	return out, nil
}

func (r *reader) directory(dir, rel string, above []fs.FileInfo) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return salt.Errorf(salt.Invalid, "%s is no directory", dir)
	}
	if len(above) > maxDepth || slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, fi) }) {
		return salt.Errorf(salt.Invalid, "%s: a symbolic link leads back to a directory that it is in, or there are more than %d directories in directories",
			dir, maxDepth)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	above = append(above[:len(above):len(above)], fi)
	for _, e := range entries {
		if err := r.entry(filepath.Join(dir, e.Name()), path.Join(rel, e.Name()), e, above); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) add(e Entry) error {
	if r.total++; r.total > maxEntries {
		return salt.Errorf(salt.Invalid, "there are more than %d files and directories", maxEntries)
	}
	r.out = append(r.out, e)
	return nil
}

func (r *reader) entry(full, rel string, e fs.DirEntry, above []fs.FileInfo) error {
	if !utf8.ValidString(rel) {
		return salt.Errorf(salt.Invalid, "%q: its name is not UTF-8", full)
	}
	if e.Type()&fs.ModeSymlink != 0 {
		to, inside, err := r.link(full, rel)
		if err != nil {
			return err
		}
		if inside {
			return r.add(Entry{Path: rel, Type: Link, To: to})
		}
	}
	fi, err := os.Stat(full) // follows a link that leads out
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // removed in the meantime, or a dangling link
	case err != nil:
		return err
	case fi.IsDir():
		if err := r.add(Entry{Path: rel, Type: Directory}); err != nil {
			return err
		}
		return r.directory(full, rel, above)
	case !fi.Mode().IsRegular():
		return nil // the file server does not serve it either
	}
	return r.file(full, rel, fi)
}

func (r *reader) file(full, rel string, fi fs.FileInfo) error {
	for range readAgain {
		sum, size, err := r.keep(full, fi)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed in the meantime
		}
		if err != nil {
			return err
		}
		now, err := os.Stat(full)
		if err == nil && now.Size() == size && now.ModTime().Equal(fi.ModTime()) && now.Mode() == fi.Mode() {
			return r.add(Entry{Path: rel, Type: File, Mode: uint32(fi.Mode().Perm()), Size: size, Sum: sum})
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		fi = now
	}
	return salt.Errorf(salt.Unavailable, "%s changes while it is read; try again", full)
}

// link returns the target of a symbolic link, if it is in the directory.
func (r *reader) link(full, rel string) (to string, inside bool, err error) {
	if to, err = os.Readlink(full); err != nil {
		return "", false, err
	}
	real, err := filepath.EvalSymlinks(full)
	if errors.Is(err, fs.ErrNotExist) {
		return to, stays(rel, to), nil
	}
	if err != nil {
		return "", false, fmt.Errorf("a symbolic link leads nowhere: %w", err)
	}
	under, err := filepath.Rel(r.real, real)
	if err != nil || !filepath.IsLocal(under) {
		return "", false, nil
	}
	if stays(rel, to) {
		return to, true, nil
	}
	// The link's path leads out of the directory, which is elsewhere in a revision.
	to, err = filepath.Rel(path.Dir(rel), under)
	return to, err == nil && stays(rel, to), nil
}

// Sum returns the id of the revision that Take would create, without storing it.
func Sum(ctx context.Context, trees []Tree) (string, error) {
	listed, err := read(ctx, trees, func(path string, fi fs.FileInfo) (string, int64, error) {
		sum, err := sumOfFile(path)
		return sum, fi.Size(), err
	})
	if err != nil {
		return "", err
	}
	b, err := encode(listed)
	return sumOf(b), err
}
