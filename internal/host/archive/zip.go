package archive

import (
	"archive/zip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Zip packs files, and directories with their content, into a new zip file and
// returns their names in it: relative to cwd if below it, else to "/". A
// missing source is skipped. Links are followed, except links to directories
// within a directory. On an error the file is removed.
func Zip(file string, sources []string, cwd string) (names []string, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			names = nil
			_ = os.Remove(file) // an incomplete file is useless
		}
	}()
	z := zip.NewWriter(f)
	p := packing{z: z, cwd: cwd}
	for _, s := range sources {
		if cwd != "" && !filepath.IsAbs(s) {
			s = filepath.Join(cwd, s)
		}
		if err := p.add(s); err != nil {
			return nil, err
		}
	}
	return p.names, z.Close()
}

// packing is a zip file being written.
type packing struct {
	z     *zip.Writer
	cwd   string
	names []string
}

func (p *packing) add(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.IsDir():
		return p.put(path, st)
	}
	return p.directory(path, st)
}

// directory writes a directory, then its files, then its directories.
func (p *packing) directory(path string, st fs.FileInfo) error {
	if err := p.put(path, st); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	var below []string
	for _, e := range entries {
		at := filepath.Join(path, e.Name())
		if e.IsDir() {
			below = append(below, at)
			continue
		}
		st, err := os.Stat(at) // of the target of a link
		if err != nil {
			return err
		}
		if st.IsDir() {
			continue
		}
		if err := p.put(at, st); err != nil {
			return err
		}
	}
	for _, at := range below {
		st, err := os.Stat(at)
		if err != nil {
			return err
		}
		if err := p.directory(at, st); err != nil {
			return err
		}
	}
	return nil
}

// put writes one file or directory.
func (p *packing) put(path string, st fs.FileInfo) error {
	h, err := zip.FileInfoHeader(st)
	if err != nil {
		return err
	}
	h.Name, h.Method = p.name(path), zip.Deflate
	if st.IsDir() {
		if h.Name == "." { // the directory that all names are relative to
			return nil
		}
		h.Name, h.Method = h.Name+"/", zip.Store
	}
	w, err := p.z.CreateHeader(h)
	if err != nil {
		return err
	}
	p.names = append(p.names, h.Name)
	if !st.Mode().IsRegular() {
		return nil
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(w, from)
	return err
}

func (p *packing) name(path string) string {
	if p.cwd != "" {
		if rel, err := filepath.Rel(p.cwd, path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return rel
		}
	}
	return strings.TrimPrefix(path, "/")
}
