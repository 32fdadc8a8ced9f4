package files

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"

	"brine/internal/fn"
	"brine/internal/host/proc"
	"brine/internal/value"
)

// marks are what a file has beside owner and mode: attributes as chattr(1)
// sets them, and the SELinux context.
type marks struct {
	// attrs are letters; nil leaves what is there.
	attrs *string
	// context are the wanted user, role, type and range; "" is any.
	context [4]string
}

// parts are the names of the parts of a context: as arguments, in a forecast
// and in what was done.
var parts = [4][3]string{{"seuser", "user", "User: "}, {"serole", "role", "Role: "}, {"setype", "type", "Type: "}, {"serange", "range", "Range: "}}

// marks reads the arguments attrs and selinux.
func (a *managedArgs) marks() marks {
	m := marks{attrs: a.Attrs}
	for i, p := range parts {
		if v := a.Selinux.At(p[0]); value.Truth(v) {
			m.context[i] = value.Str(v)
		}
	}
	return m
}

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

// attributes returns the attributes that chattr(1) could change. ok is false
// on a machine or file system without any.
func attributes(ctx context.Context, path string) (letters string, ok bool) {
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
// is set for good, stays.
func (m marks) change(old string) (add, remove string) {
	for _, r := range *m.attrs {
		if !strings.ContainsRune(old, r) && !strings.ContainsRune(add, r) {
			add += string(r)
		}
	}
	for _, r := range old {
		if r != 'e' && !strings.ContainsRune(*m.attrs, r) {
			remove += string(r)
		}
	}
	return add, remove
}

// selinux returns the context of a file.
func selinux(ctx context.Context, path string) (now [4]string, err error) {
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

// differs reports what is not as declared.
func (m marks) differs(ctx context.Context, path string) (*value.Dict, error) {
	d := value.NewDict(2)
	if m.attrs != nil {
		if old, ok := attributes(ctx, path); ok {
			if add, remove := m.change(old); add != "" || remove != "" {
				d.Set("attrs", *m.attrs)
			}
		}
	}
	if m.context == [4]string{} {
		return d, nil
	}
	now, err := selinux(ctx, path)
	if err != nil {
		return nil, err
	}
	for i, want := range m.context {
		if want != "" && want != now[i] {
			d.Set("selinux", value.DictOf(parts[i][1], want))
		}
	}
	return d, nil
}

// apply makes the file as declared, and returns what has changed.
func (m marks) apply(ctx context.Context, path string) (*value.Dict, error) {
	d := value.NewDict(2)
	if m.attrs != nil {
		if err := m.applyAttributes(ctx, path, d); err != nil {
			return d, err
		}
	}
	if m.context == [4]string{} {
		return d, nil
	}
	now, err := selinux(ctx, path)
	if err != nil {
		return d, err
	}
	want, was, will := [4]string{}, "", ""
	for i, w := range m.context {
		if w != "" && w != now[i] {
			want[i] = w
			was += parts[i][2] + now[i] + " "
			will += parts[i][2] + w + " "
		}
	}
	if was == "" {
		return d, nil
	}
	if want[2] == "" {
		want[2] = now[2] // semanage(8) needs the type
	}
	if err := label(ctx, path, want); err != nil {
		return d, err
	}
	d.Set("selinux", value.DictOf("Old", strings.TrimSpace(was), "New", strings.TrimSpace(will)))
	return d, nil
}

func (m marks) applyAttributes(ctx context.Context, path string, d *value.Dict) error {
	old, ok := attributes(ctx, path)
	if !ok {
		return nil
	}
	add, remove := m.change(old)
	for _, s := range []string{"+" + add, "-" + remove} {
		if len(s) > 1 {
			if _, err := run(ctx, "chattr", s, "--", path); err != nil {
				return fn.Errorf("Failed to change attributes to %s: %w", *m.attrs, err)
			}
		}
	}
	if add+remove == "" {
		return nil
	}
	if now, _ := attributes(ctx, path); !slices.Equal(letters(now), letters(old)) {
		d.Set("attrs", value.DictOf("old", old, "new", *m.attrs))
	}
	return nil
}

func letters(s string) []rune { return slices.Sorted(slices.Values([]rune(s))) }

// label gives a file a context for good: in the policy, and now.
func label(ctx context.Context, path string, want [4]string) error {
	words := []string{"semanage", "fcontext", "--add"}
	for i, option := range []string{"--seuser", "", "--type", "--range"} {
		if option != "" && want[i] != "" {
			words = append(words, option, want[i])
		}
	}
	if _, err := run(ctx, append(words, path)...); err != nil {
		return fn.Errorf("Problem setting fcontext: %w", err)
	}
	words = []string{"chcon"}
	for i, option := range []string{"-u", "-r", "-t", "-l"} {
		if want[i] != "" {
			words = append(words, option, want[i])
		}
	}
	if _, err := run(ctx, append(words, path)...); err != nil {
		return fn.Errorf("Failed to set selinux attributes: %w", err)
	}
	return nil
}
