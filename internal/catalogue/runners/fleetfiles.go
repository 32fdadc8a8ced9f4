package runners

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type fileArgs struct {
	Saltenv string `salt:"saltenv" doc:"environment" default:"base"`
	Path    string `salt:"path" doc:"path of a file; empty: list the paths" default:""`
	Search  string `salt:"search" doc:"part of a path" default:""`
	pageArgs
}

// maxShownFile bounds the content of a file in fleet.files, in bytes.
const maxShownFile = 256 << 10

// files returns the environments and a page of the paths of one, or a file.
func (f fleet) files(ctx context.Context, c *fn.Call, a fileArgs) (*value.Dict, error) {
	if f.serves == nil {
		return nil, salt.Errorf(salt.Unavailable, "this master serves no files")
	}
	server := f.serves.FileServer()
	envs := server.Envs()
	if !slices.Contains(envs, a.Saltenv) {
		return nil, salt.Errorf(salt.NotFound, "there is no environment %.100q", a.Saltenv)
	}
	if a.Path != "" {
		return f.file(ctx, c.ID, a)
	}
	listed, err := server.Request(ctx, value.DictOf("cmd", "_file_list", "saltenv", a.Saltenv))
	if err != nil {
		return nil, err
	}
	var paths []string
	search := strings.ToLower(a.Search)
	for _, p := range value.Items(listed) {
		if path := value.Str(p); search == "" || strings.Contains(strings.ToLower(path), search) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	from, to := a.of(len(paths))
	shown := paths[from:to]
	hashes, others := HashesOf(ctx, server, a.Saltenv, shown), f.console.fileHashes(ctx, a.Saltenv, shown)
	rows := &value.List{}
	for _, path := range shown {
		d := value.DictOf("path", path, "hash", orNil(hashes[path]))
		compareFile(d, c.ID, path, hashes[path], others)
		rows.Append(d)
	}
	d := value.DictOf("envs", value.Strings(envs), "saltenv", a.Saltenv, "matched", int64(len(paths)), "offset", int64(from), "rows", rows)
	if revisions := f.revisions(ctx); revisions.Len() > 0 {
		d.Set("revisions", revisions)
	}
	return d, nil
}

// compareFile adds the hashes of a file at all masters if there are others, and whether they differ.
func compareFile(d *value.Dict, own, path, hash string, others map[string]map[string]string) {
	if len(others) == 0 {
		return
	}
	masters, differs := value.DictOf(own, orNil(hash)), false
	for _, m := range slices.Sorted(maps.Keys(others)) {
		masters.Set(m, orNil(others[m][path]))
		differs = differs || others[m][path] != hash
	}
	d.Set("masters", masters)
	d.Set("differs", differs)
}

// revisions returns the revision of the files of each master of a cluster that agrees on them.
func (f fleet) revisions(ctx context.Context) *value.Dict {
	out := value.NewDict(0)
	if f.cluster == nil {
		return out
	}
	for _, s := range f.cluster.Status(ctx) {
		if r := s.Says.Str("files"); r != "" {
			out.Set(s.ID, r)
		}
	}
	return out
}

// maxHashed bounds the files whose hashes are computed for one answer.
const maxHashed = maxPage

// HashesOf returns the hashes of files by path.
func HashesOf(ctx context.Context, server FileServer, env string, paths []string) map[string]string {
	out := map[string]string{}
	for _, path := range paths[:min(len(paths), maxHashed)] {
		if ctx.Err() != nil {
			break
		}
		h, err := server.Request(ctx, value.DictOf("cmd", "_file_hash", "saltenv", env, "path", path))
		d, ok := h.(*value.Dict)
		if err == nil && ok {
			out[path] = d.Str("hsum")
		}
	}
	return out
}

// file returns one file with its content if that is text and not too large.
func (f fleet) file(ctx context.Context, own string, a fileArgs) (*value.Dict, error) {
	server := f.serves.FileServer()
	hash := HashesOf(ctx, server, a.Saltenv, []string{a.Path})[a.Path]
	if hash == "" {
		return nil, salt.Errorf(salt.NotFound, "there is no file %.200q in the environment %.100q", a.Path, a.Saltenv)
	}
	d := value.DictOf("path", a.Path, "saltenv", a.Saltenv, "hash", hash)
	compareFile(d, own, a.Path, hash, f.console.fileHashes(ctx, a.Saltenv, []string{a.Path}))
	var text []byte
	for len(text) <= maxShownFile {
		part, err := server.Request(ctx, value.DictOf("cmd", "_serve_file", "saltenv", a.Saltenv, "path", a.Path, "loc", int64(len(text))))
		if err != nil {
			return nil, err
		}
		answer, _ := part.(*value.Dict)
		data := value.Bytes(answer.At("data"))
		if len(data) == 0 {
			break
		}
		text = append(text, data...)
	}
	switch {
	case len(text) > maxShownFile:
		d.Set("cut", true)
	case !utf8.Valid(text) || slices.Contains(text, 0):
		d.Set("binary", true)
		d.Set("size", int64(len(text)))
	default:
		d.Set("size", int64(len(text)))
		d.Set("text", string(text))
	}
	return d, nil
}
