package salt

import (
	"errors"
	"slices"
	"strings"

	"brine/internal/base/target"
	"brine/internal/call/output"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/keystore"
)

type targeting struct {
	Hosts      bool `flag:"-H --hosts" dest:"list_hosts" doc:"The target is a list of hosts of the roster (only for salt-ssh)."`
	PCRE       bool `flag:"-E --pcre" doc:"The target is a regular expression for minion ids."`
	List       bool `flag:"-L --list" doc:"The target is a list of minion ids separated by commas or spaces."`
	Grain      bool `flag:"-G --grain" doc:"The target is a grain and a glob for its value: 'os:Debian'."`
	GrainPCRE  bool `flag:"-P --grain-pcre" doc:"The target is a grain and a regular expression: 'os:(Debian|Ubuntu)'."`
	Nodegroup  bool `flag:"-N --nodegroup" doc:"The target is the name of a nodegroup of the master's configuration."`
	Range      bool `flag:"-R --range" doc:"The target is an expression for a range server."`
	Compound   bool `flag:"-C --compound" doc:"The target is a compound expression: 'G@os:Debian and web* or E@db.*'."`
	Pillar     bool `flag:"-I --pillar" dest:"pillar_target" doc:"The target is a pillar key and a glob for its value: 'role:production*'."`
	PillarPCRE bool `flag:"-J --pillar-pcre" doc:"The target is a pillar key and a regular expression."`
	IPCIDR     bool `flag:"-S --ipcidr" doc:"The target is an address or a network."`
}

// chosen returns the requested target types, each with its option.
func (t *targeting) chosen() (types, flags []string) {
	for _, c := range []struct {
		on        bool
		typ, flag string
	}{
		{t.Hosts, "list_hosts", "--hosts"}, {t.PCRE, "pcre", "--pcre"}, {t.List, "list", "--list"}, {t.Grain, "grain", "--grain"},
		{t.GrainPCRE, "grain_pcre", "--grain-pcre"}, {t.Nodegroup, "nodegroup", "--nodegroup"}, {t.Range, "range", "--range"},
		{t.Compound, "compound", "--compound"}, {t.Pillar, "pillar", "--pillar"}, {t.PillarPCRE, "pillar_pcre", "--pillar-pcre"},
		{t.IPCIDR, "ipcidr", "--ipcidr"},
	} {
		if c.on {
			types, flags = append(types, c.typ), append(flags, c.flag)
		}
	}
	return types, flags
}

// targetType returns the type of the target, "glob" by default.
func (t *targeting) targetType() string {
	if types, _ := t.chosen(); len(types) > 0 {
		return types[0]
	}
	return "glob"
}

// check returns an error message for invalid options, or "".
func (o *options) check() string {
	_, flags := o.chosen()
	switch {
	case len(flags) > 1:
		return "The options " + strings.Join(flags, "/") + " are mutually exclusive. Please only choose one of them"
	case o.Hosts:
		return "--hosts is for salt-ssh: name minions with -L, or a host without a minion with salt-ssh"
	case o.HideTimeout && o.ShowTimeout:
		return "The options --hide-timeout/--show-timeout are mutually exclusive. Please only choose one of them"
	}
	if _, ok := parseExpire(o.Expire); !ok && o.Expire != "" {
		return "--expire takes seconds, or a time such as 10m, 2h or 1d"
	}
	return ""
}

// parseTarget parses the target of the command line.
func parseTarget(typ, text string) any {
	if typ != "list" {
		return text
	}
	if strings.Contains(text, ",") {
		return value.Strings(strings.Split(strings.ReplaceAll(text, " ", ""), ","))
	}
	return value.Strings(strings.Fields(text))
}

// targeted returns the minions that the master would expect to match, from its data on disk.
func (p *program) targeted() ([]string, error) {
	groups := target.Nodegroups{}
	for k, v := range p.session.Settings.Client.Nodegroups.All() {
		groups[value.Str(k)] = v
	}
	m, err := groups.Parse(p.opts.targetType(), p.cmd.target, p.opts.Delimiter)
	if errors.As(err, new(*target.CircularError)) {
		return nil, err
	}
	if err != nil {
		p.session.Log.Debug("the target matches nothing", "err", err)
		return nil, nil
	}
	keys, err := keystore.Open(p.session.Conf.Files.PKIDir, p.session.Log.Logger)
	if err != nil {
		return nil, err
	}
	accepted, err := keys.Accepted()
	if err != nil {
		return nil, err
	}
	known := cache.New(p.session.Conf.Files.CacheDir, p.session.Conf.Cache, p.session.Log.Logger)
	minions, _ := m.Expected(accepted, func(id string) (grains, pillar *value.Dict) {
		d := known.MinionData(id)
		return d.Grains, d.Pillar
	})
	return minions, nil
}

func (p *program) preview() error {
	ids, err := p.targeted()
	if err != nil {
		return err
	}
	slices.Sort(ids)
	if err := p.session.Show.Show(value.Strings(ids), "", output.Call{}); err != nil {
		return err
	}
	if len(ids) == 0 {
		return exit{2, textNoReturn}
	}
	return nil
}
