package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// As holds the options of ReplaceAs.
type As struct {
	// Mode, UID and GID of the file; -1 keeps those of an existing file. A new
	// file then gets a mode by the umask.
	Mode, UID, GID int
	// ReplaceLink replaces a symbolic link instead of its target.
	ReplaceLink bool
	// Durable flushes the content before the rename, so that after a power
	// failure there is the old file or the complete new one. It does not flush
	// the name, which would cost a second flush.
	Durable bool
	// Ready, if set, returns a file made by Aside and flushed by SyncAll, to be
	// renamed to path instead of writing the content. It gets the resolved path
	// and the existing file, or nil. ReplaceAs closes the returned file. If
	// Ready returns nil, the content is written.
	Ready func(final string, old fs.FileInfo) *os.File
}

// maxSyncs bounds concurrent flushes.
const maxSyncs = 4

// SyncAll flushes several files. That takes hardly longer than flushing one: all
// content is written before the first flush, whose journal commit then includes
// the metadata of the others. The errors are in the order of the files.
func SyncAll(files []*os.File) []error {
	errs := make([]error, len(files))
	for _, f := range files {
		startFlush(f)
	}
	for i, f := range files {
		errs[i] = waitFlush(f)
	}
	var next atomic.Int64
	flush := func() {
		for i := next.Add(1) - 1; int(i) < len(files); i = next.Add(1) - 1 {
			if errs[i] == nil {
				errs[i] = files[i].Sync()
			}
		}
	}
	var wg sync.WaitGroup
	for range min(maxSyncs, len(files)) {
		wg.Go(flush)
	}
	wg.Wait()
	return errs
}

// Replace replaces a file of a user. A failure leaves the old file unchanged. A
// symbolic link at dest is followed. An existing file keeps its owner, as far
// as permissions allow, and its mode if mode is -1; a new file then gets its
// mode by the umask. pour writes the content. The error matches fs.ErrNotExist
// if the directory does not exist.
func Replace(dest string, mode int, pour func(io.Writer) error) error {
	return ReplaceAs(dest, As{Mode: mode, UID: -1, GID: -1}, pour)
}

// ReplaceAs also sets the owner: owner and mode are set before the file is
// visible.
func ReplaceAs(dest string, as As, pour func(io.Writer) error) error {
	final, old, err := dest, fs.FileInfo(nil), error(nil)
	if as.ReplaceLink {
		if st, err := os.Lstat(dest); err == nil && st.Mode().IsRegular() {
			old = st
		}
	} else if final, old, err = Resolve(dest); err != nil {
		return err
	}
	if as.Ready != nil {
		if f := as.Ready(final, old); f != nil {
			return as.settle(f, final, old)
		}
	}
	perm := fs.FileMode(0o666)
	if as.Mode >= 0 || old != nil {
		perm = 0o600 // until the mode is set, so that secrets are never readable by others
	}
	f, err := temporary(filepath.Dir(final), perm)
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = &fs.PathError{Op: p.Op, Path: dest, Err: p.Err}
		}
		return err
	}
	err = pour(f)
	if err == nil {
		err = as.setOwner(f, old)
	}
	if err == nil && as.Durable {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = place(f.Name(), final, old)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// settle sets owner, mode and name of a file made by Aside.
func (as As) settle(f *os.File, final string, old fs.FileInfo) error {
	defer f.Close()
	if err := as.setOwner(f, old); err != nil {
		return err
	}
	if old == nil {
		if err := link(f, final); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	temp, err := "", fs.ErrExist
	for i := 0; errors.Is(err, fs.ErrExist) && i < 10000; i++ {
		temp = temporaryName(filepath.Dir(final))
		err = link(f, temp)
	}
	if err != nil {
		return err
	}
	if err = place(temp, final, old); err != nil {
		os.Remove(temp)
	}
	return err
}

// setOwner sets owner and mode of a new file.
func (as As) setOwner(f *os.File, old fs.FileInfo) error {
	if old != nil {
		if err := like(f, old); err != nil {
			return err
		}
	}
	return as.apply(f, old)
}

// apply sets owner and mode of a new file. The mode comes last, since a change
// of the owner clears the set-id bits.
func (as As) apply(f *os.File, old fs.FileInfo) error {
	if as.UID >= 0 || as.GID >= 0 {
		if err := f.Chown(as.UID, as.GID); err != nil {
			return err
		}
		if as.Mode < 0 && old != nil {
			return f.Chmod(old.Mode())
		}
	}
	if as.Mode < 0 {
		return nil
	}
	return f.Chmod(unixMode(as.Mode))
}

// place renames a file to its destination. If the old file is a mount point, as
// in containers, it is overwritten in place.
func place(temp, final string, old fs.FileInfo) error {
	err := os.Rename(temp, final)
	if !errors.Is(err, syscall.EBUSY) || old == nil {
		return err
	}
	from, err := os.Open(temp)
	if err != nil {
		return err
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(final, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = like(to, st)
	}
	if err == nil {
		err = to.Sync()
	}
	if e := to.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Remove(temp)
	}
	return err
}

func unixMode(mode int) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	for bit, flag := range map[int]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}

// Resolve follows symbolic links to the file to replace, and describes it if it
// exists. It must be a regular file.
func Resolve(dest string) (string, fs.FileInfo, error) {
	for range 40 {
		st, err := os.Lstat(dest)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return dest, nil, nil
		case err != nil:
			return "", nil, err
		case st.IsDir():
			return "", nil, &fs.PathError{Op: "open", Path: dest, Err: syscall.EISDIR}
		case st.Mode().IsRegular():
			return dest, st, nil
		case st.Mode()&fs.ModeSymlink == 0:
			return "", nil, fmt.Errorf("%s is not a regular file", dest)
		}
		to, err := os.Readlink(dest)
		if err != nil {
			return "", nil, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(dest) + "/" + to
		}
		dest = to
	}
	return "", nil, &fs.PathError{Op: "open", Path: dest, Err: syscall.ELOOP}
}

// temporaries counts the temporary files of this process.
var temporaries atomic.Int64

// temporaryName returns a unique name.
func temporaryName(dir string) string {
	return fmt.Sprintf("%s/%s%d-%d", dir, TempPrefix, os.Getpid(), temporaries.Add(1))
}

// temporary creates a new file with mode perm less the umask.
func temporary(dir string, perm fs.FileMode) (*os.File, error) {
	for i := 0; ; i++ {
		f, err := os.OpenFile(temporaryName(dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if !errors.Is(err, fs.ErrExist) || i > 10000 {
			return f, err
		}
	}
}

// like sets the mode of a new file to that of the old one, and its owner as far
// as permissions allow.
func like(f *os.File, old fs.FileInfo) error {
	st, ok := old.Sys().(*syscall.Stat_t)
	if !ok {
		return f.Chmod(old.Mode())
	}
	if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return f.Chmod(old.Mode()) // after the owner, since chown clears the set-id bits
}
