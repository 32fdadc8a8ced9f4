// Package archive tells what is in tar and zip files, and unpacks zip files.
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
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// MaxEntries bounds the entries of an archive.
const MaxEntries = 1 << 20

// Content is what an archive holds. Folders end in a slash.
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

// List returns what an archive of a format holds.
func List(ctx context.Context, file, format string) (Content, error) {
	switch format {
	case "tar":
		return listTar(ctx, file)
	case "zip":
		return listZip(file)
	}
	return Content{}, fmt.Errorf("unsupported archive format '%s'", format)
}

func listTar(ctx context.Context, file string) (c Content, err error) {
	f, err := os.Open(file)
	if err != nil {
		return c, err
	}
	defer f.Close()
	in, done, err := uncompressed(ctx, f)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, done()) }()
	r := tar.NewReader(in)
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, in) // so that a program that unpacks ends well
			return c, err
		}
		if err != nil {
			return c, err
		}
		if n >= MaxEntries {
			return c, fmt.Errorf("the archive holds more than %d entries", MaxEntries)
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			c.Links = append(c.Links, h.Name)
		case tar.TypeDir:
			c.Dirs = append(c.Dirs, strings.TrimRight(h.Name, "/")+"/")
		default:
			c.Files = append(c.Files, h.Name)
		}
	}
}

// uncompressed finds the compression by the first bytes. xz, lzma and zstd
// are left to their programs.
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
		_ = cmd.Wait() // what it could not unpack shows as an archive that ends early
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

// Strip takes the first n folders from all names; what has no more goes away.
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

// Unzip unpacks a zip file into a folder without those that are excluded, and
// returns the names that were unpacked. Nothing is written outside of the
// folder, not through a link either. Modes are those of the archive if perms.
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
	var done []string
	for _, f := range z.File {
		if slices.Contains(excludes, f.Name) {
			continue
		}
		if err := unpack(root, f, perms); err != nil {
			return done, err
		}
		done = append(done, f.Name)
	}
	return done, nil
}

func unpack(root *os.Root, f *zip.File, perms bool) error {
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
		return root.Symlink(string(target), name)
	}
	out, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if perms && f.ExternalAttrs>>16 != 0 && err == nil {
		err = out.Chmod(f.Mode().Perm())
	}
	return errors.Join(err, out.Close())
}
