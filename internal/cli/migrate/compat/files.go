package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Bounds for reading a tree, which may be hostile.
const (
	// maxSLS bounds the size in bytes of files that Salt reads as programs, maxText of other files
	// that may be templates.
	maxSLS  = 16 << 20
	maxText = 1 << 20
	// maxFiles bounds the number of files checked in one directory, maxDepth the nesting of
	// directories.
	maxFiles = 1_000_000
	maxDepth = 64
)

// errSpecial is the error for an entry that is neither a file nor a directory.
var errSpecial = errors.New("it is not a regular file")

// errLarge is the error for a file above its size limit.
var errLarge = errors.New("it is too large to be searched")

// readFile reads a regular file of at most limit bytes. It does not block on a FIFO or a device.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, cause(err)
	case !st.Mode().IsRegular():
		return nil, errSpecial
	case st.Size() > limit:
		return nil, errLarge
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, cause(err)
	case int64(len(text)) > limit:
		return nil, errLarge
	}
	return text, nil
}

// cause removes the path from an error, because the finding has it.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// walker visits the files below a directory. Like Salt's file server it follows symbolic links, but
// it enters each directory once, so that link loops end.
type walker struct {
	ctx   context.Context
	seen  map[fileID]bool
	files int
	// enter decides whether to enter a directory, file is called for each other entry, and failed
	// for entries that cannot be read.
	enter  func(path string) bool
	file   func(path string, err error)
	failed func(path string, err error)
}

// fileID identifies a directory.
type fileID struct{ dev, ino uint64 }

func idOf(st fs.FileInfo) fileID {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return fileID{uint64(s.Dev), s.Ino} //nolint:unconvert // the type of Dev differs between systems
	}
	return fileID{}
}

func (w *walker) walk(dir string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	st, err := os.Stat(dir)
	if err != nil {
		w.failed(dir, cause(err))
		return nil
	}
	if w.seen == nil {
		w.seen = map[fileID]bool{}
	}
	if id := idOf(st); w.seen[id] {
		return nil
	} else {
		w.seen[id] = true
	}
	if depth > maxDepth {
		w.failed(dir, fmt.Errorf("more than %d directories are below each other", maxDepth))
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.failed(dir, cause(err))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if w.files++; w.files > maxFiles {
			return fmt.Errorf("%s has more than %d files", dir, maxFiles)
		}
		kind := e.Type()
		if kind&fs.ModeSymlink != 0 {
			st, err := os.Stat(path)
			if err != nil {
				w.file(path, cause(err))
				continue
			}
			kind = st.Mode().Type()
		}
		switch {
		case kind.IsDir():
			if w.enter(path) {
				if err := w.walk(path, depth+1); err != nil {
					return err
				}
			}
		case kind.IsRegular():
			w.file(path, nil)
		default:
			w.file(path, errSpecial)
		}
	}
	return nil
}
