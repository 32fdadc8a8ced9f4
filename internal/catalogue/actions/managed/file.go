// Package managed implements the state file.managed and the execution functions
// file.manage_file, file.check_managed, file.check_file_meta and others: it compares
// a file with declared contents, owner, mode and attributes, and writes it.
package managed

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state/perms"
	"brine/internal/sls/state/sources"
)

// File is a file with the owner, mode and attributes that it should have.
type File struct {
	M    *host.Machine
	Name string
	Own  Owner
	// Marks are the attributes and the SELinux context.
	Marks perms.Marks
	// Follow manages the target of a symbolic link instead of the link.
	Follow bool
	Parent Parent
	// Backup says whether Replace keeps a copy of the old file, as the argument
	// backup does.
	Backup any
	// Config has the options obfuscate_templates, backup_mode and cachedir.
	Config fn.Reader
	// HideChanges hides the changes of the content in diffs.
	HideChanges bool
}

// Parent says what to do if the directory of a new file is missing.
type Parent struct {
	Make bool
	// Mode is the mode of new directories; if nil, it is derived from the mode of the
	// file.
	Mode any
}

// bits returns the mode of directories for a file with this mode, -1 for the default.
func (p Parent) bits(mode string) (int, error) {
	if p.Mode == nil {
		return perms.DirMode(mode), nil
	}
	bits, err := filesys.ParseMode(filesys.NormalizeMode(p.Mode))
	if err != nil {
		return -1, fn.Errorf("dir_mode: %w", err)
	}
	return bits, nil
}

// MakeParent creates the directory of the file if it is missing and creating it is
// allowed.
func (f *File) MakeParent() error {
	dir := filepath.Dir(f.Name)
	switch {
	case filesys.IsDir(dir):
		return nil
	case !f.Parent.Make:
		return fn.Errorf("Parent directory not present")
	}
	if err := f.Own.Available(); err != nil {
		return err
	}
	mode, err := f.Parent.bits(f.Own.Mode)
	if err != nil {
		return err
	}
	if err := filesys.MakeDirs(dir, f.Own.UID, f.Own.GID, mode); err != nil {
		return fn.Errorf("cannot make the directory %s: %w", dir, atomicfile.Cause(err))
	}
	return nil
}

// Diff returns the diff between the file and a new content. It hides the changes if
// the minion's options or HideChanges say so.
func (f *File) Diff(want *sources.Content) (string, error) {
	obfuscate, _ := f.Config.Get("obfuscate_templates").(bool)
	switch {
	case obfuscate:
		return "<Obfuscated Template>", nil
	case f.HideChanges:
		return "<show_changes=False>", nil
	}
	d, err := want.Diff(f.Name)
	if err != nil {
		return "", fn.Errorf("%w", atomicfile.Cause(err))
	}
	return d, nil
}

// DiffUnlessSame returns "" if the file has the content, else Diff.
func (f *File) DiffUnlessSame(want *sources.Content) (string, error) {
	same, err := want.Same(f.Name)
	switch {
	case err != nil:
		return "", fn.Errorf("%w", atomicfile.Cause(err))
	case same:
		return "", nil
	}
	return f.Diff(want)
}

// Differs returns which of owner, mode, attributes and SELinux context differ from
// the declared ones. now is the current state.
func (f *File) Differs(ctx context.Context, now filesys.Facts) (*value.Dict, error) {
	changes := f.Own.Differs(now)
	marked, err := f.Marks.Differs(ctx, f.Name)
	changes.Update(marked)
	return changes, err
}

// Apply sets owner, mode, attributes and SELinux context, and returns the changes.
func (f *File) Apply(ctx context.Context) (*value.Dict, error) {
	changes, err := f.Own.Apply(f.M, f.Name, f.Follow)
	if err != nil {
		return changes, err
	}
	marked, err := f.Marks.Apply(ctx, f.Name)
	changes.Update(marked)
	return changes, err
}

// Ready returns a file that already holds the content, or nil; see atomicfile.As.
type Ready func(final string, old fs.FileInfo) *os.File

// Write replaces the file by one with the content, owner and mode.
func (f *File) Write(want *sources.Content, ready Ready) error {
	as := atomicfile.As{Mode: f.Own.Bits, UID: f.Own.UID, GID: f.Own.GID, ReplaceLink: !f.Follow, Durable: true}
	taken := false
	if ready != nil {
		as.Ready = func(final string, old fs.FileInfo) *os.File {
			file := ready(final, old)
			taken = file != nil
			return file
		}
	}
	err := atomicfile.ReplaceAs(f.Name, as, want.Pour)
	if err != nil && taken {
		as.Ready = nil // writing the content gives the better error
		err = atomicfile.ReplaceAs(f.Name, as, want.Pour)
	}
	if err != nil {
		return fn.Errorf("Failed to commit change: %w", err)
	}
	return nil
}

// Created predicts how Create changes the content. A nil content means an empty
// file.
func (f *File) Created(want *sources.Content) *value.Dict {
	if want == nil {
		return value.DictOf("new", "file "+f.Name+" created")
	}
	return value.DictOf("diff", "New file")
}

// Create writes a new file, and returns the changes of content, owner and mode as
// Salt shows them. showMode shows the mode even if none is declared.
func (f *File) Create(want *sources.Content, showMode bool, ready Ready) (*value.Dict, error) {
	changes := f.Created(want)
	if want == nil {
		want = &sources.Content{}
	}
	if err := f.Write(want, ready); err != nil {
		return nil, err
	}
	now, err := filesys.Look(f.M, f.Name, true)
	if err != nil {
		return nil, fn.Errorf("Failed to commit change: %w", atomicfile.Cause(err))
	}
	if f.Own.Problem == "" {
		mode := f.Own.Mode
		if mode == "" && showMode {
			mode = now.Mode
		}
		changes.Update(perms.New(f.Own.User, f.Own.Group, mode, now, filepath.Dir(f.Name)))
	}
	return changes, nil
}

// Replace replaces the content, and keeps a copy of the old file if Backup or the
// minion's options say so.
func (f *File) Replace(want *sources.Content, ready Ready) error {
	if err := sources.BackUp(f.Config, f.Name, f.Backup); err != nil {
		return err
	}
	return f.Write(want, ready)
}

// Encoded returns a content given as a string with an encoding, or as bytes.
func Encoded(given any, encoding, onError string) (*sources.Content, error) {
	if b, ok := given.([]byte); ok {
		return &sources.Content{Data: append([]byte{}, b...)}, nil
	}
	b, err := sources.Encode(value.Str(given), encoding, onError)
	if err != nil {
		return nil, err
	}
	return &sources.Content{Data: b}, nil
}

// SourceMode returns the mode of a source, for files that keep it. Sources on the
// web have none.
func SourceMode(ctx context.Context, files fn.Lister, s sources.Source) (bits int, ok bool) {
	if s.Web() {
		return 0, false
	}
	st, err := files.Stat(ctx, strings.TrimPrefix(s.URL, "file://"), s.Env)
	if err != nil || len(st) == 0 {
		return 0, false
	}
	return int(st[0] & 0o7777), true
}
