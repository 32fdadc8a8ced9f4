package fileserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// command answers one command. An error becomes the answer "", as in Salt.
type command func(s *Server, ctx context.Context, load *value.Dict) (any, error)

// commands returns the file server's part of the protocol.
func commands() map[string]command {
	return map[string]command{
		"_file_find":           (*Server).fileFind,
		"_file_hash":           (*Server).fileHash,
		"_file_hash_and_stat":  (*Server).fileHashAndStat,
		"_serve_file":          (*Server).serveFile,
		"_file_list":           lister(func(l *Lists) []string { return l.Files }),
		"_dir_list":            lister(func(l *Lists) []string { return l.Dirs }),
		"_file_list_emptydirs": lister(func(l *Lists) []string { return l.EmptyDirs }),
		"_symlink_list":        (*Server).symlinkList,
		"_file_envs":           (*Server).fileEnvs,
	}
}

// Commands returns the names of the commands that Request answers.
func Commands() []string {
	var out []string
	for name := range commands() {
		out = append(out, name)
	}
	return sortedSet(out)
}

var table = commands() // constant

// Request answers a command; load is a dict with cmd and the arguments that Salt's clients send. Errors are
// internal ones of the server.
func (s *Server) Request(ctx context.Context, load *value.Dict) (any, error) {
	f, ok := table[load.Str("cmd")]
	if !ok {
		return nil, salt.Errorf(salt.NotFound, "%q is no command of the file server", load.Str("cmd"))
	}
	return f(s, ctx, load)
}

// RequestPart does the same, but limits a part of a file to limit bytes, unless limit is 0.
func (s *Server) RequestPart(ctx context.Context, load *value.Dict, limit int64) (any, error) {
	if limit > 0 && load.Str("cmd") == "_serve_file" {
		return s.serveUpTo(ctx, load, min(s.part, limit))
	}
	return s.Request(ctx, load)
}

// envOf returns the environment of a load; ok is false if it has none.
func envOf(load *value.Dict) (env string, ok bool) {
	v, ok := load.Get("saltenv")
	return value.Str(v), ok
}

func (s *Server) find(ctx context.Context, load *value.Dict) (Found, bool, error) {
	env, ok := envOf(load)
	if !ok {
		return Found{}, false, nil
	}
	return s.lookup(ctx, load.Str("path"), env)
}

func (s *Server) fileFind(ctx context.Context, load *value.Dict) (any, error) {
	if !load.Has("saltenv") {
		load = load.Clone()
		load.Set("saltenv", "base")
	}
	f, ok, err := s.find(ctx, load)
	if !ok || err != nil {
		return value.DictOf("path", "", "rel", ""), err
	}
	if f.asked != nil {
		d := f.Answer.Clone()
		d.Set("back", f.Backend)
		return d, nil
	}
	d := value.DictOf("path", f.Path, "rel", f.Rel)
	if st := f.stat(); st != nil {
		d.Set("stat", st)
	}
	d.Set("back", f.Backend)
	return d, nil
}

func (f Found) stat() *value.List {
	if f.asked != nil {
		l, _ := f.Answer.At("stat").(*value.List)
		return l
	}
	if f.Mode != 0 {
		return value.ListOf(int64(f.Mode))
	}
	return stat(f.Path)
}

// stat returns Python's os.stat as a list, or nil.
func stat(path string) *value.List {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return nil
	}
	return value.ListOf(int64(s.Mode), uint64(s.Ino), uint64(s.Dev), uint64(s.Nlink), int64(s.Uid), int64(s.Gid),
		s.Size, int64(s.Atim.Sec), int64(s.Mtim.Sec), int64(s.Ctim.Sec))
}

func (s *Server) hash(ctx context.Context, load *value.Dict) (any, Found, error) {
	f, ok, err := s.find(ctx, load)
	if !ok || err != nil {
		return "", f, err
	}
	if f.asked != nil {
		h, err := f.asked.Hash(ctx, load, f)
		if err != nil {
			h = ""
		}
		return h, f, err
	}
	sum, err := s.hashes.found(f)
	if err != nil {
		return "", f, err
	}
	return value.DictOf("hash_type", s.hashes.form, "hsum", sum), f, nil
}

func (s *Server) fileHash(ctx context.Context, load *value.Dict) (any, error) {
	h, _, err := s.hash(ctx, load)
	return h, err
}

func (s *Server) fileHashAndStat(ctx context.Context, load *value.Dict) (any, error) {
	h, f, err := s.hash(ctx, load)
	var st any
	if f.Path != "" {
		if l := f.stat(); l != nil {
			st = l
		}
	}
	return &value.List{Items: []any{h, st}}, err
}

// serveFile answers with a part of a file; an empty part means the end of the file.
func (s *Server) serveFile(ctx context.Context, load *value.Dict) (any, error) {
	return s.serveUpTo(ctx, load, s.part)
}

func (s *Server) serveUpTo(ctx context.Context, load *value.Dict, limit int64) (any, error) {
	f, ok, err := s.find(ctx, load)
	loc, isInt := load.At("loc").(int64)
	if err != nil {
		return nil, err
	}
	if !ok || !load.Has("loc") {
		return value.DictOf("data", "", "dest", ""), nil
	}
	if f.asked != nil {
		return serveAsked(ctx, load, f, limit)
	}
	if !isInt || loc < 0 {
		return nil, salt.Errorf(salt.Invalid, "loc is not an offset in a file")
	}
	data, err := readPart(f.Path, loc, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return value.DictOf("data", "", "dest", ""), nil
	}
	if err != nil {
		return nil, err
	}
	return asPart(data, f.Rel, load)
}

// asPart returns the answer with a part of a file, compressed if the load asks for that.
func asPart(data []byte, dest any, load *value.Dict) (any, error) {
	level := load.Int("gzip")
	if level == 0 || len(data) == 0 {
		return value.DictOf("data", data, "dest", dest), nil
	}
	packed, err := compress(data, int(min(max(level, 1), 9)))
	if err != nil {
		return nil, err
	}
	return value.DictOf("data", packed, "dest", dest, "gzip", load.At("gzip")), nil
}

// serveAsked answers with a part of a file of a backend that is asked. The backend gets no gzip: a part
// that is too large must be cut.
func serveAsked(ctx context.Context, load *value.Dict, f Found, limit int64) (any, error) {
	plain := load
	if load.Has("gzip") {
		plain = load.Clone()
		plain.Delete("gzip")
	}
	d, err := f.asked.Serve(ctx, plain, f)
	if err != nil {
		return nil, err
	}
	data, ok := contentOf(d.At("data"))
	if !ok || value.Truth(d.At("gzip")) {
		return d, nil // as it is, for the client to judge
	}
	if int64(len(data)) > limit {
		data = data[:limit]
	}
	return asPart(data, d.At("dest"), load)
}

// contentOf returns the content in an answer.
func contentOf(v any) ([]byte, bool) {
	switch x := v.(type) {
	case []byte:
		return x, true
	case string:
		return []byte(x), true
	}
	return nil, false
}

func readPart(path string, loc, size int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, min(size, max(st.Size()-loc, 0)))
	n, err := f.ReadAt(buf, loc)
	if err == io.EOF {
		err = nil
	}
	return buf[:n], err
}

func compress(data []byte, level int) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// lister returns the command that answers with one of the lists.
func lister(choose func(*Lists) []string) command {
	return func(s *Server, ctx context.Context, load *value.Dict) (any, error) {
		env, ok := envOf(load)
		if !ok {
			return &value.List{}, nil
		}
		names, err := s.listOf(ctx, load, env, choose)
		if err != nil {
			return nil, err
		}
		return withPrefix(names, strings.Trim(load.Str("prefix"), "/")), nil
	}
}

func withPrefix(names []string, prefix string) *value.List {
	out := &value.List{Items: make([]any, 0, len(names))}
	for _, n := range names {
		if strings.HasPrefix(n, prefix) {
			out.Append(n)
		}
	}
	return out
}

func (s *Server) symlinkList(ctx context.Context, load *value.Dict) (any, error) {
	env, ok := envOf(load)
	out := value.NewDict(0)
	if !ok {
		return out, nil
	}
	links, err := s.linksOf(ctx, load, env)
	if err != nil {
		return nil, err
	}
	prefix := strings.Trim(load.Str("prefix"), "/")
	names := map[string]bool{}
	for name := range links {
		names[name] = strings.HasPrefix(name, prefix)
	}
	for _, name := range keys(names) {
		if names[name] {
			out.Set(name, links[name])
		}
	}
	return out, nil
}

func (s *Server) fileEnvs(_ context.Context, load *value.Dict) (any, error) {
	names := value.Texts(load.At("back"))
	if !load.Bool("sources") {
		return value.Strings(s.Envs(names...)), nil
	}
	out := value.NewDict(1)
	for _, b := range s.chosen(names) {
		out.Set(b.Name(), value.Strings(b.Envs()))
	}
	return out, nil
}
