package system

import (
	"context"
	"errors"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/locale"
	"brine/internal/py/value"
)

type locales struct{ m *host.Machine }

func init() { units.Register("locale", localeModule) }

func localeModule(m *host.Machine) fn.Module {
	l := locales{m}
	return fn.Module{Name: "locale", Doc: `The language of the machine.`, Funcs: []fn.Func{
		fn.Of("list_avail", l.listAvail, `Return the names of all installed locales.`, fn.Example("salt '*' locale.list_avail")),
		fn.Of("avail", l.avail, `Say whether a locale is installed.`, fn.Example("salt '*' locale.avail en_US.UTF-8")),
		fn.Of("get_locale", l.getLocale, `Return the locale that programs start with.`, fn.Example("salt '*' locale.get_locale")),
		fn.Of("set_locale", l.setLocale, `Set the locale that programs start with.`, fn.Example("salt '*' locale.set_locale en_US.UTF-8")),
		fn.Of("gen_locale", l.generate, `Install a locale.
			The keyword verbose returns what the program said.`, fn.Example("salt '*' locale.gen_locale 'en_IE.UTF-8 UTF-8'")),
	}}
}

func (l locales) listAvail(ctx context.Context, _ *fn.Call, _ none) ([]string, error) {
	all, err := locale.Installed(ctx, l.m)
	return all, fn.FromHost(err)
}

type localeArgs struct {
	Locale string `salt:"locale" doc:"name of the locale"`
}

func (l locales) avail(ctx context.Context, _ *fn.Call, a localeArgs) (bool, error) {
	is, err := locale.IsInstalled(ctx, l.m, a.Locale)
	return is, fn.FromHost(err)
}

func (l locales) getLocale(context.Context, *fn.Call, none) (string, error) {
	return locale.Default(l.m), nil
}

func (l locales) setLocale(ctx context.Context, _ *fn.Call, a localeArgs) (bool, error) {
	ok, err := locale.SetDefault(ctx, l.m, a.Locale)
	return ok, fn.FromHost(err)
}

type generateArgs struct {
	Locale string    `salt:"locale" doc:"name of the locale, and its character set after a blank"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (l locales) generate(ctx context.Context, c *fn.Call, a generateArgs) (any, error) {
	verbose := a.Kwargs.Bool("verbose")
	out, err := locale.Install(ctx, l.m, locale.Wanted{Name: a.Locale, OS: value.Str(c.Grains.Get("os")), Family: value.Str(c.Grains.Get("os_family")),
		Verbose: verbose})
	switch {
	case errors.Is(err, locale.ErrUnknown):
		c.Log.Error("no such locale", "locale", a.Locale)
		return false, nil
	case err != nil:
		return nil, fn.FromHost(err)
	case out.Exit != 0:
		c.Log.Error("cannot install locale", "locale", a.Locale, "stderr", out.Stderr)
	}
	if verbose {
		c.SetRetcode(out.Exit)
		return value.DictOf("retcode", int64(out.Exit), "stdout", out.Stdout, "stderr", out.Stderr), nil
	}
	return out.Exit == 0, nil
}
