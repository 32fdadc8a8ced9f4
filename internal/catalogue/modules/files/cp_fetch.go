package files

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"brine/internal/base/atomicfile"
	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
)

func fetchFunctions() []fn.Func {
	m := cp{}
	return []fn.Func{
		fn.Of("get_file", served(m.getFile), `Put a file of the master somewhere.
			The answer is its path, or an empty text if the master has no such file. A file that has the right content is left
			alone; one that is replaced keeps its mode and owner.`, fn.Example("salt '*' cp.get_file salt://path/to/file /minion/dest")),
		fn.Of("get_template", m.getTemplate, `Fill in a template of the master and put the result somewhere.`,
			fn.Example("salt '*' cp.get_template salt://path/to/template /minion/dest")),
		fn.Of("get_dir", served(m.getDir), `Copy a directory of the master with all that is in it.`,
			fn.Example("salt '*' cp.get_dir salt://path/to/dir /minion/dest")),
		fn.Of("get_url", served(m.getURL), `Fetch the file of a URL.
			Without a destination it goes to the cache; with None the answer is the content.`, fn.Example("salt '*' cp.get_url salt://my/file /tmp/mine")),
		fn.Of("get_file_str", m.getFileStr, `Return the content of a file.`, fn.Example("salt '*' cp.get_file_str salt://my/file")),
		fn.Of("cache_file", m.cacheFile, `Fetch a file to the minion's cache and return its path there, or False if there is none.`,
			fn.Example("salt '*' cp.cache_file salt://path/to/file")),
		fn.Of("cache_dest", served(m.cacheDest), `Return where in the cache a file would be.`, fn.Example("salt '*' cp.cache_dest salt://my/file")),
		fn.Of("cache_files", m.cacheFiles, `Fetch several files to the minion's cache.`,
			fn.Example("salt '*' cp.cache_files salt://path/one,salt://path/two")),
		fn.Of("cache_dir", served(m.cacheDir), `Fetch a directory of the master to the minion's cache.`, fn.Example("salt '*' cp.cache_dir salt://path/to/dir")),
		fn.Of("cache_master", served(m.cacheMaster), `Fetch all files of the master to the minion's cache.`, fn.Example("salt '*' cp.cache_master")),
		fn.Of("cache_local_file", served(m.cacheLocalFile), `Copy a file of the minion to its cache.`, fn.Example("salt '*' cp.cache_local_file /etc/hosts")),
		fn.Of("list_states", served(m.listStates), `List the names of the SLS files.`, fn.Example("salt '*' cp.list_states")),
		fn.Of("list_master", m.listMaster, `List the files of the master.`, fn.Example("salt '*' cp.list_master")),
		fn.Of("list_master_dirs", m.listMasterDirs, `List the directories of the master.`, fn.Example("salt '*' cp.list_master_dirs")),
		fn.Of("list_master_symlinks", m.listMasterSymlinks, `List the symbolic links of the master.`, fn.Example("salt '*' cp.list_master_symlinks")),
		fn.Of("list_minion", served(m.listMinion), `List the files in the minion's cache.`, fn.Example("salt '*' cp.list_minion")),
		fn.Of("is_cached", m.isCached, `Return the path of a file in the minion's cache, or an empty text.`,
			fn.Example("salt '*' cp.is_cached salt://path/to/file")),
		fn.Of("hash_file", m.hashFile, `Return the hash of a file of the master or the minion.`, fn.Example("salt '*' cp.hash_file salt://path/to/file")),
		fn.Of("stat_file", m.statFile, `Return the permissions of a file of the master or the minion.`,
			fn.Example("salt '*' cp.stat_file salt://path/to/file")),
		fn.Of("envs", served(m.envs), `List the environments of the file server.`, fn.Example("salt '*' cp.envs")),
		fn.Of("push", served(m.push), `Send a file of the minion to the master, which keeps it if its option file_recv is set.`,
			fn.Example("salt '*' cp.push /etc/fstab")),
		fn.Of("push_dir", served(m.pushDir), `Send the files of a directory to the master.`, fn.Example("salt '*' cp.push_dir /etc/modprobe.d/ glob='*.conf'")),
	}
}

// envArg is the argument that most functions have.
type envArg struct {
	Saltenv any `salt:"saltenv" doc:"environment; that of the option saltenv, or base, if null" default:"null"`
}

// environment returns the environment to use.
func environment(c *fn.Call, v any) string {
	if value.Truth(v) {
		return value.Str(v)
	}
	if v = c.Config.Get("saltenv"); value.Truth(v) {
		return value.Str(v)
	}
	return "base"
}

// clientFiles are the methods that cp needs of the call's files.
// *fileclient.Client implements it.
type clientFiles interface {
	fn.Files
	CacheDest(url, saltenv string) (string, error)
	CacheLocal(path string) (string, error)
	CacheMaster(ctx context.Context, saltenv string) ([]string, error)
	CacheTree(ctx context.Context, url, saltenv string, withEmpty bool, f fileclient.Filter) ([]string, error)
	Cached(saltenv string) ([]string, error)
	Envs(ctx context.Context) ([]string, error)
	GetDir(ctx context.Context, url, dest string, o fileclient.GetOptions) ([]string, error)
	GetFile(ctx context.Context, url, dest string, o fileclient.GetOptions) (string, error)
	GetText(ctx context.Context, text string, o fileclient.URLOptions) ([]byte, error)
	Push(ctx context.Context, id, path, name string, part int) (ok bool, err error)
	States(ctx context.Context, saltenv string) ([]string, error)
}

// served returns a function for package fn that passes the files of the call to
// f.
func served[A any](f func(context.Context, *fn.Call, clientFiles, A) (any, error)) func(context.Context, *fn.Call, A) (any, error) {
	return func(ctx context.Context, c *fn.Call, a A) (any, error) {
		files, ok := c.Files.(clientFiles)
		if !ok {
			return nil, fn.Errorf("there is no file server here")
		}
		return f(ctx, c, files, a)
	}
}

// orFalse returns a path, or false if the file does not exist, as Salt does.
func orFalse(p string, err error) (any, error) {
	switch {
	case err == nil:
		return p, nil
	case salt.KindOf(err) == salt.NotFound:
		return false, nil
	}
	return nil, fn.Errorf("%w", err)
}

type getFileArgs struct {
	Path     string    `salt:"path" doc:"salt:// URL"`
	Dest     string    `salt:"dest" doc:"file or directory to put it"`
	Saltenv  any       `salt:"saltenv" doc:"environment; that of the option saltenv, or base, if null" default:"null"`
	Makedirs bool      `salt:"makedirs" doc:"make the directory" default:"false"`
	Template any       `salt:"template" doc:"template engine that path and dest are filled in by" default:"null"`
	Gzip     any       `salt:"gzip" doc:"level of compression on the way, 1 to 9" default:"null"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func (cp) getFile(ctx context.Context, c *fn.Call, files clientFiles, a getFileArgs) (any, error) {
	env := environment(c, a.Saltenv)
	if err := fillNames(ctx, c, a.Template, env, a.Kwargs, &a.Path, &a.Dest); err != nil {
		return nil, err
	}
	p, err := files.GetFile(ctx, a.Path, a.Dest, fileclient.GetOptions{Saltenv: env, Makedirs: a.Makedirs, Gzip: gzipLevel(a.Gzip)})
	if err != nil && salt.KindOf(err) == salt.NotFound {
		if _, err := c.Files.Hash(ctx, a.Path, env); err != nil && salt.KindOf(err) == salt.NotFound {
			return "", nil // the file does not exist; false would mean a missing directory
		}
	}
	return orFalse(p, err)
}

func gzipLevel(v any) int {
	switch x := v.(type) {
	case int64:
		return int(x)
	case bool:
		if x {
			return 1
		}
	}
	return 0
}

// fillNames renders templates in paths.
func fillNames(ctx context.Context, c *fn.Call, engine any, env string, kw fn.Kwargs, names ...*string) error {
	if !value.Truth(engine) {
		return nil
	}
	more := value.DictOf("saltenv", env)
	if p, ok := kw.Get("pillar"); ok {
		more.Set("pillar", p)
	}
	for _, n := range names {
		text, err := fill(ctx, c, fn.Template{Engine: value.Str(engine), Source: []byte(*n), Saltenv: env, Context: more})
		if err != nil {
			return fn.Errorf("Failed to render file path with error: %w", err)
		}
		*n = text
	}
	return nil
}

func fill(ctx context.Context, c *fn.Call, t fn.Template) (string, error) {
	if c.Templates == nil {
		return "", fn.Errorf("templates cannot be filled in here")
	}
	return c.Templates.Text(ctx, c, t)
}

type getTemplateArgs struct {
	Path     string    `salt:"path" doc:"salt:// or other URL of the template"`
	Dest     string    `salt:"dest" doc:"file to put the result; empty: the cache"`
	Template string    `salt:"template" doc:"template engine" default:"jinja"`
	Saltenv  any       `salt:"saltenv" doc:"environment; that of the option saltenv, or base, if null" default:"null"`
	Makedirs bool      `salt:"makedirs" doc:"make the directory" default:"false"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func (cp) getTemplate(ctx context.Context, c *fn.Call, a getTemplateArgs) (any, error) {
	env := environment(c, a.Saltenv)
	cached, err := c.Files.CacheFile(ctx, a.Path, env)
	if salt.KindOf(err) == salt.NotFound && err != nil {
		return "", nil
	}
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	text, err := os.ReadFile(cached)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	more := value.DictOf("saltenv", env)
	more.Update(a.Kwargs.Clean())
	if d, ok := more.At("context").(*value.Dict); ok {
		more.Update(d)
	}
	out, err := fill(ctx, c, fn.Template{Engine: a.Template, Source: text, Path: cached, Saltenv: env, Context: more})
	if err != nil {
		c.Log.Error("Failed to render template with error: " + err.Error())
		return "", nil
	}
	dest := a.Dest
	if dest == "" {
		if dest, err = c.Files.ExternPath(a.Path, env); err != nil {
			return nil, fn.Errorf("%w", err)
		}
		a.Makedirs = true
	}
	if dir := filepath.Dir(dest); !isDir(dir) {
		if !a.Makedirs {
			return "", nil
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fn.Errorf("%w", err)
		}
	}
	return orFalse(dest, atomicfile.Replace(dest, -1, func(w io.Writer) error { _, err := io.WriteString(w, out); return err }))
}

type getDirArgs struct {
	Path     string    `salt:"path" doc:"salt:// URL of the directory"`
	Dest     string    `salt:"dest" doc:"directory to put it in"`
	Saltenv  any       `salt:"saltenv" doc:"environment; that of the option saltenv, or base, if null" default:"null"`
	Template any       `salt:"template" doc:"template engine that path and dest are filled in by" default:"null"`
	Gzip     any       `salt:"gzip" doc:"level of compression on the way, 1 to 9" default:"null"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func (cp) getDir(ctx context.Context, c *fn.Call, files clientFiles, a getDirArgs) (any, error) {
	env := environment(c, a.Saltenv)
	if err := fillNames(ctx, c, a.Template, env, a.Kwargs, &a.Path, &a.Dest); err != nil {
		return nil, err
	}
	return list(files.GetDir(ctx, a.Path, a.Dest, fileclient.GetOptions{Saltenv: env, Gzip: gzipLevel(a.Gzip)}))
}

func list(paths []string, err error) (any, error) {
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return value.Strings(paths), nil
}

type getURLArgs struct {
	Path       string `salt:"path" doc:"salt, http, https, ftp or file URL, or a path of this machine"`
	Dest       any    `salt:"dest" doc:"file or directory to put it; empty: the cache; null: return the content" default:"''"`
	Saltenv    any    `salt:"saltenv" doc:"environment; that of the option saltenv, or base, if null" default:"null"`
	Makedirs   bool   `salt:"makedirs" doc:"make the directory" default:"false"`
	SourceHash any    `salt:"source_hash" doc:"hash of the file; a cached one that has it is not fetched again" default:"null"`
}

func (cp) getURL(ctx context.Context, c *fn.Call, files clientFiles, a getURLArgs) (any, error) {
	o := fileclient.URLOptions{Saltenv: environment(c, a.Saltenv), Makedirs: a.Makedirs, SourceHash: textOf(a.SourceHash)}
	dest, isText := a.Dest.(string)
	if isText {
		p, err := orFalse(c.Files.GetURL(ctx, a.Path, dest, o))
		if p == false {
			c.Log.Error(fmt.Sprintf("Unable to fetch file %s from saltenv %s.", redact.Text(a.Path), o.Saltenv))
		}
		return p, err
	}
	b, err := files.GetText(ctx, a.Path, o)
	if err != nil {
		return orFalse("", err)
	}
	return contentOf(b), nil
}

func textOf(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

func contentOf(b []byte) any {
	if utf8.Valid(b) {
		return string(b)
	}
	return b
}

type pathArgs struct {
	Path string `salt:"path" doc:"URL of the file"`
	envArg
}

func (cp) getFileStr(ctx context.Context, c *fn.Call, a pathArgs) (any, error) {
	env := environment(c, a.Saltenv)
	if strings.HasPrefix(a.Path, "salt://") {
		// Do not read the path in the cache: a run for another master may
		// replace it.
		b, err := c.Files.Read(ctx, a.Path, env)
		if err != nil {
			return orFalse("", err)
		}
		return contentOf(b), nil
	}
	p, err := orFalse(c.Files.CacheFile(ctx, a.Path, env))
	name, ok := p.(string)
	if !ok {
		return p, err
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return false, nil
	}
	return contentOf(b), nil
}

type cacheFileArgs struct {
	Path       string `salt:"path" doc:"URL of the file"`
	Saltenv    any    `salt:"saltenv" doc:"environment; that of the option saltenv, or base, if null" default:"null"`
	SourceHash any    `salt:"source_hash" doc:"hash of the file; a cached one that has it is not fetched again" default:"null"`
	VerifySSL  bool   `salt:"verify_ssl" doc:"check the certificate of an https server" default:"true"`
	UseETag    bool   `salt:"use_etag" doc:"ask an http server whether the cached file is the newest" default:"false"`
}

func (cp) cacheFile(ctx context.Context, c *fn.Call, a cacheFileArgs) (any, error) {
	env := environment(c, a.Saltenv)
	p, err := orFalse(c.Files.GetURL(ctx, a.Path, "", fileclient.URLOptions{Saltenv: env, Makedirs: true, SourceHash: textOf(a.SourceHash),
		Insecure: !a.VerifySSL, ETag: a.UseETag}))
	if p == false {
		c.Log.Error(fmt.Sprintf("Unable to cache file '%s' from saltenv '%s'.", a.Path, env))
	}
	return p, err
}

type cacheDestArgs struct {
	URL string `salt:"url" doc:"URL of the file"`
	envArg
}

func (cp) cacheDest(_ context.Context, c *fn.Call, files clientFiles, a cacheDestArgs) (any, error) {
	return orFalse(files.CacheDest(a.URL, environment(c, a.Saltenv)))
}

type cacheFilesArgs struct {
	Paths any `salt:"paths" doc:"URLs, as a list or with commas"`
	envArg
}

func (cp) cacheFiles(ctx context.Context, c *fn.Call, a cacheFilesArgs) (any, error) {
	env := environment(c, a.Saltenv)
	out := &value.List{Items: []any{}}
	for _, p := range value.Commas(a.Paths) {
		got, err := orFalse(c.Files.CacheFile(ctx, p, env))
		if err != nil {
			return nil, err
		}
		out.Append(got)
	}
	return out, nil
}

type cacheDirArgs struct {
	Path         string `salt:"path" doc:"salt:// URL of the directory"`
	Saltenv      any    `salt:"saltenv" doc:"environment; that of the option saltenv, or base, if null" default:"null"`
	IncludeEmpty bool   `salt:"include_empty" doc:"make empty directories, too" default:"false"`
	IncludePat   any    `salt:"include_pat" doc:"pattern for files to fetch, or a list; a regular expression after E@" default:"null"`
	ExcludePat   any    `salt:"exclude_pat" doc:"pattern for files to leave out, or a list; a regular expression after E@" default:"null"`
}

func (cp) cacheDir(ctx context.Context, c *fn.Call, files clientFiles, a cacheDirArgs) (any, error) {
	return list(files.CacheTree(ctx, a.Path, environment(c, a.Saltenv), a.IncludeEmpty,
		fileclient.Filter{Include: value.Texts(a.IncludePat), Exclude: value.Texts(a.ExcludePat)}))
}

func (cp) cacheMaster(ctx context.Context, c *fn.Call, files clientFiles, a envArg) (any, error) {
	return list(files.CacheMaster(ctx, environment(c, a.Saltenv)))
}

type localFileArgs struct {
	Path string `salt:"path" doc:"path of the file"`
}

func (cp) cacheLocalFile(_ context.Context, c *fn.Call, files clientFiles, a localFileArgs) (any, error) {
	p, err := files.CacheLocal(a.Path)
	if err != nil && salt.KindOf(err) == salt.NotFound {
		return "", nil
	}
	return orFalse(p, err)
}

func (cp) listStates(ctx context.Context, c *fn.Call, files clientFiles, a envArg) (any, error) {
	return list(files.States(ctx, environment(c, a.Saltenv)))
}

type listArgs struct {
	envArg
	Prefix string `salt:"prefix" doc:"beginning of the names" default:"''"`
}

func (cp) listMaster(ctx context.Context, c *fn.Call, a listArgs) (any, error) {
	return list(c.Files.List(ctx, fileclient.Files, environment(c, a.Saltenv), a.Prefix))
}

func (cp) listMasterDirs(ctx context.Context, c *fn.Call, a listArgs) (any, error) {
	return list(c.Files.List(ctx, fileclient.Dirs, environment(c, a.Saltenv), a.Prefix))
}

func (cp) listMasterSymlinks(ctx context.Context, c *fn.Call, a listArgs) (any, error) {
	d, err := c.Files.Symlinks(ctx, environment(c, a.Saltenv), a.Prefix)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return d, nil
}

func (cp) listMinion(_ context.Context, c *fn.Call, files clientFiles, a envArg) (any, error) {
	return list(files.Cached(environment(c, a.Saltenv)))
}

func (cp) isCached(_ context.Context, c *fn.Call, a pathArgs) (any, error) {
	return c.Files.IsCached(a.Path, environment(c, a.Saltenv)), nil
}

func (cp) hashFile(ctx context.Context, c *fn.Call, a pathArgs) (any, error) {
	h, err := c.Files.Hash(ctx, a.Path, environment(c, a.Saltenv))
	switch {
	case err == nil:
		return value.DictOf("hash_type", h.Type, "hsum", h.Sum), nil
	case salt.KindOf(err) != salt.NotFound:
		return nil, fn.Errorf("%w", err)
	case strings.HasPrefix(a.Path, "salt://"):
		return "", nil
	}
	return value.NewDict(0), nil
}

type statArgs struct {
	pathArgs
	Octal bool `salt:"octal" doc:"return the mode as octal text" default:"true"`
}

func (cp) statFile(ctx context.Context, c *fn.Call, a statArgs) (any, error) {
	st, err := c.Files.Stat(ctx, a.Path, environment(c, a.Saltenv))
	switch {
	case err != nil && salt.KindOf(err) != salt.NotFound:
		return nil, fn.Errorf("%w", err)
	case len(st) == 0:
		return nil, nil
	case !a.Octal:
		return st[0], nil
	}
	text := fmt.Sprintf("%o", st[0])
	return text[max(0, len(text)-4):], nil
}

type noArgs struct{}

func (cp) envs(ctx context.Context, c *fn.Call, files clientFiles, _ noArgs) (any, error) {
	return list(files.Envs(ctx))
}

type pushArgs struct {
	Path         string `salt:"path" doc:"absolute path of the file"`
	KeepSymlinks bool   `salt:"keep_symlinks" doc:"keep the name as it is in place of that of the file that a symbolic link stands for" default:"false"`
	UploadPath   any    `salt:"upload_path" doc:"name to keep it under at the master" default:"null"`
	RemoveSource bool   `salt:"remove_source" doc:"remove the file here when it has arrived" default:"false"`
}

func (m cp) push(ctx context.Context, c *fn.Call, files clientFiles, a pushArgs) (any, error) {
	if strings.Contains(a.Path, "../") || !filepath.IsAbs(a.Path) {
		return false, nil
	}
	p := a.Path
	if !a.KeepSymlinks {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
	}
	name := p
	if upload := textOf(a.UploadPath); upload != "" {
		if strings.Contains(upload, "../") {
			return false, nil
		}
		name = upload
	}
	part, _ := c.Config.Get("file_buffer_size").(int64)
	ok, err := files.Push(ctx, c.ID, p, strings.TrimLeft(path.Clean(name), "/"), int(part))
	switch {
	case err != nil && salt.KindOf(err) == salt.NotFound:
		return false, nil
	case err != nil:
		return nil, fn.Errorf("%w", err)
	case !ok:
		c.Log.Error("cp.push Failed transfer failed. Ensure master has 'file_recv' set to 'True' and that the file is not larger than the " +
			"'file_recv_size_max' setting on the master.")
		return false, nil
	}
	if a.RemoveSource {
		if err := os.Remove(p); err != nil {
			c.Log.Error("cp.push failed to remove file", "path", p, "err", err)
			return false, nil
		}
	}
	return true, nil
}

type pushDirArgs struct {
	Path       string `salt:"path" doc:"absolute path of the directory"`
	Glob       any    `salt:"glob" doc:"pattern for the names of the files" default:"null"`
	UploadPath any    `salt:"upload_path" doc:"directory to keep them under at the master" default:"null"`
}

func (m cp) pushDir(ctx context.Context, c *fn.Call, files clientFiles, a pushDirArgs) (any, error) {
	if strings.Contains(a.Path, "../") || !filepath.IsAbs(a.Path) {
		return false, nil
	}
	dir := filepath.Clean(a.Path)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if !isDir(dir) {
		return m.push(ctx, c, files, pushArgs{Path: dir, UploadPath: a.UploadPath})
	}
	wanted := func(string) bool { return true }
	if a.Glob != nil {
		wanted = target.ParseGlob(value.Str(a.Glob)).Match
	}
	var found []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && wanted(d.Name()) {
			found = append(found, p)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return false, nil
	}
	for _, p := range found {
		one := pushArgs{Path: p}
		if up := textOf(a.UploadPath); up != "" {
			one.UploadPath = "/" + strings.Trim(up, "/") + strings.TrimPrefix(p, dir)
		}
		if ok, err := m.push(ctx, c, files, one); err != nil || ok != true {
			return ok, err
		}
	}
	return true, nil
}
