package salt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/base/target"
	"brine/internal/base/textedit"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
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
	case o.SiteSummary && (o.Batch != "" || o.Subset > 0 || o.Static || o.Doc):
		return "--site-summary has no effect with --batch-size, --subset, --static and --doc: leave one of them out"
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

// parsed parses the target of the command line.
func (p *program) parsed() (target.Matcher, error) {
	groups := target.Nodegroups{}
	for k, v := range p.session.Settings.Client.Nodegroups.All() {
		groups[value.Str(k)] = v
	}
	return groups.Parse(p.opts.targetType(), p.cmd.target, p.opts.Delimiter)
}

// malformed returns an error if an expression cannot be parsed. For other types, and for an
// undefined nodegroup, Salt's own messages and exit codes apply.
func malformed(p *program) error {
	typ := p.opts.targetType()
	if !slices.Contains([]string{"compound", "pcre", "ipcidr"}, typ) {
		return nil
	}
	_, err := p.parsed()
	if expr, ok := p.cmd.target.(string); ok && err == nil && typ == "compound" {
		err = target.CheckParentheses(expr)
	}
	if err != nil && !errors.As(err, new(*target.CircularError)) && !errors.As(err, new(*target.UnknownGroupError)) {
		return exit{frame.ExitNoReturn, fmt.Sprintf("ERROR: the target %s of type %s is malformed: %v. No command was sent", value.Str(p.cmd.target), typ, err)}
	}
	return nil
}

// pendingHint reports pending keys that the target would match, or that no key is accepted at all.
// It is "" otherwise, or if this user may not read the keys.
func pendingHint(p *program) string {
	m, err := p.parsed()
	if err != nil {
		return ""
	}
	keys, err := keystore.Open(p.session.Conf.Files.PKIDir, p.session.Log.Logger)
	if err != nil {
		return ""
	}
	all, err := keys.List()
	if err != nil {
		return ""
	}
	if id, ok := p.cmd.target.(string); ok {
		for _, refused := range []struct {
			state      keystore.State
			word, flag string
		}{{keystore.Rejected, "rejected", "--include-rejected"}, {keystore.Denied, "denied", "--include-denied"}} {
			if slices.Contains(all[refused.state], id) {
				return fmt.Sprintf("The key of %s is %s. Accept it with: salt-key -a %s %s", id, refused.word, shellWord(id), refused.flag)
			}
		}
	}
	pending := all[keystore.Pending]
	if len(pending) == 0 {
		if near := nearIDs(p, all[keystore.Accepted]); near != "" {
			return near
		}
		if len(all[keystore.Accepted]) == 0 {
			return "This master has no key of a minion. A minion sends its key when it starts with this master's name in its option master."
		}
		return ""
	}
	if id, ok := p.cmd.target.(string); !ok || !slices.Contains(pending, id) {
		if near := nearIDs(p, all[keystore.Accepted]); near != "" {
			return near
		}
	}
	matching, _ := m.Expected(pending, func(string) (grains, pillar *value.Dict) { return nil, nil })
	if len(matching) == 0 {
		return ""
	}
	slices.Sort(matching)
	if len(matching) > maxHinted {
		return fmt.Sprintf("%d keys of minions are pending that this target may match: list them with salt-key -L, and accept a key with salt-key -a ID.",
			len(matching))
	}
	for i, id := range matching {
		matching[i] = "salt-key -a " + shellWord(id)
	}
	return "The keys of minions are pending that this target may match. Accept them with: " + strings.Join(matching, "; ")
}

// nearIDs suggests accepted minions with ids similar to the target.
func nearIDs(p *program, accepted []string) string {
	id, ok := p.cmd.target.(string)
	if !ok || p.opts.targetType() != "glob" || strings.ContainsAny(id, "*?[") {
		return ""
	}
	if near := textedit.Nearest(id, accepted); len(near) > 0 {
		return "There is no minion " + id + ". Did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// withoutKey says what to do about an id of a list without an accepted key: to accept it, or to write
// another id. It is "" for others, and if this user may not read the keys.
func withoutKey(p *program, id string) string {
	if p.opts.targetType() != "list" {
		return ""
	}
	if p.keys == nil {
		p.keys = map[keystore.State][]string{}
		if keys, err := keystore.Open(p.session.Conf.Files.PKIDir, p.session.Log.Logger); err == nil {
			if all, err := keys.List(); err == nil {
				p.keys = all
			}
		}
	}
	accepted := p.keys[keystore.Accepted]
	switch near := textedit.Nearest(id, accepted); {
	case len(accepted) == 0 || slices.Contains(accepted, id):
		return ""
	case slices.Contains(p.keys[keystore.Pending], id):
		return "The key is pending. Accept it with: salt-key -a " + shellWord(id)
	case len(near) > 0:
		return "There is no minion " + id + ". Did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// maxHinted bounds the number of commands in a hint.
const maxHinted = 3

// shellWord quotes an id for a shell if necessary.
func shellWord(id string) string {
	if strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) {
		return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
	}
	return id
}

// targeted returns the minions that the master expects to match, from its data on disk.
func (p *program) targeted() ([]string, error) {
	m, err := p.parsed()
	if errors.As(err, new(*target.CircularError)) {
		return nil, err
	}
	if err != nil {
		p.session.Log.Debug("target matches no minion", "err", err)
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
