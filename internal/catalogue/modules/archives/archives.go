// Package archives holds the execution module archive: packing, unpacking and
// listing of tar, zip and gzip files. It uses host/archive and the programs
// tar, gzip, gunzip, zip, unzip, rar and unrar.
package archives

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/host/archive"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

type archiver struct{ m *host.Machine }

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }

func init() { units.Register("archive", archiveModule) }

func archiveModule(m *host.Machine) fn.Module {
	a := archiver{m}
	return fn.Module{Name: "archive", Doc: `Archives.`, Funcs: []fn.Func{
		fn.Of("tar", a.tar, `Run tar and return the lines that it prints.`,
			fn.Example("salt '*' archive.tar cjvf /tmp/tarfile.tar.bz2 '/tmp/file_1,/tmp/file_2'")),
		fn.Of("gzip", a.gzip, `Compress a file.`, fn.Example("salt '*' archive.gzip /tmp/sourcefile.txt options='-9 --verbose'")),
		fn.Of("gunzip", a.gunzip, `Unpack a compressed file.`, fn.Example("salt '*' archive.gunzip /tmp/sourcefile.txt.gz options='--verbose'")),
		fn.Of("cmd_zip", a.cmdZip, `Run zip and return the lines that it prints.`,
			fn.Example("salt '*' archive.cmd_zip /tmp/zipfile.zip '/tmp/sourcefile1,/tmp/sourcefile2'")),
		fn.Of("cmd_unzip", a.cmdUnzip, `Run unzip and return the lines that it prints.`,
			fn.Example("salt '*' archive.cmd_unzip /tmp/zipfile.zip /home/strongbad/ excludes=file_1,file_2")),
		fn.Of("unzip", a.unzip, `Unpack a zip file and return the names.`,
			fn.Example("salt '*' archive.unzip /tmp/zipfile.zip /home/strongbad/ excludes=file_1,file_2")),
		fn.Of("zip", a.zip, `Pack files into a zip file and return their names in it.`,
			fn.Example("salt '*' archive.zip /tmp/zipfile.zip '/tmp/sourcefile1,/tmp/sourcefile2'")),
		fn.Of("is_encrypted", a.isEncrypted, `Say whether a zip file needs a password.`, fn.Example("salt '*' archive.is_encrypted /path/to/myfile.zip")),
		fn.Of("rar", a.rar, `Run rar to pack files and return the lines that it prints.`,
			fn.Example("salt '*' archive.rar /tmp/rarfile.rar '/tmp/sourcefile1,/tmp/sourcefile2'")),
		fn.Of("unrar", a.unrar, `Run unrar, or rar, to unpack a file and return the lines that it prints.`,
			fn.Example("salt '*' archive.unrar /tmp/rarfile.rar /home/strongbad/ excludes=file_1,file_2")),
		fn.Of("list", a.list, `Return what is in a tar or zip file.`, fn.Example("salt '*' archive.list /path/to/myfile.tar.gz strip_components=1")),
	}}
}

// run runs a program and returns its output. If the program fails, the output
// has the reason, and the job gets its exit status.
func (a archiver) run(ctx context.Context, call *fn.Call, runas, cwd, program string, args ...string) (string, error) {
	c := host.Cmd{Program: program, Args: args, Dir: cwd}
	if runas != "" {
		u, ok := account.ByName(ctx, a.m, runas)
		if !ok {
			return "", fn.Invalidf("User '%s' does not exist", runas)
		}
		if u.UID != os.Geteuid() {
			c.As = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
		}
	}
	out, err := a.m.Command(ctx, c)
	if err != nil {
		return "", fn.Errorf("cannot run %s: %w", program, err)
	}
	text := out.Stdout
	if out.Stderr != "" {
		text = strings.TrimPrefix(text+"\n"+out.Stderr, "\n")
	}
	call.SetRetcode(out.Exit)
	return text, nil
}

func lines(text string) *value.List {
	if text == "" {
		return &value.List{}
	}
	return value.Strings(strings.Split(text, "\n"))
}

// sources returns the files that match patterns.
func sources(v any, cwd string) []string {
	var out []string
	for _, s := range value.Split(v) {
		at := s
		if !filepath.IsAbs(s) && cwd != "" {
			at = filepath.Join(cwd, s)
		}
		found, err := filepath.Glob(at)
		if err != nil || len(found) == 0 || at != s {
			found = []string{s}
		}
		out = append(out, found...)
	}
	return out
}

// fill renders names as templates if there is an engine: each is a *string, or an *any with text or
// a list of texts.
func fill(ctx context.Context, c *fn.Call, engine any, names ...any) error {
	if !value.Truth(engine) {
		return nil
	}
	if c.Templates == nil {
		return fn.Errorf("templates cannot be filled in here")
	}
	render := func(text string) (string, error) {
		out, err := c.Templates.Text(ctx, c, fn.Template{Engine: value.Str(engine), Source: []byte(text), Saltenv: "base"})
		if err != nil {
			return "", fn.Errorf("Failed to render file path with error: %w", err)
		}
		return out, nil
	}
	for _, name := range names {
		switch name := name.(type) {
		case *string:
			text, err := render(*name)
			if err != nil {
				return err
			}
			*name = text
		case *any:
			all := value.Split(*name)
			for i := range all {
				text, err := render(all[i])
				if err != nil {
					return err
				}
				all[i] = text
			}
			*name = value.Strings(all)
		}
	}
	return nil
}

type tarArgs struct {
	Options  string `salt:"options" doc:"options of tar"`
	Tarfile  string `salt:"tarfile" doc:"the archive"`
	Sources  any    `salt:"sources" doc:"files to pack, with commas or as a list" default:"null"`
	Dest     any    `salt:"dest" doc:"directory to unpack into" default:"null"`
	Cwd      string `salt:"cwd" doc:"directory to work in" default:"null"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Runas    string `salt:"runas" doc:"user that tar runs as" default:"null"`
}

func (a archiver) tar(ctx context.Context, c *fn.Call, x tarArgs) (*value.List, error) {
	if x.Options == "" {
		return nil, fn.Invalidf("Tar options can not be empty")
	}
	if err := fill(ctx, c, x.Template, &x.Tarfile, &x.Sources); err != nil {
		return nil, err
	}
	args := append(append(strings.Fields(x.Options), x.Tarfile), sources(x.Sources, x.Cwd)...)
	if value.Truth(x.Dest) {
		args = append(args, "-C", value.Str(x.Dest))
	}
	text, err := a.run(ctx, c, x.Runas, x.Cwd, "tar", args...)
	return lines(text), err
}

type gzipArgs struct {
	Source   string `salt:"sourcefile" doc:"the file"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Runas    string `salt:"runas" doc:"user that the program runs as" default:"null"`
	Options  any    `salt:"options" doc:"options of the program" default:"null"`
}

type gunzipArgs struct {
	Source   string `salt:"gzipfile" doc:"the file"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Runas    string `salt:"runas" doc:"user that the program runs as" default:"null"`
	Options  any    `salt:"options" doc:"options of the program" default:"null"`
}

func (a archiver) compress(ctx context.Context, c *fn.Call, program string, x gzipArgs) (*value.List, error) {
	if err := fill(ctx, c, x.Template, &x.Source); err != nil {
		return nil, err
	}
	var args []string
	if x.Options != nil {
		args = strings.Fields(value.Str(x.Options))
	}
	text, err := a.run(ctx, c, x.Runas, "", program, append(args, "--", x.Source)...)
	return lines(text), err
}

func (a archiver) gzip(ctx context.Context, c *fn.Call, x gzipArgs) (*value.List, error) {
	return a.compress(ctx, c, "gzip", x)
}

func (a archiver) gunzip(ctx context.Context, c *fn.Call, x gunzipArgs) (*value.List, error) {
	return a.compress(ctx, c, "gunzip", gzipArgs(x))
}

type cmdZipArgs struct {
	File     string `salt:"zip_file" doc:"the archive"`
	Sources  any    `salt:"sources" doc:"files to pack, with commas or as a list"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Cwd      string `salt:"cwd" doc:"directory to work in" default:"null"`
	Runas    string `salt:"runas" doc:"user that zip runs as" default:"null"`
}

func (a archiver) cmdZip(ctx context.Context, c *fn.Call, x cmdZipArgs) (*value.List, error) {
	if err := fill(ctx, c, x.Template, &x.File, &x.Sources); err != nil {
		return nil, err
	}
	if err := host.NoOption("zip", x.File); err != nil {
		return nil, fn.FromHost(err)
	}
	text, err := a.run(ctx, c, x.Runas, x.Cwd, "zip", append([]string{"-r", x.File}, host.Operands(sources(x.Sources, x.Cwd)...)...)...)
	return lines(text), err
}

type cmdUnzipArgs struct {
	File     string `salt:"zip_file" doc:"the archive"`
	Dest     string `salt:"dest" doc:"directory to unpack into"`
	Excludes any    `salt:"excludes" doc:"names to leave out, with commas or as a list" default:"null"`
	Options  any    `salt:"options" doc:"options of unzip" default:"null"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Runas    string `salt:"runas" doc:"user that unzip runs as" default:"null"`
	Trim     any    `salt:"trim_output" doc:"number of names to return; true for 100" default:"false"`
	Password any    `salt:"password" doc:"password of the archive" default:"null"`
}

// trim shortens a result to a number of lines; true means 100.
func trim(l *value.List, v any) *value.List {
	n := 0
	switch x := v.(type) {
	case bool:
		if x {
			n = 100
		}
	case int64:
		n = int(x)
	}
	if n > 0 && l.Len() > n {
		l.Items = append(l.Items[:n:n], "List trimmed after "+value.Str(int64(n))+" files.")
	}
	return l
}

func (a archiver) cmdUnzip(ctx context.Context, c *fn.Call, x cmdUnzipArgs) (*value.List, error) {
	if err := fill(ctx, c, x.Template, &x.File, &x.Dest); err != nil {
		return nil, err
	}
	var args []string
	if x.Password != nil {
		args = append(args, "-P", value.Str(x.Password))
	}
	if x.Options != nil {
		more, err := proc.Split(value.Str(x.Options))
		if err != nil {
			return nil, fn.Invalidf("cannot read the options: %w", err)
		}
		args = append(args, more...)
	}
	if err := host.NoOption("unzip", x.File); err != nil {
		return nil, fn.FromHost(err)
	}
	args = append(args, x.File, "-d", x.Dest)
	if x.Excludes != nil {
		args = append(append(args, "-x"), value.Split(x.Excludes)...)
	}
	text, err := a.run(ctx, c, x.Runas, "", "unzip", args...)
	if err == nil && c.Retcode() != 0 {
		err = fn.Errorf("%s", text)
	}
	return trim(lines(text), x.Trim), err
}

type unzipArgs struct {
	File     string `salt:"zip_file" doc:"the archive"`
	Dest     string `salt:"dest" doc:"directory to unpack into"`
	Excludes any    `salt:"excludes" doc:"names to leave out, with commas or as a list" default:"null"`
	Options  any    `salt:"options" ignored:"the archive is read without a program" default:"null"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Runas    string `salt:"runas" doc:"user that unpacks; it needs the program unzip" default:"null"`
	Trim     any    `salt:"trim_output" doc:"number of names to return; true for 100" default:"false"`
	Password any    `salt:"password" doc:"password of the archive; it needs the program unzip" default:"null"`
	Perms    bool   `salt:"extract_perms" doc:"take the modes from the archive" default:"true"`
}

func (a archiver) unzip(ctx context.Context, c *fn.Call, x unzipArgs) (*value.List, error) {
	if err := fill(ctx, c, x.Template, &x.File, &x.Dest); err != nil {
		return nil, err
	}
	if x.Runas != "" || x.Password != nil {
		return a.unzipByProgram(ctx, c, x)
	}
	names, err := archive.Unzip(a.m.Path(x.File), a.m.Path(x.Dest), value.Split(x.Excludes), x.Perms)
	if err != nil {
		return nil, fn.Errorf("Exception encountered unpacking zipfile: %w", err)
	}
	return trim(value.Strings(names), x.Trim), nil
}

// unzipByProgram runs the program unzip, which can decrypt, and can run as another user.
func (a archiver) unzipByProgram(ctx context.Context, c *fn.Call, x unzipArgs) (*value.List, error) {
	excludes := value.Split(x.Excludes)
	names, err := archive.ZipNames(a.m.Path(x.File), excludes)
	if err != nil {
		return nil, fn.Errorf("Exception encountered unpacking zipfile: %w", err)
	}
	password := ""
	if x.Password != nil {
		password = value.Str(x.Password)
	}
	if err := host.NoOption("unzip", x.File); err != nil {
		return nil, fn.FromHost(err)
	}
	args := []string{"-o", "-q", "-P", password, x.File, "-d", x.Dest}
	if len(excludes) > 0 {
		args = append(append(args, "-x"), excludes...)
	}
	text, err := a.run(ctx, c, x.Runas, "", "unzip", args...)
	if err == nil && c.Retcode() != 0 {
		err = fn.Errorf("Exception encountered unpacking zipfile: %s", text)
	}
	if err != nil {
		return nil, err
	}
	return trim(value.Strings(names), x.Trim), nil
}

type listArgs struct {
	Name    string `salt:"name" doc:"path or URL of the archive"`
	Format  any    `salt:"archive_format" doc:"tar or zip; by the name if null" default:"null"`
	Options any    `salt:"options" ignored:"the archive is read without a program" default:"null"`
	Strip   any    `salt:"strip_components" doc:"number of directories to leave out of the names" default:"null"`
	Clean   bool   `salt:"clean" doc:"remove the file from the cache" default:"false"`
	Verbose bool   `salt:"verbose" doc:"tell directories, files and links apart" default:"false"`
	Saltenv string `salt:"saltenv" doc:"environment of the file" default:"base"`
	Hash    any    `salt:"source_hash" ignored:"the archive is a local file" default:"null"`
	ETag    bool   `salt:"use_etag" ignored:"the archive is a local file" default:"false"`
}

func (a archiver) list(ctx context.Context, c *fn.Call, x listArgs) (any, error) {
	file, err := a.file(ctx, c, x.Name, x.Saltenv)
	if err != nil {
		return nil, err
	}
	format := ""
	if value.Truth(x.Format) {
		format = value.Str(x.Format)
	} else if u, err := url.Parse(x.Name); err == nil {
		if format = archive.FormatOf(u.Host + u.Path); format == "" {
			return nil, fn.Errorf("Unable to guess archive format, please pass an 'archive_format' argument.")
		}
	}
	content, err := archive.List(ctx, a.m.Path(file), format)
	if x.Clean && file != x.Name {
		_ = os.Remove(file) // a copy in the cache
	}
	if err != nil {
		return nil, fn.Errorf("Failed to list contents of %s: %w", x.Name, err)
	}
	if value.Truth(x.Strip) {
		n, ok := x.Strip.(int64)
		if !ok || n <= 0 {
			return nil, fn.Errorf("'strip_components' must be a positive integer")
		}
		content = content.Strip(int(n))
	}
	if x.Verbose {
		return verbose(content), nil
	}
	all := slices.Concat(content.Dirs, content.Files, content.Links)
	slices.Sort(all)
	return value.Strings(all), nil
}

// file returns the local path of an archive, and fetches it first if
// necessary.
func (a archiver) file(ctx context.Context, c *fn.Call, name, saltenv string) (string, error) {
	if !strings.Contains(name, "://") {
		return name, nil
	}
	file, err := c.Files.CacheFile(ctx, name, saltenv)
	if err != nil {
		return "", fn.Errorf("Failed to cache %s: %w", name, err)
	}
	return file, nil
}

func verbose(c archive.Content) *value.Dict {
	slices.Sort(c.Dirs)
	slices.Sort(c.Files)
	slices.Sort(c.Links)
	top := c.Top()
	return value.DictOf("dirs", value.Strings(c.Dirs), "files", value.Strings(c.Files), "links", value.Strings(c.Links),
		"top_level_dirs", value.Strings(top.Dirs), "top_level_files", value.Strings(top.Files), "top_level_links", value.Strings(top.Links))
}
