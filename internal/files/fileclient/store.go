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
)

// store keeps the contents of salt:// files by their hashes, below the cache
// folder: brine/contents/HASHTYPE/XX/HASH. The files of the cache are further
// names (hard links) of them. So equal content is fetched once, whatever its
// names, environments and masters, and a path in the store never gets another
// content.
//
// A content that is being fetched is in HASH.part, which whoever fetches has
// locked (flock); others wait for it, and if it comes to nothing the next one
// goes on where it ended.
type store struct{ dir string }

func (c *Client) store() store { return store{filepath.Join(c.o.CacheDir, "brine", "contents")} }

// path returns where a content is kept; ok is false for a hash that is none.
func (s store) path(h Hash) (p string, ok bool) {
	if NewHash(h.Type) == nil || lengths[len(h.Sum)] != strings.ToLower(h.Type) || strings.Trim(h.Sum, "0123456789abcdef") != "" {
		return "", false
	}
	return filepath.Join(s.dir, strings.ToLower(h.Type), h.Sum[:2], h.Sum), true
}

const (
	// abandoned is how old a content becomes that has no other name, and one
	// that was never fetched to its end.
	abandoned = 7 * 24 * time.Hour
	// sweepEvery is how often such contents are looked for.
	sweepEvery = 24 * time.Hour
)

// fill makes sure that the store has a content, which pour writes: from the
// place on that it is given, to a file that has what is before.
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
	if f := unchanged(full, h); f != nil { // somebody else was faster
		os.Remove(part.Name())
		return f, nil
	}
	from, err := part.Seek(0, io.SeekEnd)
	if err == nil {
		err = pour(part, from)
	}
	if bad := (*changedError)(nil); from > 0 && errors.As(err, &bad) {
		// What was there was not the beginning of it, after a power cut for
		// example.
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
	if err := os.Rename(part.Name(), full); err != nil {
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

// lockPart opens a file and waits until it is ours.
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
			continue // whoever had it has renamed or removed it
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
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

// name gives a content a further name, or a copy where that cannot be.
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
		if err = os.Rename(temp, dest); err == nil {
			os.Remove(temp) // it stays if both are names of one file already
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

// linkTemp makes a link of a temporary name.
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

// forget removes a name of a content, and the content if it has no other name.
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

// sweep removes, once a day, contents that are long out of use.
func (s store) sweep() {
	mark := filepath.Join(s.dir, ".swept")
	if st, err := os.Stat(mark); err == nil && time.Since(st.ModTime()) < sweepEvery {
		return
	}
	if os.MkdirAll(s.dir, 0o700) != nil || os.WriteFile(mark, nil, 0o600) != nil {
		return
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
		if ok && sys.Nlink == 1 && time.Since(st.ModTime()) > abandoned && time.Since(changed(sys)) > abandoned {
			_ = os.Remove(p)
		}
		return nil
	})
}
