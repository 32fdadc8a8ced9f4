package wheel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
)

// roots are the directories of the option file_roots or pillar_roots. Paths
// cannot leave a root, neither by .. nor by a symbolic link.
type roots struct {
	option string
	// refused is Salt's result of write for a path outside of the roots.
	refused func(path string) string
	// mode is the mode of new files, dirMode of new directories.
	mode, dirMode fs.FileMode
}

func init() { modules.Register("file_roots", func(Deps) fn.Module { return fileRootsModule() }) }

func fileRootsModule() fn.Module {
	r := roots{option: "file_roots", refused: func(p string) string { return "Invalid path: " + p }, mode: 0o644, dirMode: 0o755}
	return r.module(`The files of file_roots.`)
}

func init() { modules.Register("pillar_roots", func(Deps) fn.Module { return pillarRootsModule() }) }

func pillarRootsModule() fn.Module {
	// Pillar data is mostly secret.
	r := roots{option: "pillar_roots", refused: func(string) string { return "Invalid path" }, mode: 0o640, dirMode: 0o750}
	return r.module(`The files of pillar_roots.`)
}

func (r roots) module(doc string) fn.Module {
	return fn.Module{Name: r.option, Doc: doc, Funcs: []fn.Func{
		fn.Of("find", r.find, `Find a file in the roots of an environment, and return whether it is text (txt) or not (bin).`),
		fn.Of("list_env", r.listEnv, `Return the files and directories of an environment, by root.`),
		fn.Of("list_roots", r.listRoots, `Return the files and directories of all environments.`),
		fn.Of("read", r.read, `Return the contents of a text file, from each root that has it.`),
		fn.Of("write", r.write, `Write a file below one root of an environment.`),
	}}
}

// of returns the roots of an environment; ok is false if it does not exist.
func (r roots) of(c *fn.Call, env string) (dirs []string, ok bool) {
	all, _ := c.Config.Get(r.option).(*value.Dict)
	switch v := all.At(env).(type) {
	case *value.List:
		for _, it := range v.Items {
			dirs = append(dirs, value.Str(it))
		}
	case string:
		dirs = []string{v}
	}
	return dirs, all.Has(env)
}

type pathArgs struct {
	Path    string `salt:"path" doc:"path below a root"`
	Saltenv string `salt:"saltenv" doc:"environment" default:"base"`
}

// existing is a regular file below a root.
type existing struct {
	full string
	text bool
	data []byte
}

// maxRead bounds a file that read returns, in bytes.
const maxRead = 32 << 20

// look finds a file in the roots of an environment. If contents is set, it
// reads text files.
func (r roots) look(c *fn.Call, a pathArgs, contents bool) ([]existing, error) {
	dirs, _ := r.of(c, a.Saltenv)
	name := filepath.Clean(a.Path)
	if !filepath.IsLocal(name) {
		return nil, nil
	}
	var found []existing
	for _, dir := range dirs {
		e, err := lookIn(dir, name, contents)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || err != nil && !contents {
			continue // a path outside of the root counts as missing, too
		}
		if err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, nil
}

// textBlock is the size of the beginning of a file that decides whether it is
// text.
const textBlock = 512

func lookIn(dir, name string, contents bool) (existing, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return existing{}, err
	}
	defer root.Close()
	fi, err := root.Stat(name)
	if err != nil {
		return existing{}, fs.ErrNotExist
	}
	if !fi.Mode().IsRegular() {
		return existing{}, fs.ErrInvalid
	}
	f, err := root.Open(name)
	if err != nil {
		return existing{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, textBlock))
	if err != nil {
		return existing{}, err
	}
	e := existing{full: filepath.Join(dir, name), text: filesys.IsText(b)}
	if !contents || !e.text {
		return e, nil
	}
	if fi.Size() > maxRead {
		return e, fn.Errorf("%s is too large to return: %d bytes, at most %d", e.full, fi.Size(), maxRead)
	}
	rest, err := io.ReadAll(io.LimitReader(f, maxRead))
	e.data = append(b, rest...)
	return e, err
}

func (r roots) find(_ context.Context, c *fn.Call, a pathArgs) (*value.List, error) {
	found, err := r.look(c, a, false)
	out := &value.List{}
	for _, e := range found {
		kind := "bin"
		if e.text {
			kind = "txt"
		}
		out.Append(value.DictOf(e.full, kind))
	}
	return out, err
}

func (r roots) read(_ context.Context, c *fn.Call, a pathArgs) (*value.List, error) {
	found, err := r.look(c, a, true)
	out := &value.List{}
	for _, e := range found {
		if e.text {
			out.Append(value.DictOf(e.full, string(e.data)))
		}
	}
	return out, err
}

type envArgs struct {
	Saltenv string `salt:"saltenv" doc:"environment" default:"base"`
}

// maxListed bounds the files and directories that are listed.
const maxListed = 1_000_000

func (r roots) listEnv(ctx context.Context, c *fn.Call, a envArgs) (*value.Dict, error) {
	out := value.NewDict(0)
	dirs, _ := r.of(c, a.Saltenv)
	left := maxListed
	for _, dir := range dirs {
		d, err := tree(ctx, dir, &left)
		if err != nil {
			return nil, err
		}
		out.Set(dir, d)
	}
	return out, nil
}

// tree lists a directory: a map for each directory, "f" for anything else.
// Links to directories are shown and not followed. Unreadable directories are
// empty.
func tree(ctx context.Context, dir string, left *int) (*value.Dict, error) {
	out := value.NewDict(0)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return out, nil
	}
	if *left -= len(entries); *left < 0 || ctx.Err() != nil {
		return nil, fn.Errorf("too many files to list: more than %d", maxListed)
	}
	var files []string
	for _, e := range entries {
		full := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			sub, err := tree(ctx, full, left)
			if err != nil {
				return nil, err
			}
			out.Set(e.Name(), sub)
			continue
		case e.Type()&fs.ModeSymlink != 0:
			if fi, err := os.Stat(full); err == nil && fi.IsDir() {
				out.Set(e.Name(), value.NewDict(0))
				continue
			}
		}
		files = append(files, e.Name())
	}
	for _, name := range files {
		out.Set(name, "f")
	}
	return out, nil
}

func (r roots) listRoots(ctx context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	all, _ := c.Config.Get(r.option).(*value.Dict)
	out := value.NewDict(all.Len())
	for env := range all.All() {
		d, err := r.listEnv(ctx, c, envArgs{value.Str(env)})
		if err != nil {
			return nil, err
		}
		out.Set(env, value.ListOf(d))
	}
	return out, nil
}

type writeArgs struct {
	Data    any    `salt:"data" doc:"contents"`
	Path    string `salt:"path" doc:"path below the root"`
	Saltenv string `salt:"saltenv" doc:"environment" default:"base"`
	Index   int    `salt:"index" doc:"number of the root, from 0" default:"0"`
}

func (r roots) write(_ context.Context, c *fn.Call, a writeArgs) (string, error) {
	dirs, ok := r.of(c, a.Saltenv)
	switch {
	case !ok:
		return fmt.Sprintf("Named environment %s is not present", a.Saltenv), nil
	case a.Index < 0 || a.Index >= len(dirs):
		return fmt.Sprintf("Specified index %d in environment %s is not present", a.Index, a.Saltenv), nil
	case path.IsAbs(a.Path):
		return fmt.Sprintf("The path passed in %s is not relative to the environment %s", a.Path, a.Saltenv), nil
	}
	name, dir := filepath.Clean(a.Path), dirs[a.Index]
	if !filepath.IsLocal(name) || name == "." {
		return r.refused(a.Path), nil
	}
	root, err := openOrMake(dir, r.dirMode)
	if err != nil {
		return "", fn.Errorf("cannot open the root %s: %w", dir, err)
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), r.dirMode); err != nil {
		return r.failed(a.Path, err)
	}
	if err := place(root, name, []byte(value.Str(a.Data)), r.mode); err != nil {
		return r.failed(a.Path, err)
	}
	return "Wrote data to file " + filepath.Join(dir, name), nil
}

// failed distinguishes a path outside of the root from other errors.
func (r roots) failed(name string, err error) (string, error) {
	var errno syscall.Errno // such a path fails before any system call
	if errors.Is(err, fs.ErrExist) || errors.As(err, &errno) {
		return "", fn.Errorf("cannot write %s: %w", name, err)
	}
	return r.refused(name), nil
}

func openOrMake(dir string, mode fs.FileMode) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// place writes a whole file below a root. One that exists keeps its mode.
func place(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	if fi, err := root.Stat(name); err == nil {
		if !fi.Mode().IsRegular() {
			return &fs.PathError{Op: "write", Path: name, Err: fs.ErrExist}
		}
		mode = fi.Mode().Perm()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if _, err := root.Lstat(name); err == nil {
		return fmt.Errorf("%s is a symbolic link to nothing, or to a path outside of the root", name)
	}
	temp := filepath.Join(filepath.Dir(name), atomicfile.TempPrefix+filepath.Base(name))
	if err := root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		root.Remove(temp)
	}
	return err
}
