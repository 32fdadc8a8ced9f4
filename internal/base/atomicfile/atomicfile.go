// Package atomicfile replaces whole files so that a reader, also after a power
// failure, sees the old or the new content and never a part. It does not
// interpret the content.
//
// The content is first written to a temporary file in the same directory whose
// name begins with TempPrefix. A crash can leave such a file behind.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// TempPrefix starts the names of temporary files. They are dot files, which
// Salt's tools ignore.
const TempPrefix = ".brine-tmp-"

// Write creates or replaces the file at path with exactly this mode. With
// durable it returns after content and name are on disk. A symbolic link at
// path is replaced, not followed.
func Write(path string, data []byte, mode fs.FileMode, durable bool) error {
	return write(path, data, mode, durable, os.Rename)
}

// Create writes a file that must not exist; otherwise the error matches fs.ErrExist.
// Only one of several concurrent callers succeeds. The file is always durable.
func Create(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, true, Place)
}

// Place renames a file to a name that must not exist; otherwise the error matches
// fs.ErrExist. Only one of several concurrent callers succeeds.
func Place(temp, path string) error {
	if done, err := renameNew(temp, path); done {
		return err
	}
	if err := os.Link(temp, path); err != nil {
		return err
	}
	return os.Remove(temp)
}

// Symlink creates or replaces the symbolic link at path atomically. ready, which may
// be nil, is called with the temporary name of the new link before the rename.
func Symlink(target, path string, ready func(temp string) error) error {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%d-%s", TempPrefix, os.Getpid(), filepath.Base(path)))
	os.Remove(temp) // left by a dead process with the same process id
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	var err error
	if ready != nil {
		err = ready(temp)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

func write(path string, data []byte, mode fs.FileMode, durable bool, place func(temp, path string) error) error {
	temp, err := writeTemp(filepath.Dir(path), data, mode, durable)
	if err == nil {
		if err = place(temp, path); err != nil {
			os.Remove(temp)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, Cause(err))
	}
	if durable {
		if err := SyncDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
	}
	return nil
}

func writeTemp(dir string, data []byte, mode fs.FileMode, durable bool) (string, error) {
	f, err := os.CreateTemp(dir, TempPrefix)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// MkdirAll does the same as os.MkdirAll, and flushes new directories to disk before
// it returns.
func MkdirAll(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := MkdirAll(filepath.Dir(path), mode); err != nil {
			return err
		}
		err = os.Mkdir(path, mode)
	}
	if err == nil {
		return SyncDir(filepath.Dir(path))
	}
	// Another process may have created it, or it is a link to a directory.
	if info, e := os.Stat(path); e == nil && info.IsDir() {
		return nil
	}
	return err
}

// flushDir is replaced by tests, to simulate a failing disk.
var flushDir = (*os.File).Sync

// SyncDir makes the names in a directory durable if the file system supports
// it. An error means that the disk may not have them: what was done is visible,
// but must not be reported as stored.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil // a directory that cannot be read; it cannot be flushed
	}
	defer d.Close()
	err = flushDir(d)
	for _, failure := range []error{syscall.EIO, syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, failure) {
			return fmt.Errorf("cannot flush the directory %s: %w", dir, Cause(err))
		}
	}
	return nil // others mean that the file system does not support it
}

// Cause removes the names of the system call and of the temporary file from an error,
// as they do not help a user.
func Cause(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}
