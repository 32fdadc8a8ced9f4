package system

import (
	"context"
	"strings"

	"brine/internal/fn"
	"brine/internal/host"
	"brine/internal/value"
)

type locale struct{ m *host.Machine }

func localeModule(m *host.Machine) fn.Module {
	l := locale{m}
	return fn.Module{Name: "locale", When: fn.Linux, Doc: `The language of the machine.`, Funcs: []fn.Func{
		fn.Of("list_avail", l.listAvail, `Return the names of all installed locales.`, fn.Example("salt '*' locale.list_avail")),
		fn.Of("avail", l.avail, `Say whether a locale is installed.`, fn.Example("salt '*' locale.avail en_US.UTF-8")),
		fn.Of("get_locale", l.getLocale, `Return the locale that programs start with.`, fn.Example("salt '*' locale.get_locale")),
		fn.Of("set_locale", l.setLocale, `Set the locale that programs start with.`, fn.Example("salt '*' locale.set_locale en_US.UTF-8")),
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
