package fileclient

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/base/wait"
)

// store stores the contents of salt:// files by hash, below the cache directory:
// brine/contents/HASHTYPE/XX/HASH. The files of the cache are hard links to them. So equal content is fetched
// once, regardless of names, environments and masters, and a path in the store never gets other content.
//
// A content that is being fetched is in HASH.part, locked (flock) by the process that fetches it. Others wait,
// and if the transfer fails, the next one continues at the same offset.
type store struct{ dir string }

func (c *Client) store() store { return store{filepath.Join(c.o.CacheDir, "brine", "contents")} }

// path returns the path of a content; ok is false for an invalid hash.
func (s store) path(h Hash) (p string, ok bool) {
	if NewHash(h.Type) == nil || lengths[len(h.Sum)] != strings.ToLower(h.Type) || strings.Trim(h.Sum, "0123456789abcdef") != "" {
		return "", false
	}
	return filepath.Join(s.dir, strings.ToLower(h.Type), h.Sum[:2], h.Sum), true
}

// keep ensures that the store has a content, and requests it from the origin if necessary. dest is where a
// cache of Salt or an older Brine may have it.
func (s store) keep(ctx context.Context, from *origin, at location, dest string, want Hash, level int) (*os.File, error) {
	f, err := s.fill(ctx, want, func(part *os.File, offset int64) error {
		if offset == 0 {
			if old := unchanged(dest, want); old != nil {
				defer old.Close()
				_, err := io.Copy(part, old)
				return err
			}
		}
		h := NewHash(want.Type)
		if offset > 0 {
			if _, err := part.Seek(0, io.SeekStart); err != nil {
				return err
			}
			if _, err := io.CopyN(h, part, offset); err != nil {
				return err
			}
		}
		return from.receive(ctx, at, part, h, offset, want, level)
	})
	if err == nil {
		s.sweep()
	}
	return f, err
}

// pourTo writes a content to w, from the store or else from the origin.
func (s store) pourTo(ctx context.Context, from *origin, at location, w io.Writer, want Hash, level int) error {
	if full, ok := s.path(want); ok && from.sharer != nil {
		if f := unchanged(full, want); f != nil {
			defer f.Close()
			_, err := io.Copy(w, f)
			return err
		}
	}
	return from.receive(ctx, at, w, NewHash(want.Type), 0, want, level)
}

const (
	// abandoned is the age at which a content without another name, or an incomplete one, is removed.
	abandoned = 7 * 24 * time.Hour
	// sweepEvery is the interval at which such contents are removed.
	sweepEvery = 24 * time.Hour
)

// fill ensures that the store has a content. pour writes the content to a file, starting at an offset; the
// file already has the part before it.
func (s store) fill(ctx context.Context, h Hash, pour func(f *os.File, from int64) error) (*os.File, error) {
	full, ok := s.path(h)
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "the file server uses the hash %q, which is not known here", h.Type)
	}
	if f := unchanged(full, h); f != nil {
		return f, nil
	}
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		return nil, err
	}
	part, err := lockPart(ctx, full+".part")
	if err != nil {
		return nil, err
	}
	defer part.Close()
	if f := unchanged(full, h); f != nil { // another process was faster
		os.Remove(part.Name())
		return f, nil
	}
	from, err := part.Seek(0, io.SeekEnd)
	if err == nil {
		err = pour(part, from)
	}
	if bad := (*changedError)(nil); from > 0 && errors.As(err, &bad) {
		// The partial file is not the beginning of the content, for example after a power failure.
		if err = truncate(part); err == nil {
			err = pour(part, 0)
		}
	}
	if bad := (*changedError)(nil); errors.As(err, &bad) {
		os.Remove(part.Name())
	}
	if err != nil {
		return nil, err
	}
	if err := os.Rename(part.Name(), full); err != nil { // rename: a download, compared with its hash when it is read
		return nil, err
	}
	return openRegular(full)
}

func truncate(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// lockPart opens and locks a file.
func lockPart(ctx context.Context, path string) (*os.File, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && sameFile(f, path) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
		}
		if err == nil {
			continue // its previous owner has renamed or removed it
		}
		if !wait.Sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// name adds a name for a content, or copies it where links are impossible.
func (s store) name(h Hash, f *os.File, dest string) error {
	if sameFile(f, dest) {
		return nil
	}
	if err := prepare(dest, fetchOptions{cache: true}); err != nil {
		return err
	}
	full, _ := s.path(h)
	temp, err := linkTemp(full, filepath.Dir(dest))
	if err == nil && sameFile(f, temp) {
		if err = os.Rename(temp, dest); err == nil { // rename: a further name of a stored file
			os.Remove(temp) // os.Rename does nothing if both names already are the same file
			return nil
		}
	}
	if temp != "" {
		os.Remove(temp)
	}
	err = atomicfile.Replace(dest, 0o600, func(w io.Writer) error { _, err := io.Copy(w, f); return err })
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return err
}

// linkTemp creates a link with a temporary name.
func linkTemp(full, dir string) (string, error) {
	f, err := os.CreateTemp(dir, atomicfile.TempPrefix)
	if err != nil {
		return "", err
	}
	f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return "", err
	}
	return f.Name(), os.Link(full, f.Name())
}

// forget removes a name of a content, and the content itself if it has no other name.
func (s store) forget(path, hashType string) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum, hashErr := hashOf(f, hashType)
	if err := os.Remove(path); err != nil {
		return err
	}
	if full, ok := s.path(Hash{Type: hashType, Sum: sum}); hashErr == nil && ok && sameFile(f, full) {
		if st, err := f.Stat(); err == nil && st.Sys().(*syscall.Stat_t).Nlink == 1 {
			return os.Remove(full)
		}
	}
	return nil
}

// sweep removes, once a day, contents that have not been used for long.
func (s store) sweep() { s.sweepAt(steady.Removal()) }

// sweepAt is sweep at a time. A clock may be wrong: from one sweep to the next at most a day counts, however
// much later it is by the clock, and a clock that was ahead at the last sweep is forgotten.
func (s store) sweepAt(now time.Time) {
	mark := filepath.Join(s.dir, ".swept")
	last := now
	st, err := os.Stat(mark)
	if err == nil {
		last = st.ModTime()
	}
	if err == nil && !last.After(now) && now.Sub(last) < sweepEvery {
		return
	}
	if os.MkdirAll(s.dir, 0o700) != nil || os.WriteFile(mark, nil, 0o600) != nil || os.Chtimes(mark, now, now) != nil {
		return
	}
	if err != nil || last.After(now) {
		return
	}
	if most := last.Add(sweepEvery); now.After(most) {
		now = most
	}
	_ = filepath.WalkDir(s.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || p == mark {
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return nil
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if ok && sys.Nlink == 1 && now.Sub(st.ModTime()) > abandoned && now.Sub(changed(sys)) > abandoned {
			_ = os.Remove(p)
		}
		return nil
	})
}
