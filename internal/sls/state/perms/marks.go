// Package perms compares owner, mode, attributes and SELinux context of a file
// with the wanted ones, and sets the latter two.
package perms

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// Marks are attributes as chattr(1) sets them, and the SELinux context of a
// file.
type Marks struct {
	// Attrs are letters; nil means no change.
	Attrs *string
	// Context is the wanted user, role, type and range; "" means any.
	Context [4]string
}

// Parts are the names of the parts of a context: as arguments, in a prediction
// and in a change.
var Parts = [4][3]string{{"seuser", "user", "User: "}, {"serole", "role", "Role: "}, {"setype", "type", "Type: "}, {"serange", "range", "Range: "}}

// run runs a program on a file and returns its output.
func run(ctx context.Context, words ...string) (string, error) {
	r, err := proc.Run(ctx, proc.Cmd{Args: words, Env: append(os.Environ(), "LC_ALL=C"), MaxOutput: 1 << 20})
	if err != nil {
		return "", fn.Errorf("cannot run %s: %w", words[0], err)
	}
	if r.Code != 0 {
		return "", fn.Errorf("%s: %s", strings.Join(words, " "), strings.TrimSpace(string(r.Stderr)))
	}
	return string(r.Stdout), nil
}

// Attributes returns the attributes that chattr(1) can change. ok is false if
// the machine or file system has none.
func Attributes(ctx context.Context, path string) (letters string, ok bool) {
	if _, err := exec.LookPath("lsattr"); err != nil {
		return "", false
	}
	out, err := run(ctx, "lsattr", "-d", "--", path)
	if err != nil {
		return "", true
	}
	all, _, _ := strings.Cut(out, " ")
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("aAcCdDeijPsStTu", r) {
			return r
		}
		return -1
	}, all), true
}

// change returns the attributes to add and to remove. The attribute e, which
// cannot be changed, stays.
func (m Marks) change(old string) (add, remove string) {
	for _, r := range *m.Attrs {
		if !strings.ContainsRune(old, r) && !strings.ContainsRune(add, r) {
			add += string(r)
		}
	}
	for _, r := range old {
		if r != 'e' && !strings.ContainsRune(*m.Attrs, r) {
			remove += string(r)
		}
	}
	return add, remove
}

// Context returns the context of a file.
func Context(ctx context.Context, path string) (now [4]string, err error) {
	out, err := run(ctx, "stat", "-c", "%C", path)
	if err != nil {
		return now, fn.Errorf("Failed to get selinux attributes")
	}
	words := strings.SplitN(strings.TrimSpace(out), ":", 4)
	if len(words) != 4 {
		return now, fn.Errorf("Failed to get selinux attributes")
	}
	return [4]string(words), nil
}

// Differs returns what differs from the declaration.
func (m Marks) Differs(ctx context.Context, path string) (*value.Dict, error) {
	d := value.NewDict(2)
	if m.Attrs != nil {
		if old, ok := Attributes(ctx, path); ok {
			if add, remove := m.change(old); add != "" || remove != "" {
				d.Set("attrs", *m.Attrs)
			}
		}
	}
	if m.Context == [4]string{} {
		return d, nil
	}
	now, err := Context(ctx, path)
	if err != nil {
		return nil, err
	}
	for i, want := range m.Context {
		if want != "" && want != now[i] {
			d.Set("selinux", value.DictOf(Parts[i][1], want))
		}
	}
	return d, nil
}

// Apply sets what differs, and returns the changes.
func (m Marks) Apply(ctx context.Context, path string) (*value.Dict, error) {
	d := value.NewDict(2)
	if m.Attrs != nil {
		if err := m.applyAttributes(ctx, path, d); err != nil {
			return d, err
		}
	}
	if m.Context == [4]string{} {
		return d, nil
	}
	change, want, err := m.relabel(ctx, path)
	if err != nil || change == nil {
		return d, err
	}
	if err := Label(ctx, path, want, true); err != nil {
		return d, err
	}
	d.Set("selinux", change)
	return d, nil
}

// Forecast predicts the result of Apply.
func (m Marks) Forecast(ctx context.Context, path string) (*value.Dict, error) {
	d := value.NewDict(2)
	if m.Attrs != nil {
		if old, ok := Attributes(ctx, path); ok {
			if add, remove := m.change(old); add+remove != "" {
				d.Set("attrs", value.DictOf("old", old, "new", *m.Attrs))
			}
		}
	}
	if m.Context == [4]string{} {
		return d, nil
	}
	change, _, err := m.relabel(ctx, path)
	if change != nil {
		d.Set("selinux", change)
	}
	return d, err
}

// relabel returns how the context will change, nil if it will not, and the
// parts to set.
func (m Marks) relabel(ctx context.Context, path string) (change *value.Dict, want [4]string, err error) {
	now, err := Context(ctx, path)
	if err != nil {
		return nil, want, err
	}
	was, will := "", ""
	for i, w := range m.Context {
		if w != "" && w != now[i] {
			want[i] = w
			was += Parts[i][2] + now[i] + " "
			will += Parts[i][2] + w + " "
		}
	}
	if was == "" {
		return nil, want, nil
	}
	if want[2] == "" {
		want[2] = now[2] // semanage(8) needs the type
	}
	return value.DictOf("Old", strings.TrimSpace(was), "New", strings.TrimSpace(will)), want, nil
}

func (m Marks) applyAttributes(ctx context.Context, path string, d *value.Dict) error {
	old, ok := Attributes(ctx, path)
	if !ok {
		return nil
	}
	add, remove := m.change(old)
	for _, s := range []string{"+" + add, "-" + remove} {
		if len(s) > 1 {
			if _, err := run(ctx, "chattr", s, "--", path); err != nil {
				return fn.Errorf("Failed to change attributes to %s: %w", *m.Attrs, err)
			}
		}
	}
	if add+remove == "" {
		return nil
	}
	if now, _ := Attributes(ctx, path); !slices.Equal(letters(now), letters(old)) {
		d.Set("attrs", value.DictOf("old", old, "new", *m.Attrs))
	}
	return nil
}

func letters(s string) []rune { return slices.Sorted(slices.Values([]rune(s))) }

// Label sets the context of a file, permanently if it must be in the policy.
func Label(ctx context.Context, path string, want [4]string, policy bool) error {
	if policy {
		if err := with(ctx, []string{"semanage", "fcontext", "--add"}, []string{"--seuser", "", "--type", "--range"}, want, path); err != nil {
			return fn.Errorf("Problem setting fcontext: %w", err)
		}
	}
	if err := with(ctx, []string{"chcon"}, []string{"-u", "-r", "-t", "-l"}, want, path); err != nil {
		return fn.Errorf("Failed to set selinux attributes: %w", err)
	}
	return nil
}

// with runs a program on a file with options for those parts of a context that
// it supports.
func with(ctx context.Context, words, options []string, want [4]string, path string) error {
	for i, option := range options {
		if option != "" && want[i] != "" {
			words = append(words, option, want[i])
		}
	}
	_, err := run(ctx, append(words, path)...)
	return err
}
