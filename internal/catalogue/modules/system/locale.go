package system

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/filesys"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

type locale struct{ m *host.Machine }

func localeModule(m *host.Machine) fn.Module {
	l := locale{m}
	return fn.Module{Name: "locale", Doc: `The language of the machine.`, Funcs: []fn.Func{
		fn.Of("list_avail", l.listAvail, `Return the names of all installed locales.`, fn.Example("salt '*' locale.list_avail")),
		fn.Of("avail", l.avail, `Say whether a locale is installed.`, fn.Example("salt '*' locale.avail en_US.UTF-8")),
		fn.Of("get_locale", l.getLocale, `Return the locale that programs start with.`, fn.Example("salt '*' locale.get_locale")),
		fn.Of("set_locale", l.setLocale, `Set the locale that programs start with.`, fn.Example("salt '*' locale.set_locale en_US.UTF-8")),
		fn.Of("gen_locale", l.generate, `Install a locale.
			The keyword verbose returns what the program said.`, fn.Example("salt '*' locale.gen_locale 'en_IE.UTF-8 UTF-8'")),
	}}
}

func (l locale) listAvail(ctx context.Context, _ *fn.Call, _ none) ([]string, error) {
	out, err := run(ctx, l.m, "locale", "-a")
	return strings.Split(out, "\n"), err
}

// normal spells a locale as they are compared: the territory in capitals, the
// character set without dashes, and what follows a blank left out.
func normal(name string) string {
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

type localeArgs struct {
	Locale string `salt:"locale" doc:"name of the locale"`
}

func (l locale) avail(ctx context.Context, c *fn.Call, a localeArgs) (bool, error) {
	all, err := l.listAvail(ctx, c, none{})
	for _, name := range all {
		if normal(name) == normal(a.Locale) {
			return true, err
		}
	}
	return false, err
}

// files hold the locale: systemd's, Debian's and old Red Hat's.
var files = []string{"/etc/locale.conf", "/etc/default/locale", "/etc/sysconfig/i18n"}

func (l locale) getLocale(context.Context, *fn.Call, none) (string, error) {
	for _, file := range files {
		for _, line := range l.m.Lines(file) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "LANG="); ok {
				return strings.Trim(v, `"'`), nil
			}
		}
	}
	return "", nil
}

func (l locale) setLocale(ctx context.Context, _ *fn.Call, a localeArgs) (bool, error) {
	if a.Locale == "" || strings.ContainsAny(a.Locale, " \n\x00=") || a.Locale[0] == '-' {
		return false, fn.Invalidf("%s is no name of a locale", value.Repr(a.Locale))
	}
	program, args := "localectl", []string{"set-locale", "LANG=" + a.Locale}
	if !l.m.IsDir("/run/systemd/system") {
		program, args = "update-locale", args[1:]
	}
	out, err := l.m.Do(ctx, program, args...)
	if err != nil {
		return false, fn.Errorf("cannot run %s: %w", program, err)
	}
	return out.Exit == 0, nil
}

type generateArgs struct {
	Locale string    `salt:"locale" doc:"name of the locale, and its character set after a blank"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// localeName is a language, a territory, a character set and a modifier.
var localeName = regexp.MustCompile(`^([a-z]+)(_[A-Za-z]+)?(?:\.([A-Za-z0-9-]+))?(@[A-Za-z0-9]+)?(?: ([A-Za-z0-9-]+))?$`)

func (l locale) generate(ctx context.Context, c *fn.Call, a generateArgs) (any, error) {
	m := localeName.FindStringSubmatch(a.Locale)
	if m == nil {
		return nil, fn.Invalidf("%s is no name of a locale", value.Repr(a.Locale))
	}
	place, codeset, full := m[1]+m[2], m[3], a.Locale
	os, family := value.Str(c.Grains.Get("os")), value.Str(c.Grains.Get("os_family"))
	if m[5] == "" && os != "Ubuntu" && codeset != "" {
		full += " " + codeset
	}
	if !l.known(os, family, place, full) {
		c.Log.Error("there is no such locale", "locale", full)
		return false, nil
	}
	if err := l.note(os, m[1], full); err != nil {
		return nil, fn.Errorf("cannot note the locale: %w", err)
	}
	program, args := "locale-gen", []string{full}
	switch {
	case l.m.Which(program) == "" && l.m.Which("localedef") == "":
		return nil, fn.Errorf(`Command "locale-gen" or "localedef" was not found on this system.`)
	case l.m.Which(program) == "":
		program, args = "localedef", []string{"--force", "-i", place, "-f", codeset, place + "." + codeset, "--quiet"}
		if a.Kwargs.Bool("verbose") {
			args[len(args)-1] = "--verbose"
		}
	case family == "Gentoo":
		args = []string{"--generate", full}
	case os == "Ubuntu":
		args = []string{normal(full)}
	}
	out, err := l.m.Do(ctx, program, args...)
	if err != nil {
		return nil, fn.Errorf("cannot run %s: %w", program, err)
	}
	if out.Exit != 0 {
		c.Log.Error("the locale was not installed", "program", program, "stderr", out.Stderr)
	}
	if a.Kwargs.Bool("verbose") {
		c.SetRetcode(out.Exit)
		return value.DictOf("retcode", int64(out.Exit), "stdout", out.Stdout, "stderr", out.Stderr), nil
	}
	return out.Exit == 0, nil
}

// known says whether the machine could have a locale.
func (l locale) known(os, family, place, full string) bool {
	if os == "Debian" || family == "Gentoo" {
		return slices.Contains(l.m.Lines("/usr/share/i18n/SUPPORTED"), full)
	}
	dir := "/usr/share/i18n/locales"
	if family == "Suse" {
		dir = "/usr/share/locale"
	}
	return slices.Contains(l.m.List(dir), place)
}

// note writes a locale where locale-gen looks for those to make, to the same
// bytes as Salt's file.replace: where the line was commented, an empty line
// follows. What was there is kept beside it, with the ending bak.
func (l locale) note(os, language, full string) error {
	path, pattern, line := "/etc/locale.gen", `^\s*#\s*`+full+`\s*$`, full+"\n"
	if !l.m.Exists(path) {
		if os != "Ubuntu" {
			return nil
		}
		path, pattern, line = "/var/lib/locales/supported.d/"+language, full, full
		if !l.m.Exists(path) {
			if err := l.m.WriteFile(path, nil); err != nil {
				return err
			}
		}
	}
	old, err := l.m.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := textedit.Replace(string(old), pattern, line, textedit.ReplaceOptions{Flags: pyre.MultiLine, Append: true})
	if err != nil || text == string(old) {
		return err
	}
	if err := filesys.Copy(l.m.Path(path), l.m.Path(path+".bak"), true); err != nil {
		return err
	}
	return l.m.WriteFile(path, []byte(text))
}
