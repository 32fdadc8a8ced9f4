package locale

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/textedit"
	"brine/internal/host"
	"brine/internal/host/filesys"
	"brine/internal/py/pyre"
)

// ErrUnknown means that no definition of a locale is installed.
var ErrUnknown = errors.New("no description of the locale is installed")

// NoToolError means that no program can install locales.
type NoToolError struct{}

func (NoToolError) Error() string {
	return `Command "locale-gen" or "localedef" was not found on this system.`
}

// Installed returns the names of all installed locales.
func Installed(ctx context.Context, m *host.Machine) ([]string, error) {
	out, err := m.Do(ctx, "locale", "-a")
	if err != nil {
		return nil, fmt.Errorf("cannot run locale: %w", err)
	}
	if out.Exit != 0 {
		return nil, fmt.Errorf("locale failed: %s", out.Message())
	}
	return strings.Split(out.Stdout, "\n"), nil
}

// Normal normalizes a locale for comparison: the territory in capitals, the
// character set without dashes, and without anything after a blank.
func Normal(name string) string {
	name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
	base, modifier, hasModifier := strings.Cut(name, "@")
	lang, charset, hasCharset := strings.Cut(base, ".")
	if language, territory, ok := strings.Cut(lang, "_"); ok {
		lang = language + "_" + strings.ToUpper(territory)
	}
	if hasCharset {
		lang += "." + strings.ReplaceAll(strings.ToLower(charset), "-", "")
	}
	if hasModifier {
		lang += "@" + modifier
	}
	return lang
}

// IsInstalled reports whether a locale is installed, in any spelling.
func IsInstalled(ctx context.Context, m *host.Machine, name string) (bool, error) {
	all, err := Installed(ctx, m)
	return slices.ContainsFunc(all, func(have string) bool { return Normal(have) == Normal(name) }), err
}

// files lists where the default locale is set: systemd's, Debian's and old Red Hat's file.
var files = []string{"/etc/locale.conf", "/etc/default/locale", "/etc/sysconfig/i18n"}

// Default returns the default locale of programs, or "".
func Default(m *host.Machine) string {
	for _, file := range files {
		for _, line := range m.Lines(file) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "LANG="); ok {
				return strings.Trim(v, `"'`)
			}
		}
	}
	return ""
}

// SetDefault sets the default locale of programs. ok is false if the program
// for it fails.
func SetDefault(ctx context.Context, m *host.Machine, name string) (ok bool, err error) {
	if name == "" || strings.ContainsAny(name, " \n\x00=") || name[0] == '-' {
		return false, invalid(name)
	}
	program, args := "localectl", []string{"set-locale", "LANG=" + name}
	if !m.IsDir("/run/systemd/system") {
		program, args = "update-locale", args[1:]
	}
	out, err := m.Do(ctx, program, args...)
	if err != nil {
		return false, fmt.Errorf("cannot run %s: %w", program, err)
	}
	return out.Exit == 0, nil
}

func invalid(name string) error { return host.Invalidf("'%s' is no name of a locale", name) }

// Wanted is a locale to install. OS and Family are the operating system, such as
// "Ubuntu" and "Debian".
type Wanted struct {
	Name       string
	OS, Family string
	Verbose    bool // let localedef report its progress
}

// localeName matches a language, a territory, a character set and a modifier.
var localeName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z]+)(_[A-Za-z]+)?(?:\.([A-Za-z0-9-]+))?(@[A-Za-z0-9]+)?(?: ([A-Za-z0-9-]+))?$`)
})

// Install installs a locale and returns the output of the program.
func Install(ctx context.Context, m *host.Machine, w Wanted) (host.Output, error) {
	parts := localeName().FindStringSubmatch(w.Name)
	if parts == nil {
		return host.Output{}, invalid(w.Name)
	}
	place, codeset, full := parts[1]+parts[2], parts[3], w.Name
	if parts[5] == "" && w.OS != "Ubuntu" && codeset != "" {
		full += " " + codeset
	}
	if !w.known(m, place, full) {
		return host.Output{}, ErrUnknown
	}
	if err := w.note(m, parts[1], full); err != nil {
		return host.Output{}, fmt.Errorf("cannot note the locale: %w", err)
	}
	program, args := "locale-gen", []string{full}
	switch {
	case m.Which(program) == "" && m.Which("localedef") == "":
		return host.Output{}, NoToolError{}
	case m.Which(program) == "":
		program, args = "localedef", []string{"--force", "-i", place, "-f", codeset, place + "." + codeset, "--quiet"}
		if w.Verbose {
			args[len(args)-1] = "--verbose"
		}
	case w.Family == "Gentoo":
		args = []string{"--generate", full}
	case w.OS == "Ubuntu":
		args = []string{Normal(full)}
	}
	out, err := m.Do(ctx, program, args...)
	if err != nil {
		return out, fmt.Errorf("cannot run %s: %w", program, err)
	}
	return out, nil
}

// known reports whether the machine can have a locale.
func (w Wanted) known(m *host.Machine, place, full string) bool {
	if w.OS == "Debian" || w.Family == "Gentoo" {
		return slices.Contains(m.Lines("/usr/share/i18n/SUPPORTED"), full)
	}
	dir := "/usr/share/i18n/locales"
	if w.Family == "Suse" {
		dir = "/usr/share/locale"
	}
	return slices.Contains(m.List(dir), place)
}

// note adds a locale to locale-gen's list, like a replacement with a pattern for whole lines: a
// formerly commented line is followed by an empty line. The old file is kept with the suffix bak.
func (w Wanted) note(m *host.Machine, language, full string) error {
	path, pattern, line := "/etc/locale.gen", `^\s*#\s*`+full+`\s*$`, full+"\n"
	if !m.Exists(path) {
		if w.OS != "Ubuntu" {
			return nil
		}
		path, pattern, line = "/var/lib/locales/supported.d/"+language, full, full
		if !m.Exists(path) {
			if err := m.WriteFile(path, nil); err != nil {
				return err
			}
		}
	}
	old, err := m.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := textedit.Replace(string(old), pattern, line, textedit.ReplaceOptions{Flags: pyre.MultiLine, Append: true})
	if err != nil || text == string(old) {
		return err
	}
	if err := filesys.Copy(m.Path(path), m.Path(path+".bak"), true); err != nil {
		return err
	}
	return m.WriteFile(path, []byte(text))
}
