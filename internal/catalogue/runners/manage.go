package runners

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// Minions reports which minions are connected.
type Minions interface {
	// Connected returns the connected minions. The caller must not change the map.
	Connected() map[string]bool
	// Holders returns, in a cluster, the masters to which each minion is connected; nil for a standalone
	// master.
	Holders() map[string][]string
	// Standings returns what these minions have reported about their masters, to any master of a cluster.
	// Minions without a report are missing.
	Standings(ctx context.Context, ids []string) map[string]Standing
}

type manage struct {
	selection
	Minions
	commander Commander
	bus       Firer
	clustered bool
	pkiDir    string
	sites     Federation // nil unless this master commands sites
}

func init() { runners.Register("manage", manageModule) }

func manageModule(d Deps) fn.Module {
	m := manage{d.selection(), d.Minions, d.Client, d.Bus, d.Cluster != nil, d.PKIDir, d.Jobs.Sites}
	mod := fn.Module{Name: "manage", Doc: `Status of minions.`, Funcs: []fn.Func{
		fn.Of("status", m.status, `Ping minions and return which are up and which are down, and which of the latter are commanded by another master.
On a master that commands sites (federation_hub), "sites" has the minions of each site, and minions of sites that are not connected are down.`,
			fn.Params("output", "tgt", "tgt_type", "timeout", "gather_job_timeout"),
			fn.Example("salt-run manage.status"), fn.Example("salt-run manage.status tgt=webservers tgt_type=nodegroup"),
			fn.Example("salt-run manage.status timeout=5 gather_job_timeout=10")),
		fn.Of("up", m.up, `Ping minions and return those that are up.`, fn.Params("tgt", "tgt_type", "timeout", "gather_job_timeout"),
			fn.Example("salt-run manage.up")),
		fn.Of("down", m.down, `Ping minions and return those that are down.`, fn.Params("removekeys", "tgt", "tgt_type", "timeout", "gather_job_timeout"),
			fn.Example("salt-run manage.down"), fn.Example("salt-run manage.down removekeys=True")),
		fn.Of("masters", m.masters, `Return, as reported by minions, which masters command each minion, since when, which are standby, and the last change.
Nothing is sent to minions. Stock minions report nothing; only their connection to this master is known.`,
			fn.Example("salt-run manage.masters"), fn.Example("salt-run manage.masters tgt='web*'"), fn.Example("salt-run manage.masters table=True")),
		fn.Of("key_regen", m.keyRegen,
			`Make all minions create new keys, and delete all keys of this master, including its own. The master must be restarted within 60 seconds.`,
			fn.Example("salt-run manage.key_regen")),
		fn.Of("versions", m.versions, `Ask minions for their version and compare it with the master's.
			A Brine minion or master has the version of Brine behind that of Salt: 3007.10 (Brine 0.1.0).`, fn.Example("salt-run manage.versions")),
	}}
	for _, name := range []string{"list_state", "present", "joined", "allowed", "alived", "reaped"} {
		mod.Funcs = append(mod.Funcs, fn.Of(name, m.present, `Return the minions that are connected. Nothing is sent to them.`,
			fn.Example("salt-run manage."+name)))
	}
	for _, name := range []string{"list_not_state", "not_present", "not_joined", "not_allowed", "not_alived", "not_reaped"} {
		mod.Funcs = append(mod.Funcs, fn.Of(name, m.notPresent, `Return the accepted minions that are not connected. Nothing is sent to them.`,
			fn.Ignored("the address of a minion that is not connected is unknown", "show_ip"), fn.Example("salt-run manage."+name)))
	}
	return mod
}

type statusArgs struct {
	Output bool `salt:"output" ignored:"salt-run shows the result" default:"true"`
	Remove bool `salt:"removekeys" doc:"delete the keys of the minions that are down" default:"false"`
	targetArgs
	Timeout time.Duration `salt:"timeout" doc:"timeout in seconds for minions; 0: as configured" default:"0"`
	Gather  time.Duration `salt:"gather_job_timeout" doc:"timeout in seconds for the question whether a job still runs; 0: as configured" default:"0"`
}

// ping returns the minions that answered and those that did not, sorted.
func (m manage) ping(ctx context.Context, a statusArgs) (up, down []string, err error) {
	_, results, err := m.commander.Call(ctx, client.Job{
		Target: a.Tgt, Type: a.TgtType, Fun: "test.ping", Timeout: a.Timeout, GatherTimeout: a.Gather,
	})
	if errors.Is(err, client.ErrNoMatch) {
		return nil, nil, nil
	}
	for _, r := range results {
		switch {
		case !r.Absent:
			up = append(up, r.ID)
		case !r.Unknown:
			down = append(down, r.ID)
		}
	}
	down = append(down, m.silent(a.targetArgs, up, down)...)
	slices.Sort(up)
	slices.Sort(down)
	return up, down, err
}

// named is a minion of which only the id is known.
type named string

func (n named) ID() string        { return string(n) }
func (named) Grains() *value.Dict { return nil }
func (named) Pillar() *value.Dict { return nil }

// silent returns the minions of sites that a target means and that have not been asked, because their
// site is not connected. Only globs and lists are resolved here.
func (m manage) silent(a targetArgs, up, down []string) (out []string) {
	if m.sites == nil || a.TgtType != "glob" && a.TgtType != "list" {
		return nil
	}
	means, err := target.Parse(a.TgtType, a.Tgt, "")
	if err != nil {
		return nil
	}
	for _, ids := range m.sites.Minions() {
		for _, id := range ids {
			if means.Match(named(id)) && !slices.Contains(up, id) && !slices.Contains(down, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// bySite returns the minions of each site that are up and down.
func (m manage) bySite(up, down []string) *value.Dict {
	of := map[string]string{}
	all := m.sites.Minions()
	out := value.NewDict(len(all))
	for _, site := range sortedIDs(all) {
		for _, id := range all[site] {
			of[id] = site
		}
		out.Set(site, value.DictOf("up", &value.List{}, "down", &value.List{}))
	}
	for key, ids := range map[string][]string{"up": up, "down": down} {
		for _, id := range ids {
			site := of[id]
			if site == "" {
				site = id[strings.LastIndexByte(id, '@')+1:] // an id that several sites have
			}
			if d, ok := out.At(site).(*value.Dict); ok {
				d.At(key).(*value.List).Append(id)
			}
		}
	}
	return out
}

func (m manage) status(ctx context.Context, _ *fn.Call, a statusArgs) (*value.Dict, error) {
	up, down, err := m.ping(ctx, a)
	if err != nil {
		return nil, err
	}
	ret := value.DictOf("up", value.Strings(up), "down", value.Strings(down))
	// Add the key only if there is such a minion: programs read the two lists.
	elsewhere := value.NewDict(0)
	standings := m.Standings(ctx, down)
	for _, id := range down {
		s := standings[id]
		if master, since, ok := s.Elsewhere(); ok {
			elsewhere.Set(id, value.DictOf("master", master, "since", stamp(since)))
		}
	}
	if elsewhere.Len() > 0 {
		ret.Set("elsewhere", elsewhere)
	}
	if m.sites != nil {
		ret.Set("sites", m.bySite(up, down))
	}
	return ret, nil
}

func (m manage) up(ctx context.Context, _ *fn.Call, a statusArgs) (*value.List, error) {
	up, _, err := m.ping(ctx, a)
	return value.Strings(up), err
}

func (m manage) down(ctx context.Context, _ *fn.Call, a statusArgs) (*value.List, error) {
	_, down, err := m.ping(ctx, a)
	if err != nil {
		return nil, err
	}
	if a.Remove {
		for _, id := range down {
			if err := m.keys.Delete(keystore.Accepted, id); err != nil && salt.KindOf(err) != salt.NotFound {
				return nil, err
			}
			if err := m.bus.Fire(salt.Tag("key"), value.DictOf("result", true, "act", "delete", "id", id)); err != nil {
				return nil, err
			}
		}
	}
	return value.Strings(down), nil
}

type presentArgs struct {
	Subset any  `salt:"subset" doc:"ids to examine; null: all" default:"null"`
	ShowIP bool `salt:"show_ip" doc:"return a map with an address of each" default:"false"`
}

func (a presentArgs) has(id string) bool {
	l, ok := a.Subset.(*value.List)
	if !ok {
		return a.Subset == nil || slices.Contains(strings.Split(value.Str(a.Subset), ","), id)
	}
	return slices.Contains(l.Items, any(id))
}

func (m manage) present(_ context.Context, _ *fn.Call, a presentArgs) (any, error) {
	var ids []string
	for id, there := range m.Connected() {
		if there && a.has(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if !a.ShowIP {
		return value.Strings(ids), nil
	}
	d := value.NewDict(len(ids))
	for _, id := range ids {
		d.Set(id, m.address(id))
	}
	return d, nil
}

// address returns a remotely reachable address of a minion, if one is known.
func (m manage) address(id string) string {
	grains := m.cache.MinionData(id).Grains
	found := ""
	for _, key := range []string{"ipv4", "ipv6"} {
		for _, v := range grains.List(key) {
			a := value.Str(v)
			if found == "" {
				found = a
			}
			if a != "127.0.0.1" && a != "::1" {
				return a
			}
		}
	}
	return found
}

func (m manage) notPresent(_ context.Context, _ *fn.Call, a presentArgs) (*value.List, error) {
	ids, err := m.keys.Accepted()
	if err != nil {
		return nil, err
	}
	there := m.Connected()
	out := &value.List{}
	for _, id := range ids {
		if !there[id] && a.has(id) {
			out.Append(id)
		}
	}
	return out, nil
}

// Headings of manage.versions.
const (
	labelMaster  = "Master"
	labelOffline = "Minion offline"
	labelOlder   = "Minion requires update"
	labelSame    = "Up to date"
	labelNewer   = "Minion newer than master"
)

func (m manage) versions(ctx context.Context, _ *fn.Call, _ none) (*value.Dict, error) {
	_, results, err := m.commander.Call(ctx, client.Job{Target: "*", Fun: "test.version"})
	if err != nil && !errors.Is(err, client.ErrNoMatch) {
		return nil, err
	}
	slices.SortFunc(results, func(a, b client.Result) int { return strings.Compare(a.ID, b.ID) })
	ret := value.NewDict(4)
	for _, r := range results {
		label, shown := labelOffline, any(false)
		if version, ok := r.Return.(string); ok && !r.Absent && r.Retcode == 0 {
			shown = version + brine(m.cache.MinionData(r.ID).Grains.Str("brine_version"))
			label = [...]string{labelOlder, labelSame, labelNewer}[compareVersions(version, salt.Version)+1]
		}
		if !ret.Has(label) {
			ret.Set(label, value.NewDict(0))
		}
		ret.Dict(label).Set(r.ID, shown)
	}
	ret.Set(labelMaster, salt.Version+brine(salt.BrineVersion))
	return ret, nil
}

// brine formats Brine's version as a suffix of Salt's, "" for stock Salt.
func brine(version string) string {
	if version == "" {
		return ""
	}
	return " (Brine " + version + ")"
}

// compareVersions compares releases number by number; a build of a release
// (3007.10+0.g3b3728b) counts as that release.
func compareVersions(a, b string) int {
	numbers := func(v string) []int {
		v, _, _ = strings.Cut(v, "+")
		var out []int
		for part := range strings.SplitSeq(strings.TrimPrefix(v, "v"), ".") {
			digits := strings.IndexFunc(part+"x", func(r rune) bool { return r < '0' || r > '9' })
			n, _ := strconv.Atoi(part[:digits])
			out = append(out, n)
		}
		for len(out) > 1 && out[len(out)-1] == 0 {
			out = out[:len(out)-1]
		}
		return out
	}
	return slices.CompareFunc(numbers(a), numbers(b), cmp.Compare[int])
}

// textRegenerated is Salt's message after the keys were deleted.
const textRegenerated = "The minion and master keys have been deleted.  Restart the Salt\n" +
	"Master within the next 60 seconds!!!\n\n" +
	"Wait for the minions to reconnect.  Once the minions reconnect\n" +
	"the new keys will appear in pending and will need to be re-\n" +
	"accepted by running:\n" +
	"    salt-key -A\n\n" +
	"Be advised that minions not currently connected to the master\n" +
	"will not be able to reconnect and may require manual\n" +
	"regeneration via a local call to\n" +
	"    salt-call saltutil.regen_keys"

func (m manage) keyRegen(ctx context.Context, _ *fn.Call, _ none) (any, error) {
	if m.clustered {
		return nil, fn.Errorf("this master is in a cluster, whose masters and minions rely on its keys: nothing was changed; leave the cluster first " +
			"(brine cluster leave)")
	}
	if _, _, err := m.commander.Call(ctx, client.Job{Target: "*", Type: "glob", Fun: "saltutil.regen_keys"}); err != nil && !errors.Is(err, client.ErrNoMatch) {
		return nil, fn.Errorf("cannot reach the minions; no key was deleted: %w", err)
	}
	err := filepath.WalkDir(m.pkiDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		return nil, fn.Errorf("cannot delete some keys: %w", err)
	}
	return textRegenerated, nil
}
