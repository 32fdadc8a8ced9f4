package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Untar unpacks a tar file into a directory, with modes, times and, for root,
// owners, and returns the unpacked names. Nothing is written outside of the
// directory, not through a link either: such an entry is an error. lookUp
// returns the ids of a user and a group by their names, or those given.
func Untar(ctx context.Context, file, dest string, lookUp func(user, group string, uid, gid int) (int, int)) ([]string, error) {
	root, err := os.OpenRoot(dest)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	u := &untar{root: root, space: roomIn(root), lookUp: lookUp, asRoot: os.Geteuid() == 0}
	return u.unpack(ctx, file)
}

func (u *untar) unpack(ctx context.Context, file string) ([]string, error) {
	if err := eachTar(ctx, file, nil, u.entry); err != nil {
		return u.done, err
	}
	for i := len(u.dirs) - 1; i >= 0; i-- { // their times change when files are written into them
		h := u.dirs[i]
		if err := u.finish(h, clean(h.Name)); err != nil {
			return u.done, err
		}
		if err := u.root.Chmod(clean(h.Name), mode(h)); err != nil {
			return u.done, err
		}
	}
	return u.done, nil
}

type untar struct {
	root   *os.Root
	space  *room
	lookUp func(user, group string, uid, gid int) (int, int)
	asRoot bool
	done   []string
	dirs   []*tar.Header
}

func clean(name string) string { return filepath.Clean(strings.TrimLeft(name, "/")) }

func mode(h *tar.Header) fs.FileMode {
	return h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
}

func (u *untar) entry(h *tar.Header, content io.Reader) error {
	name := clean(h.Name)
	if err := u.put(h, name, content); err != nil {
		return fmt.Errorf("cannot unpack %s: %w", h.Name, err)
	}
	u.done = append(u.done, strings.TrimRight(h.Name, "/"))
	return nil
}

func (u *untar) put(h *tar.Header, name string, content io.Reader) error {
	if dir := filepath.Dir(name); dir != "." && h.Typeflag != tar.TypeDir {
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		u.dirs = append(u.dirs, h)
		return u.root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		if err := replaceLink(u.root, h.Linkname, name); err != nil {
			return err
		}
		return u.own(h, name)
	case tar.TypeLink:
		if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return u.root.Link(clean(h.Linkname), name)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return u.special(h, name)
	}
	sparse := isSparse(h)
	if err := u.space.check(h.Size, sparse); err != nil {
		return err
	}
	write := func(out *os.File) error {
		if sparse {
			return copySparse(out, content, h.Size)
		}
		_, err := io.Copy(out, content)
		return err
	}
	return replace(u.root, name, mode(h), write, func(aside string) error { return u.finish(h, aside) })
}

// finish sets owner and times of an entry.
func (u *untar) finish(h *tar.Header, name string) error {
	if err := u.own(h, name); err != nil {
		return err
	}
	at := h.AccessTime
	if at.IsZero() {
		at = time.Now()
	}
	return u.root.Chtimes(name, at, h.ModTime)
}

func (u *untar) own(h *tar.Header, name string) error {
	if !u.asRoot {
		return nil
	}
	uid, gid := u.lookUp(h.Uname, h.Gname, h.Uid, h.Gid)
	return u.root.Lchown(name, uid, gid)
}

// special makes a device or a named pipe.
func (u *untar) special(h *tar.Header, name string) error {
	dir, err := u.root.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	bits := map[byte]uint32{tar.TypeChar: syscall.S_IFCHR, tar.TypeBlock: syscall.S_IFBLK, tar.TypeFifo: syscall.S_IFIFO}[h.Typeflag]
	base := filepath.Base(name)
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Mknodat(int(dir.Fd()), base, bits|0o600, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))); err != nil {
		return err
	}
	if err := u.finish(h, name); err != nil {
		return err
	}
	return u.root.Chmod(name, mode(h))
}
