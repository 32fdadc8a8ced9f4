package selinux

import (
	"context"
	"os"
	"regexp"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// write writes to a file of the kernel, which cannot be replaced.
func (p Policy) write(path, text string) error {
	f, err := os.OpenFile(p.M.Path(path), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// fileTypes are the types of files in the lists of semanage.
var fileTypes = map[string]string{
	"a": "all files", "f": "regular file", "d": "directory", "c": "character device", "b": "block device", "s": "socket", "l": "symbolic link", "p": "named pipe",
}

// FileType implements selinux.filetype_id_to_string.
func FileType(letter string) (string, error) {
	if s, ok := fileTypes[letter]; ok {
		return s, nil
	}
	return "", fn.Invalidf("Invalid filetype given: %s", letter)
}

// FileContext is the context of files, for a policy. Empty fields are any.
type FileContext struct{ Type, User, Level string }

// contextKeys are the names of the fields of a context.
var contextKeys = []string{"sel_user", "sel_role", "sel_type", "sel_level"}

// contextOf reads a context, whose level may contain colons.
func contextOf(text string) (*value.Dict, error) {
	f := strings.SplitN(text, ":", 4)
	if len(f) < 4 {
		return nil, fn.Invalidf(`Invalid SELinux context string: %s. Expected "sel_user:sel_role:sel_type:sel_level"`, text)
	}
	d := value.NewDict(4)
	for i, k := range contextKeys {
		d.Set(k, f[i])
	}
	return d, nil
}

// fileEntry is a line of semanage fcontext -l after the file specification.
var fileEntry = regexp.MustCompile(`^ +([A-Za-z ]+?) +([^: ]+:[^:]+:[^:]+:[^:]+?)[ \t]*$`)

// GetFile implements selinux.fcontext_get_policy: nil if there is no entry. An
// empty filetype is any.
func (p Policy) GetFile(ctx context.Context, name, filetype string, want FileContext) (*value.Dict, error) {
	kind := ""
	if filetype != "" {
		var err error
		if kind, err = FileType(filetype); err != nil {
			return nil, err
		}
	}
	said, _, err := p.run(ctx, "semanage", "fcontext", "-l")
	if err != nil {
		return nil, err
	}
	var found *value.Dict
	for line := range strings.SplitSeq(said, "\n") {
		rest, ok := strings.CutPrefix(line, name)
		m := fileEntry.FindStringSubmatch(rest)
		if !ok || m == nil || kind != "" && m[1] != kind {
			continue
		}
		c, err := contextOf(m[2])
		if err != nil {
			continue
		}
		if differs(want.Type, c.Str("sel_type")) || differs(want.User, c.Str("sel_user")) || differs(want.Level, c.Str("sel_level")) {
			continue
		}
		found = value.DictOf("filespec", name, "filetype", m[1]) // a local entry comes after that of the policy
		found.Update(c)
	}
	return found, nil
}

func differs(want, have string) bool { return want != "" && want != have }

// AddFile implements selinux.fcontext_add_policy.
func (p Policy) AddFile(ctx context.Context, c *fn.Call, name, filetype string, of FileContext) (*value.Dict, error) {
	said, _, err := p.run(ctx, "semanage", "fcontext", "-l")
	if err != nil {
		return nil, err
	}
	action := "--add"
	if strings.Contains(said, name+" ") {
		action = "--modify"
	}
	return changeFile(ctx, c, action, name, filetype, of)
}

// DeleteFile implements selinux.fcontext_delete_policy.
func (p Policy) DeleteFile(ctx context.Context, c *fn.Call, name, filetype string, of FileContext) (*value.Dict, error) {
	return changeFile(ctx, c, "--delete", name, filetype, of)
}

func changeFile(ctx context.Context, c *fn.Call, action, name, filetype string, of FileContext) (*value.Dict, error) {
	words := []string{"semanage", "fcontext", action}
	if filetype != "" && filetype != "a" { // old versions of semanage do not know a
		if _, err := FileType(filetype); err != nil {
			return nil, err
		}
		words = append(words, "--ftype", filetype)
	}
	for _, o := range [][2]string{{"--type", of.Type}, {"--seuser", of.User}, {"--range", of.Level}} {
		if o[1] != "" {
			words = append(words, o[0], o[1])
		}
	}
	return runAll(ctx, c, append(words, host.Operands(name)...)...)
}

func restorecon(name string, recursive bool, options ...string) []string {
	words := append([]string{"restorecon"}, options...)
	if recursive {
		words = append(words, "-R")
	}
	return append(words, host.Operands(name)...)
}

// Unapplied implements selinux.fcontext_policy_is_applied: what restorecon
// would do.
func (p Policy) Unapplied(ctx context.Context, c *fn.Call, name string, recursive bool) (string, error) {
	d, err := runAll(ctx, c, restorecon(name, recursive, "-n", "-v")...)
	if err != nil {
		return "", err
	}
	return d.Str("stdout"), nil
}

var (
	wouldRelabel = regexp.MustCompile(`(?m)Would relabel (.*) from (.*) to (.*)$`)
	wouldReset   = regexp.MustCompile(`(?m)restorecon reset (.*) context (.*)->(.*)$`)
)

// Apply implements selinux.fcontext_apply_policy.
func (p Policy) Apply(ctx context.Context, c *fn.Call, name string, recursive bool) (*value.Dict, error) {
	before, err := p.Unapplied(ctx, c, name, recursive)
	if err != nil {
		return nil, err
	}
	ret, err := runAll(ctx, c, restorecon(name, recursive, "-v", "-F")...)
	if err != nil || ret.Int("retcode") != 0 {
		return ret, err
	}
	var found [][]string
	switch {
	case strings.HasPrefix(before, "Would relabel"):
		found = wouldRelabel.FindAllStringSubmatch(before, -1)
	case strings.HasPrefix(before, "restorecon reset"):
		found = wouldReset.FindAllStringSubmatch(before, -1)
	default:
		ret.Set("retcode", 1)
		ret.Set("error", "Unrecognized response from restorecon command.")
		return ret, nil
	}
	changes := value.NewDict(len(found))
	for _, m := range found {
		old, err := contextOf(m[2])
		if err != nil {
			return nil, err
		}
		now, err := contextOf(m[3])
		if err != nil {
			return nil, err
		}
		for _, k := range contextKeys {
			if old.At(k) == now.At(k) {
				old.Delete(k)
				now.Delete(k)
			}
		}
		changes.Set(m[1], value.DictOf("old", old, "new", now))
	}
	if len(found) > 0 {
		ret.Set("changes", changes)
	}
	return ret, nil
}
