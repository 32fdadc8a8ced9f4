package services

import (
	"context"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

type apache struct{ m *host.Machine }

func init() { units.Register("apache", apacheModule) }

func apacheModule(m *host.Machine) fn.Module {
	x := apache{m}
	when := func(grains fn.Reader) (string, bool) {
		if grains.Get("os_family") != "Debian" || m.Which("apache2ctl") == "" {
			return "apache execution module not loaded: apache not installed.", false
		}
		return "", true
	}
	site, mod, conf := part{x, "Site", "site"}, part{x, "Mod", "mod"}, part{x, "Conf", "conf"}
	return fn.Module{Name: "apache", When: when, Doc: `Sites, modules and settings of Debian's Apache, by a2ensite(8) and its like.`, Funcs: []fn.Func{
		fn.Of("check_site_enabled", x.siteEnabled, `Say whether a site is enabled.`, fn.Example("salt '*' apache.check_site_enabled example.com.conf")),
		fn.Of("a2ensite", func(ctx context.Context, _ *fn.Call, a siteArgs) (*value.Dict, error) {
			return site.set(ctx, a.Site, "en")
		},
			`Enable a site.`, fn.Example("salt '*' apache.a2ensite example.com")),
		fn.Of("a2dissite", func(ctx context.Context, _ *fn.Call, a siteArgs) (*value.Dict, error) {
			return site.set(ctx, a.Site, "dis")
		},
			`Disable a site.`, fn.Example("salt '*' apache.a2dissite example.com")),
		fn.Of("check_mod_enabled", x.modEnabled, `Say whether a module is enabled.`, fn.Example("salt '*' apache.check_mod_enabled status")),
		fn.Of("a2enmod", func(ctx context.Context, _ *fn.Call, a modArgs) (*value.Dict, error) {
			return mod.set(ctx, a.Mod, "en")
		},
			`Enable a module.`, fn.Example("salt '*' apache.a2enmod vhost_alias")),
		fn.Of("a2dismod", func(ctx context.Context, _ *fn.Call, a modArgs) (*value.Dict, error) {
			return mod.set(ctx, a.Mod, "dis")
		},
			`Disable a module.`, fn.Example("salt '*' apache.a2dismod vhost_alias")),
		fn.Of("check_conf_enabled", x.confEnabled, `Say whether a file of settings is enabled.`, fn.Example("salt '*' apache.check_conf_enabled security.conf")),
		fn.Of("a2enconf", func(ctx context.Context, _ *fn.Call, a confArgs) (*value.Dict, error) {
			return conf.set(ctx, a.Conf, "en")
		},
			`Enable a file of settings.`, fn.Example("salt '*' apache.a2enconf security")),
		fn.Of("a2disconf", func(ctx context.Context, _ *fn.Call, a confArgs) (*value.Dict, error) {
			return conf.set(ctx, a.Conf, "dis")
		},
			`Disable a file of settings.`, fn.Example("salt '*' apache.a2disconf security")),
	}}
}

type (
	siteArgs struct {
		Site string `salt:"site" doc:"name of the site, with .conf or without"`
	}
	modArgs struct {
		Mod string `salt:"mod" doc:"name of the module"`
	}
	confArgs struct {
		Conf string `salt:"conf" doc:"name of the file, with .conf or without"`
	}
)

// link reports whether a name below /etc/apache2 is a link: that is what being
// enabled means.
func (x apache) link(name string) bool {
	st, err := os.Lstat(x.m.Path("/etc/apache2/" + name))
	return err == nil && st.Mode()&os.ModeSymlink != 0
}

// withConf is a name with the ending of its file.
func withConf(name string) string { return strings.TrimSuffix(name, ".conf") + ".conf" }

func (x apache) siteEnabled(_ context.Context, _ *fn.Call, a siteArgs) (bool, error) {
	return x.link("sites-enabled/"+withConf(a.Site)) || a.Site == "default" && x.link("sites-enabled/000-default.conf"), nil
}

func (x apache) modEnabled(_ context.Context, _ *fn.Call, a modArgs) (bool, error) {
	if !strings.HasSuffix(a.Mod, ".load") && !strings.HasSuffix(a.Mod, ".conf") {
		a.Mod += ".load"
	}
	return x.link("mods-enabled/" + a.Mod), nil
}

func (x apache) confEnabled(_ context.Context, _ *fn.Call, a confArgs) (bool, error) {
	return x.link("conf-enabled/" + withConf(a.Conf)), nil
}

// part is a kind of what can be enabled: as titles name it and as programs do.
type part struct {
	apache
	title, word string
}

// set enables (en) or disables (dis), and tells how that went in Salt's words.
func (p part) set(ctx context.Context, name, verb string) (*value.Dict, error) {
	program := "a2" + verb + p.word
	out, err := p.m.Command(ctx, host.Cmd{Program: program, Args: []string{name}})
	if err != nil {
		return nil, fn.Errorf("cannot run %s: %w", program, err)
	}
	d := value.DictOf("Name", "Apache2 "+strings.ToUpper(verb[:1])+verb[1:]+"able "+p.title, p.title, name, "Status", any(int64(out.Exit)))
	switch {
	case out.Exit == 0:
		d.Set("Status", p.title+" "+name+" "+verb+"abled")
	case out.Exit == 1 && verb == "en":
		d.Set("Status", p.title+" "+name+" Not found")
	}
	return d, nil
}
