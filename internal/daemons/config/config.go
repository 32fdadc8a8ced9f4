// Package config reads the configuration of Brine's programs: Salt's files
// below /etc/salt, with Salt's rules for including and merging them. It joins
// the Options that packages declare for themselves into Master and Minion,
// fills these from the files, and reports every error with its file, line and
// key. It also documents the options.
//
// The steps are Load (files to a Tree of merged values, each with its origin),
// optionally Tree.Set for overrides by the command line, then NewMaster or
// NewMinion (a Tree to typed options), which Decode fills.
//
// Differences from Salt, all of which report more to the user:
//
//   - a malformed or unreadable included file is an error for every program,
//     not only for the minion, and all errors are reported at once;
//   - a value of the wrong type is an error, not a warning;
//   - an unknown name causes a warning with the nearest known one. It is kept,
//     like every option that Salt knows and Brine does not use.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Kind is the kind of configuration, which determines the file and the options.
type Kind string

// The kinds. All programs of the master read the master's file, and salt-call
// reads the minion's.
const (
	MasterKind Kind = "master"
	MinionKind Kind = "minion"
	// WitnessKind is for brine witness.
	WitnessKind Kind = "witness"
	// HubKind is for brine-hub.
	HubKind Kind = "hub"
)

// DefaultDir is the directory of the configuration files.
const DefaultDir = "/etc/salt"

func (k Kind) include() string { return string(k) + ".d/*.conf" }

// The exit codes of Salt's programs for an unusable configuration.
const (
	// ExitInvalid is for a malformed file or a wrong value.
	ExitInvalid = 1
	// ExitDenied is for a file that the user may not read.
	ExitDenied = 77
)

// ExitCode returns the exit code for an error of this package.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case salt.KindOf(err) == salt.Denied:
		return ExitDenied
	}
	return ExitInvalid
}

// Path returns the main file of a kind in directory dir. If dir is empty, the
// environment decides: SALT_MASTER_CONFIG (or SALT_MINION_CONFIG) if it names a
// file, else the directory SALT_CONFIG_DIR, else DefaultDir.
func Path(k Kind, dir string, getenv func(string) string) string {
	if dir != "" {
		return filepath.Join(dir, string(k))
	}
	if p := getenv("SALT_" + strings.ToUpper(string(k)) + "_CONFIG"); p != "" {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return p
		}
	}
	if d := getenv("SALT_CONFIG_DIR"); d != "" {
		return filepath.Join(d, string(k))
	}
	return filepath.Join(DefaultDir, string(k))
}

// Origin is the place where a value was set.
type Origin struct {
	// File is a path, or words such as "command line".
	File string
	// Line counts from 1; 0: unknown.
	Line int
}

func (o Origin) String() string {
	if o.Line == 0 {
		return o.File
	}
	return o.File + ":" + strconv.Itoa(o.Line)
}

// Fault is one error in a configuration.
type Fault struct {
	Origin
	// Key is the option, "" for the whole file.
	Key string
	Err error
}

func (f *Fault) Error() string {
	var parts []string
	if f.File != "" {
		parts = append(parts, f.Origin.String())
	}
	if f.Key != "" {
		parts = append(parts, f.Key)
	}
	return strings.Join(append(parts, f.Err.Error()), ": ")
}

func (f *Fault) Unwrap() error { return f.Err }

// join joins faults into one error: nil if there are none, of kind Denied if a file may not be
// read, otherwise Invalid. Its message has a line for each fault.
func join(faults []error) error {
	err := errors.Join(faults...)
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return &salt.Error{Kind: salt.Denied, Err: err}
	}
	return &salt.Error{Kind: salt.Invalid, Err: err}
}

// faultList collects faults. If an earlier stage rejected a key, later faults of that key are
// dropped: they would only repeat the error.
type faultList struct {
	all    []error
	blamed map[string]bool // keys with faults of earlier stages
}

func (l *faultList) stage(more ...error) {
	var keys []string
	for _, err := range flatten(more) {
		var f *Fault
		if errors.As(err, &f) && f.Key != "" {
			if l.blamed[f.Key] {
				continue
			}
			keys = append(keys, f.Key)
		}
		l.all = append(l.all, err)
	}
	if l.blamed == nil {
		l.blamed = map[string]bool{}
	}
	for _, k := range keys {
		l.blamed[k] = true
	}
}

// err returns all faults in the order of the files and their lines.
func (l *faultList) err(t *Tree) error {
	place := func(err error) (file, line int) {
		var f *Fault
		if !errors.As(err, &f) {
			return len(t.Files), 0
		}
		if i := slices.Index(t.Files, f.File); i >= 0 {
			return i, f.Line
		}
		return len(t.Files), f.Line
	}
	slices.SortStableFunc(l.all, func(a, b error) int {
		fa, la := place(a)
		fb, lb := place(b)
		return cmp.Or(cmp.Compare(fa, fb), cmp.Compare(la, lb))
	})
	return join(l.all)
}

// flatten splits joined errors.
func flatten(errs []error) []error {
	var out []error
	for _, err := range errs {
		var s *salt.Error
		if err == nil {
			continue
		}
		if _, isFault := err.(*Fault); !isFault && errors.As(err, &s) && s == err { // exact: only the outermost layer is removed
			err = s.Err
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok { // exact: deeper ones are one error
			out = append(out, flatten(many.Unwrap())...)
			continue
		}
		out = append(out, err)
	}
	return out
}

// Tree is the merged content of the files. Its values are as the user wrote
// them: without defaults, unchecked.
type Tree struct {
	Kind Kind
	// Path is the main file, whether it exists or not.
	Path string
	// Files are the files that were read, in order.
	Files []string
	// Values holds the options by name.
	Values *value.Dict

	origins map[string]Origin
	log     *slog.Logger
}

// NewTree returns an empty tree, as Load returns for a file that is missing.
func NewTree(k Kind, path string, log *slog.Logger) *Tree {
	return &Tree{Kind: k, Path: path, Values: value.NewDict(0), origins: map[string]Origin{}, log: log}
}

// Origin returns where an option was set; ok is false if it is not set.
func (t *Tree) Origin(key string) (o Origin, ok bool) {
	o, ok = t.origins[key]
	return o, ok
}

// Set overrides an option; from names the source in messages, for example
// "command line".
func (t *Tree) Set(key string, v any, from string) {
	t.Values.Set(key, value.From(v))
	t.origins[key] = Origin{File: from}
}

// fault reports an invalid value of an option.
func (t *Tree) fault(key string, err error) error {
	return &Fault{Origin: t.origins[key], Key: key, Err: err}
}

func (t *Tree) faultf(key, format string, args ...any) error {
	return t.fault(key, fmt.Errorf(format, args...))
}

func (t *Tree) warn(key, text string, args ...any) {
	if o, ok := t.origins[key]; ok {
		args = append(args, "at", o.String())
	}
	t.log.Warn(text, append([]any{"option", key}, args...)...)
}
