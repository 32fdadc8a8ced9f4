// Package revision stores states of directories by content, so that several masters can serve the same state:
// those of file_roots and pillar_roots.
//
// A revision is a list of environments with their directories and the entries of these: files by the SHA-256
// of their content, directories, and symbolic links. Its id is the SHA-256 of the list, so revisions with the
// same id are equal on all masters. A content is stored once, under its hash. A revision is a directory of
// further hard links to contents, and exists as a whole or not at all.
//
// Data from a peer is only accepted if it has the requested hash, and a list only if none of its entries
// leads out of the directories.
package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Tree is one environment of an option such as file_roots.
type Tree struct {
	// Kind is file_roots or pillar_roots.
	Kind, Env string
	// Dirs are its directories, in order of precedence.
	Dirs []string
}

// Entry is a file, directory or link in a directory.
type Entry struct {
	// Path is relative to the directory.
	Path string
	Type Type
	Mode uint32 // permissions of a file
	Size int64  // of a file, in bytes
	// Sum is the SHA-256 of a file in hexadecimal, To where a link points.
	Sum, To string
}

// Type is the type of an entry.
type Type string

// The types of entries.
const (
	File      Type = "f"
	Directory Type = "d"
	Link      Type = "l"
)

// Listed is a tree with the entries of its directories.
type Listed struct {
	Kind, Env string
	Dirs      [][]Entry
}

// Info describes a revision.
type Info struct {
	ID    string
	Files int
	Bytes int64
}

// Bounds of a revision.
const (
	maxEntries  = 500_000
	maxManifest = 128 << 20
	maxTrees    = 1000
	maxDirs     = 1000
)

// format is the version of the list.
const format = 1

// encode encodes trees as a list; equal content gives equal bytes.
func encode(trees []Listed) ([]byte, error) {
	l := &value.List{}
	for _, t := range trees {
		dirs := &value.List{}
		for _, d := range t.Dirs {
			es := &value.List{}
			for _, e := range d {
				es.Append(value.ListOf(e.Path, string(e.Type), int64(e.Mode), e.Size, e.Sum, e.To))
			}
			dirs.Append(es)
		}
		l.Append(value.ListOf(t.Kind, t.Env, dirs))
	}
	b, err := msgpack.Marshal(value.ListOf(int64(format), l), msgpack.NewSpec)
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("the list of files has %d bytes, at most %d are allowed", len(b), maxManifest)
	}
	return b, err
}

var errList = errors.New("the list of a revision makes no sense")

// decode decodes a list, and rejects entries that lead out of the directories.
func decode(b []byte) ([]Listed, error) {
	v, err := msgpack.Limits{Items: 8 * maxEntries, Bytes: maxManifest, Depth: 8}.UnmarshalTyped(b)
	top, _ := v.(*value.List)
	if err != nil || top.Len() != 2 {
		return nil, errList
	}
	if n, _ := top.Items[0].(int64); n != format {
		return nil, fmt.Errorf("the list of a revision has the format %v, and this program knows %d: update it", top.Items[0], format)
	}
	l, _ := top.Items[1].(*value.List)
	if l.Len() > maxTrees {
		return nil, errList
	}
	var out []Listed
	total := 0
	for _, it := range items(l) {
		tl, _ := it.(*value.List)
		if tl.Len() != 3 {
			return nil, errList
		}
		var t Listed
		var ok [2]bool
		t.Kind, ok[0] = tl.Items[0].(string)
		t.Env, ok[1] = tl.Items[1].(string)
		dirs, _ := tl.Items[2].(*value.List)
		if ok != [2]bool{true, true} || dirs.Len() > maxDirs {
			return nil, errList
		}
		for _, it := range items(dirs) {
			es, _ := it.(*value.List)
			var dir []Entry
			for _, it := range items(es) {
				e, err := entryOf(it)
				if err != nil {
					return nil, err
				}
				if total++; total > maxEntries || len(dir) > 0 && dir[len(dir)-1].Path >= e.Path {
					return nil, errList
				}
				dir = append(dir, e)
			}
			if err := consistent(dir); err != nil {
				return nil, err
			}
			t.Dirs = append(t.Dirs, dir)
		}
		out = append(out, t)
	}
	return out, nil
}

func items(l *value.List) []any {
	if l == nil {
		return nil
	}
	return l.Items
}

func entryOf(v any) (e Entry, err error) {
	l, _ := v.(*value.List)
	if l.Len() != 6 {
		return e, errList
	}
	var ok [6]bool
	var typ string
	var mode int64
	e.Path, ok[0] = l.Items[0].(string)
	typ, ok[1] = l.Items[1].(string)
	mode, ok[2] = l.Items[2].(int64)
	e.Size, ok[3] = l.Items[3].(int64)
	e.Sum, ok[4] = l.Items[4].(string)
	e.To, ok[5] = l.Items[5].(string)
	e.Type, e.Mode = Type(typ), uint32(mode)
	switch {
	case ok != [6]bool{true, true, true, true, true, true}, !localPath(e.Path), mode < 0 || mode > 0o777, e.Size < 0:
		return e, errList
	case e.Type == File && validSum(e.Sum) && e.To == "", e.Type == Directory && e.Sum == "" && e.To == "":
		return e, nil
	case e.Type == Link && e.Sum == "" && stays(e.Path, e.To):
		return e, nil
	}
	return e, errList
}

func localPath(p string) bool {
	return p != "" && p != "." && len(p) <= 4096 && filepath.IsLocal(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

func validSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && strings.ToLower(s) == s
}

// stays reports whether a link at a path stays in the directory.
func stays(at, to string) bool {
	if to == "" || len(to) > 4096 || path.IsAbs(to) || strings.ContainsRune(to, 0) || !filepath.IsLocal(path.Join(path.Dir(at), to)) {
		return false
	}
	// After the name of another link, .. is the parent of that link's target.
	down := false
	for name := range strings.SplitSeq(to, "/") {
		if name == ".." && down {
			return false
		}
		down = down || name != ".." && name != "." && name != ""
	}
	return true
}

// consistent checks that the parent of each entry is a directory, since a link there could lead out. The
// entries are sorted.
func consistent(dir []Entry) error {
	types := make(map[string]Type, len(dir))
	for _, e := range dir {
		types[e.Path] = e.Type
	}
	for _, e := range dir {
		if up := path.Dir(e.Path); up != "." && types[up] != Directory {
			return errList
		}
	}
	return nil
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// infoOf counts the files of a list.
func infoOf(id string, trees []Listed) Info {
	i := Info{ID: id}
	for e := range files(trees) {
		i.Files++
		i.Bytes += e.Size
	}
	return i
}

// files yields the files of all trees.
func files(trees []Listed) func(func(Entry) bool) {
	return func(yield func(Entry) bool) {
		for _, t := range trees {
			for _, d := range t.Dirs {
				for _, e := range d {
					if e.Type == File && !yield(e) {
						return
					}
				}
			}
		}
	}
}

// Diff is the number of files by which two revisions differ.
type Diff struct{ Added, Changed, Removed int }

func diff(old, now []Listed) (d Diff) {
	index := func(trees []Listed) map[string]string {
		m := map[string]string{}
		for _, t := range trees {
			for i, dir := range t.Dirs {
				for _, e := range dir {
					if e.Type != Directory {
						m[fmt.Sprintf("%s\x00%s\x00%d\x00%s", t.Kind, t.Env, i, e.Path)] = fmt.Sprint(e.Sum, e.To, e.Mode)
					}
				}
			}
		}
		return m
	}
	a, b := index(old), index(now)
	for k, v := range b {
		switch w, ok := a[k]; {
		case !ok:
			d.Added++
		case w != v:
			d.Changed++
		}
	}
	for k := range a {
		if _, ok := b[k]; !ok {
			d.Removed++
		}
	}
	return d
}

func sortTrees(trees []Listed) {
	slices.SortStableFunc(trees, func(a, b Listed) int {
		return strings.Compare(a.Kind+"\x00"+a.Env, b.Kind+"\x00"+b.Env)
	})
}
