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

// As says how a file is replaced.
type As struct {
	// Mode, UID and GID are what the file is to have; -1 keeps what an old
	// file has. A new file then gets what the umask leaves.
	Mode, UID, GID int
	// ReplaceLink replaces a symbolic link instead of the file that it stands for.
	ReplaceLink bool
	// Durable has the content on the disk before the file takes its name, so
	// that after a power cut there is the old file or the whole new one. It
	// does not wait for the name: which of both there is, is not said, and
	// would take a second flush.
	Durable bool
	// Ready, if set, is asked for a file that Aside made and SyncAll put on the
	// disk, once it is known what path the file is to have and what is there,
	// nil for nothing: that file then takes the name, and nothing is poured. It
	// is closed in any case. nil has the content poured.
	Ready func(final string, old fs.FileInfo) *os.File
}

// maxSyncs bounds how many files are flushed at a time.
const maxSyncs = 4

// SyncAll puts several files on the disk. Together that takes hardly longer
// than one of them alone: all contents are on the disk before the first file
// is flushed, and then a journal has, in one piece, all that is to be said of
// the others, too. The errors are in the order of the files.
func SyncAll(files []*os.File) []error {
	errs := make([]error, len(files))
	for _, f := range files {
		begin(f)
	}
	for i, f := range files {
		errs[i] = written(f)
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

// Replace writes a file of a user anew: all of it is on its way to the disk
// before the old one is gone, and a failure leaves the old one as it was. A
// symbolic link at dest is followed. A file that exists keeps its owner, as
// far as this user may, and its mode unless mode says another; mode is -1 to
// keep the old one, or for a new file what the umask leaves. pour writes the
// content. An error matches fs.ErrNotExist if the folder is not there.
func Replace(dest string, mode int, pour func(io.Writer) error) error {
	return ReplaceAs(dest, As{Mode: mode, UID: -1, GID: -1}, pour)
}

// ReplaceAs is Replace with an owner: the file has owner and mode before
// anybody can see it.
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
		perm = 0o600 // until it has its own: what is secret is never open to all
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
		err = as.dress(f, old)
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

// settle gives a file of Aside's owner, mode and name.
func (as As) settle(f *os.File, final string, old fs.FileInfo) error {
	defer f.Close()
	if err := as.dress(f, old); err != nil {
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

// dress gives a new file its owner and mode.
func (as As) dress(f *os.File, old fs.FileInfo) error {
	if old != nil {
		if err := like(f, old); err != nil {
			return err
		}
	}
	return as.apply(f, old)
}

// apply gives a new file its owner and mode. The mode comes last, for a
// change of the owner takes the set-id bits away.
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

// place moves a file to its place. Where something is mounted on the old file,
// as in containers, it can only be written in place.
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

// Resolve follows symbolic links to the file that they stand for, which is
// the one to replace, and describes it if it exists. It must be a regular
// file.
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
			return "", nil, fmt.Errorf("%s is no regular file", dest)
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

// temporaryName returns a name that nothing else has.
func temporaryName(dir string) string {
	return fmt.Sprintf("%s/%s%d-%d", dir, TempPrefix, os.Getpid(), temporaries.Add(1))
}

// temporary makes a new file whose mode is what the umask leaves of perm.
func temporary(dir string, perm fs.FileMode) (*os.File, error) {
	for i := 0; ; i++ {
		f, err := os.OpenFile(temporaryName(dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if !errors.Is(err, fs.ErrExist) || i > 10000 {
			return f, err
		}
	}
}

// like gives a new file the mode of the old one, and its owner as far as this
// user may.
func like(f *os.File, old fs.FileInfo) error {
	st, ok := old.Sys().(*syscall.Stat_t)
	if !ok {
		return f.Chmod(old.Mode())
	}
	if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return f.Chmod(old.Mode()) // after the owner, which takes the set-id bits away
}
