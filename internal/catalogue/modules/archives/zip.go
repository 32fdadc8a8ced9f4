package archives

import (
	"archive/zip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/archive"
	"brine/internal/py/value"
)

type zipArgs struct {
	File     string `salt:"zip_file" doc:"the archive"`
	Sources  any    `salt:"sources" doc:"files to pack, with commas or as a list"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Cwd      string `salt:"cwd" doc:"directory that names are relative to" default:"null"`
	Runas    string `salt:"runas" doc:"not supported; use archive.cmd_zip" default:"null"`
	Zip64    bool   `salt:"zip64" ignored:"large archives need no option" default:"false"`
}

func (a archiver) zip(ctx context.Context, c *fn.Call, x zipArgs) (*value.List, error) {
	if err := fill(ctx, c, x.Template, &x.File, &x.Sources); err != nil {
		return nil, err
	}
	from := sources(x.Sources, "")
	switch {
	case x.Runas != "":
		return nil, fn.Invalidf("archive.zip does not know runas: use archive.cmd_zip")
	case x.Cwd == "" && slices.ContainsFunc(from, func(s string) bool { return !filepath.IsAbs(s) }):
		return nil, fn.Invalidf("Relative paths require the 'cwd' parameter")
	case x.Cwd != "" && !filepath.IsAbs(x.Cwd):
		return nil, fn.Invalidf("cwd must be absolute")
	}
	names, err := archive.Zip(a.m.Path(x.File), from, x.Cwd)
	if err != nil {
		return nil, fn.Errorf("Exception encountered creating zipfile: %w", err)
	}
	return value.Strings(names), nil
}

type encryptedArgs struct {
	Name    string `salt:"name" doc:"path or URL of the archive"`
	Clean   bool   `salt:"clean" doc:"remove the file from the cache" default:"false"`
	Saltenv string `salt:"saltenv" doc:"environment of the file" default:"base"`
	Hash    any    `salt:"source_hash" ignored:"the archive is a local file" default:"null"`
	ETag    bool   `salt:"use_etag" ignored:"the archive is a local file" default:"false"`
}

func (a archiver) isEncrypted(ctx context.Context, c *fn.Call, x encryptedArgs) (bool, error) {
	file, err := a.file(ctx, c, x.Name, x.Saltenv)
	if err != nil {
		return false, err
	}
	is, err := archive.Encrypted(a.m.Path(file))
	if x.Clean && file != x.Name {
		_ = os.Remove(file) // a copy in the cache
	}
	switch {
	case errors.Is(err, zip.ErrFormat):
		return false, fn.Errorf("%s is not a ZIP file", x.Name)
	case errors.Is(err, os.ErrNotExist):
		return false, fn.Errorf("Failed to cache %s", x.Name)
	case err != nil:
		return false, fn.Errorf("cannot read %s: %w", x.Name, err)
	}
	return is, nil
}

type rarArgs struct {
	File     string `salt:"rarfile" doc:"the archive"`
	Sources  any    `salt:"sources" doc:"files to pack, with commas or as a list"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Cwd      string `salt:"cwd" doc:"directory to work in" default:"null"`
	Runas    string `salt:"runas" doc:"user that rar runs as" default:"null"`
}

func (a archiver) rar(ctx context.Context, c *fn.Call, x rarArgs) (*value.List, error) {
	if err := fill(ctx, c, x.Template, &x.File, &x.Sources); err != nil {
		return nil, err
	}
	words := append([]string{x.File}, sources(x.Sources, x.Cwd)...)
	if err := host.NoOption("rar", words...); err != nil {
		return nil, fn.FromHost(err)
	}
	text, err := a.run(ctx, c, x.Runas, x.Cwd, "rar", append([]string{"a", "-idp"}, words...)...)
	return lines(text), err
}

type unrarArgs struct {
	File     string `salt:"rarfile" doc:"the archive"`
	Dest     string `salt:"dest" doc:"directory to unpack into"`
	Excludes any    `salt:"excludes" doc:"names to leave out, with commas or as a list" default:"null"`
	Template any    `salt:"template" doc:"template engine that the names are rendered with" default:"null"`
	Runas    string `salt:"runas" doc:"user that unrar runs as" default:"null"`
	Trim     any    `salt:"trim_output" doc:"number of names to return; true for 100" default:"false"`
}

func (a archiver) unrar(ctx context.Context, c *fn.Call, x unrarArgs) (*value.List, error) {
	if err := fill(ctx, c, x.Template, &x.File, &x.Dest); err != nil {
		return nil, err
	}
	program := "unrar"
	if a.m.Which(program) == "" {
		program = "rar"
	}
	if err := host.NoOption(program, x.File, x.Dest); err != nil {
		return nil, fn.FromHost(err)
	}
	args := []string{"x", "-idp", x.File}
	for _, e := range value.Split(x.Excludes) {
		args = append(args, "-x"+e)
	}
	text, err := a.run(ctx, c, x.Runas, "", program, append(args, x.Dest)...)
	return trim(lines(text), x.Trim), err
}
