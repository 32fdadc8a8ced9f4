// Package atomicfile writes whole files so that a reader, or a machine that
// loses power, sees the old content or the new one and never a part. It knows
// nothing of what is in them.
//
// The content first goes to a temporary file in the same folder whose name
// begins with TempPrefix; a crash can leave such a file behind.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// TempPrefix begins the names of temporary files. It is a dot file, which
// Salt's tools overlook.
const TempPrefix = ".brine-tmp-"

// Write replaces the file at path, or makes it, with exactly this mode. With
// durable it returns only after the disk has content and name. A symbolic
// link at path is replaced, not followed.
func Write(path string, data []byte, mode fs.FileMode, durable bool) error {
	return write(path, data, mode, durable, os.Rename)
}

// Create is Write for a file that must not exist; the error then matches
// fs.ErrExist. Of several callers at once one succeeds. It is always durable.
func Create(path string, data []byte, mode fs.FileMode) error {
	return write(path, data, mode, true, Place)
}

// Place gives a file a name that must not exist; the error then matches
// fs.ErrExist. Of several callers at once one succeeds.
func Place(temp, path string) error {
	if done, err := renameNew(temp, path); done {
		return err
	}
	if err := os.Link(temp, path); err != nil {
		return err
	}
	return os.Remove(temp)
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
		SyncDir(filepath.Dir(path))
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

// SyncDir makes the names in a folder durable where the file system can.
func SyncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync() // some file systems cannot; the rename itself has happened
		d.Close()
	}
}

// Cause takes the name of the system call and of the temporary file off an
// error, which say nothing to a user.
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

// RemoveTemps removes what writers that died left in a folder more than an
// hour ago.
func RemoveTemps(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // of those that can be read
	for _, name := range names {
		if !strings.HasPrefix(name, TempPrefix) {
			continue
		}
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > time.Hour {
			os.Remove(path)
		}
	}
}
