// Package archive lists and unpacks tar and zip files.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// MaxEntries bounds the entries of an archive.
const MaxEntries = 1 << 20

// Content is the content of an archive. Directories end in a slash.
type Content struct{ Dirs, Files, Links []string }

// FormatOf guesses the format of an archive by its name: "tar", "zip", "rar"
// or "".
func FormatOf(name string) string {
	name = strings.ToLower(name)
	for _, end := range []string{"tar", "tar.gz", "tgz", "tar.bz2", "tbz2", "tbz", "tar.xz", "txz", "tar.lzma", "tlz", "tar.zst"} {
		if strings.HasSuffix(name, "."+end) {
			return "tar"
		}
	}
	for _, end := range []string{"zip", "rar"} {
		if strings.HasSuffix(name, "."+end) {
			return end
		}
	}
	return ""
}

// List returns the content of an archive of a format. via is a program with
// arguments that gets the name of a tar file and prints it uncompressed;
// without it the compression is detected by the first bytes.
func List(ctx context.Context, file, format string, via ...string) (Content, error) {
	switch format {
	case "tar":
		return listTar(ctx, file, via)
	case "zip":
		return listZip(file)
	}
	return Content{}, fmt.Errorf("unsupported archive format '%s'", format)
}

func listTar(ctx context.Context, file string, via []string) (c Content, err error) {
	err = eachTar(ctx, file, via, func(h *tar.Header, _ io.Reader) error {
		switch h.Typeflag {
		case tar.TypeSymlink:
			c.Links = append(c.Links, h.Name)
		case tar.TypeDir:
			c.Dirs = append(c.Dirs, strings.TrimRight(h.Name, "/")+"/")
		default:
			c.Files = append(c.Files, h.Name)
		}
		return nil
	})
	return c, err
}

// eachTar calls do for each entry of a tar file.
func eachTar(ctx context.Context, file string, via []string, do func(*tar.Header, io.Reader) error) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var in io.Reader
	var done func() error
	if len(via) > 0 {
		in, done, err = program(ctx, nil, via[0], append(via[1:len(via):len(via)], file)...)
	} else {
		in, done, err = uncompressed(ctx, f)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	r := tar.NewReader(in)
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, in) // so that the decompression program exits normally
			return err
		}
		if err != nil {
			return err
		}
		if n >= MaxEntries {
			return fmt.Errorf("the archive holds more than %d entries", MaxEntries)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := do(h, r); err != nil {
			return err
		}
	}
}

// uncompressed detects the compression by the first bytes. xz, lzma and zstd
// use their programs.
func uncompressed(ctx context.Context, f io.Reader) (r io.Reader, done func() error, err error) {
	b := bufio.NewReader(f)
	head, _ := b.Peek(6)
	nothing := func() error { return nil }
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		r, err = gzip.NewReader(b)
		return r, nothing, err
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(b), nothing, nil
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")), bytes.HasPrefix(head, []byte("\x5d\x00\x00")):
		return program(ctx, b, "xz", "--decompress", "--stdout")
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		return program(ctx, b, "zstd", "--decompress", "--stdout")
	}
	return b, nothing, nil
}

func program(ctx context.Context, in io.Reader, name string, args ...string) (io.Reader, func() error, error) {
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("the archive needs the program %s: %w", name, err)
	}
	return out, func() error {
		stop()
		_ = cmd.Wait() // if it fails, the archive ends early
		return nil
	}, nil
}

func listZip(file string) (c Content, err error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return c, err
	}
	defer z.Close()
	dirs := map[string]bool{}
	for _, f := range z.File {
		switch mode := f.Mode(); {
		case mode&fs.ModeSymlink != 0:
			c.Links = append(c.Links, f.Name)
		case mode.IsDir():
			dirs[f.Name] = true
		default:
			c.Files = append(c.Files, f.Name)
			if d := path.Dir(f.Name); d != "." {
				dirs[d+"/"] = true
			}
		}
	}
	for d := range dirs {
		c.Dirs = append(c.Dirs, d)
	}
	slices.Sort(c.Dirs)
	return c, nil
}

// Strip removes the first n directories from all names, and names that have no
// more.
func (c Content) Strip(n int) Content {
	cut := func(names []string) []string {
		var out []string
		for _, name := range names {
			if parts := strings.SplitN(name, "/", n+1); len(parts) > n && parts[n] != "" {
				out = append(out, parts[n])
			}
		}
		return out
	}
	return Content{cut(c.Dirs), cut(c.Files), cut(c.Links)}
}

// Top returns the top level of an archive. A directory that contains all others
// counts even without an entry of its own.
func (c Content) Top() Content {
	cut := func(names []string, slashes int) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.Count(n, "/") != slashes })
	}
	dirs := cut(c.Dirs, 1)
	if first, _, ok := strings.Cut(common(c.Dirs), "/"); ok && !slices.Contains(dirs, first+"/") {
		dirs = append(dirs, first+"/")
	}
	return Content{dirs, cut(c.Files, 0), cut(c.Links, 0)}
}

// common returns the common prefix of all names.
func common(names []string) string {
	if len(names) == 0 {
		return ""
	}
	prefix := names[0]
	for _, n := range names[1:] {
		for !strings.HasPrefix(n, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}

// Encrypted reports whether a zip file needs a password.
func Encrypted(file string) (bool, error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return false, err
	}
	defer z.Close()
	for _, f := range z.File {
		if f.Flags&1 != 0 {
			return true, nil
		}
	}
	return false, nil
}

// ZipNames returns the names in a zip file, in its order, but for those of excludes.
func ZipNames(file string, excludes []string) ([]string, error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		if !slices.Contains(excludes, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names, nil
}

// Unzip unpacks a zip file into a directory, except excluded names, and returns
// the unpacked names. Nothing is written outside of the directory, not through
// a link either. With perms, modes are those of the archive.
func Unzip(file, dest string, excludes []string, perms bool) ([]string, error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dest)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := apart(z.File); err != nil {
		return nil, err
	}
	space := roomIn(root)
	var done []string
	for _, f := range z.File {
		if slices.Contains(excludes, f.Name) {
			continue
		}
		if err := unpack(root, space, f, perms); err != nil {
			return done, err
		}
		done = append(done, f.Name)
	}
	return done, nil
}

func unpack(root *os.Root, space *room, f *zip.File, perms bool) error {
	name := filepath.Clean(strings.TrimLeft(f.Name, "/"))
	if f.FileInfo().IsDir() {
		if err := root.MkdirAll(name, 0o755); err != nil || !perms || f.ExternalAttrs>>16 == 0 {
			return err
		}
		return root.Chmod(name, f.Mode().Perm())
	}
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	if f.Mode()&fs.ModeSymlink != 0 {
		target, err := io.ReadAll(io.LimitReader(in, 4096))
		if err != nil {
			return err
		}
		return replaceLink(root, string(target), name)
	}
	mode := fs.FileMode(0o644)
	if perms && f.ExternalAttrs>>16 != 0 {
		mode = f.Mode().Perm()
	}
	if err := space.check(int64(min(f.UncompressedSize64, 1<<62)), false); err != nil {
		return fmt.Errorf("cannot unpack %s: %w", f.Name, err)
	}
	return replace(root, name, mode, func(out *os.File) error {
		_, err := io.Copy(out, in)
		return err
	}, nil)
}

// replace writes a temporary file and renames it when complete. finish, if set,
// is called with its name before that.
func replace(root *os.Root, name string, mode fs.FileMode, write func(*os.File) error, finish func(aside string) error) (err error) {
	aside := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%x.%s", rand.Uint64(), "unpack"))
	out, err := root.OpenFile(aside, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(aside)
		}
	}()
	if err = errors.Join(write(out), out.Close()); err != nil {
		return err
	}
	if finish != nil {
		if err := finish(aside); err != nil {
			return err
		}
	}
	if err := root.Chmod(aside, mode); err != nil { // last: chown clears the setuid bit
		return err
	}
	return root.Rename(aside, name)
}

// replaceLink makes a symbolic link, replacing another one or a file.
func replaceLink(root *os.Root, target, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.Symlink(target, name)
}
