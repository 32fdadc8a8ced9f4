package cp

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// item is a file or an empty directory to copy.
type item struct {
	source string // the argument that contains it
	path   string
	mode   int // its permissions
	size   int64
}

func (f item) open() (*os.File, error) {
	r, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("cannot read a file to copy: %w", err)
	}
	return r, nil
}

// tree collects the files to copy.
type tree struct {
	log   *slog.Logger
	files []item
	empty []item // directories
}

// add adds a file, or a directory recursively.
func (t *tree) add(source string) error {
	return t.walk(source, source, nil)
}

// walk adds the contents of a path. It follows symbolic links, except to one of the directories
// above path.
func (t *tree) walk(source, path string, above []os.FileInfo) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == source:
		return fmt.Errorf("%s does not exist", path)
	case err != nil && path != source:
		t.log.Warn("not copied", "err", err)
		return nil
	case err != nil:
		return err
	case st.Mode().IsRegular():
		t.files = append(t.files, item{source, path, unixMode(st), st.Size()})
		return nil
	case !st.IsDir():
		t.log.Warn("skipped: neither a file nor a directory", "path", path)
		return nil
	case slices.ContainsFunc(above, func(a os.FileInfo) bool { return os.SameFile(a, st) }):
		t.log.Warn("skipped: symbolic link loop", "path", path)
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		t.empty = append(t.empty, item{source: source, path: path})
	}
	for _, e := range entries {
		if err := t.walk(source, filepath.Join(path, e.Name()), append(above, st)); err != nil {
			return err
		}
	}
	return nil
}

// unixMode returns the permissions including the setuid, setgid and sticky bits.
func unixMode(st os.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Mode & 0o7777)
	}
	return int(st.Mode().Perm())
}
