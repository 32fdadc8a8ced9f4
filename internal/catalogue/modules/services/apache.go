package services

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/apache"
	"brine/internal/host"
	"brine/internal/py/value"
)

func init() { units.Register("apache", apacheModule) }

func apacheModule(m *host.Machine) fn.Module {
	when := func(grains fn.Reader) (string, bool) {
		if grains.Get("os_family") != "Debian" || m.Which("apache2ctl") == "" {
			return "apache execution module not loaded: apache not installed.", false
		}
		return "", true
	}
	site, mod, conf := apache.Parts(m)
	return fn.Module{Name: "apache", When: when, Doc: `Sites, modules and settings of Debian's Apache, by a2ensite(8) and its like.`, Funcs: []fn.Func{
		fn.Of("check_site_enabled", func(_ context.Context, _ *fn.Call, a siteArgs) (bool, error) { return site.Enabled(a.Site), nil },
			`Say whether a site is enabled.`, fn.Example("salt '*' apache.check_site_enabled example.com.conf")),
		fn.Of("a2ensite", func(ctx context.Context, _ *fn.Call, a siteArgs) (*value.Dict, error) {
			return site.Set(ctx, a.Site, true)
		},
			`Enable a site.`, fn.Example("salt '*' apache.a2ensite example.com")),
		fn.Of("a2dissite", func(ctx context.Context, _ *fn.Call, a siteArgs) (*value.Dict, error) {
			return site.Set(ctx, a.Site, false)
		},
			`Disable a site.`, fn.Example("salt '*' apache.a2dissite example.com")),
		fn.Of("check_mod_enabled", func(_ context.Context, _ *fn.Call, a modArgs) (bool, error) { return mod.Enabled(a.Mod), nil },
			`Say whether a module is enabled.`, fn.Example("salt '*' apache.check_mod_enabled status")),
		fn.Of("a2enmod", func(ctx context.Context, _ *fn.Call, a modArgs) (*value.Dict, error) {
			return mod.Set(ctx, a.Mod, true)
		},
			`Enable a module.`, fn.Example("salt '*' apache.a2enmod vhost_alias")),
		fn.Of("a2dismod", func(ctx context.Context, _ *fn.Call, a modArgs) (*value.Dict, error) {
			return mod.Set(ctx, a.Mod, false)
		},
			`Disable a module.`, fn.Example("salt '*' apache.a2dismod vhost_alias")),
		fn.Of("check_conf_enabled", func(_ context.Context, _ *fn.Call, a confArgs) (bool, error) { return conf.Enabled(a.Conf), nil },
			`Say whether a file of settings is enabled.`, fn.Example("salt '*' apache.check_conf_enabled security.conf")),
		fn.Of("a2enconf", func(ctx context.Context, _ *fn.Call, a confArgs) (*value.Dict, error) {
			return conf.Set(ctx, a.Conf, true)
		},
			`Enable a file of settings.`, fn.Example("salt '*' apache.a2enconf security")),
		fn.Of("a2disconf", func(ctx context.Context, _ *fn.Call, a confArgs) (*value.Dict, error) {
			return conf.Set(ctx, a.Conf, false)
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
