package runners

import (
	"context"
	"maps"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Federation are the sites that a master commands.
type Federation interface {
	// Sites returns the status of each accepted site.
	Sites() (*value.Dict, error)
	// Job returns what is known of a job at each site, nil if it was given to none.
	Job(jid string) (*value.Dict, error)
	// Ask asks the sites of a job for all returns, and returns which sites it asked.
	Ask(jid string) []string
	// Minions returns the minions that sites have named.
	Minions() map[string][]string
	// Keys, Accept, Reject and Delete manage the keys of sites.
	Keys() (*value.Dict, error)
	Accept(name, fingerprint string) error
	Reject(name string) error
	Delete(name string) error
}

type federations struct {
	hub  Federation
	jobs Jobs
}

func init() { runners.Register("federation", federationModule) }

func federationModule(d Deps) fn.Module {
	f := federations{d.Jobs.Sites, d.Jobs}
	return fn.Module{Name: "federation", Doc: `The sites that this master commands (federation_hub).`, Funcs: []fn.Func{
		fn.Of("sites", f.sites, `Return the status of each accepted site.

connected: whether it reported within the last 15 seconds. minions and minions_up: numbers of accepted and of connected minions.
waiting: commands that it has not confirmed, and oldest the age of the oldest one in seconds. incomplete: commands whose final summary is
missing. unconfirmed: returns stored at the site that this master has not confirmed. seen is the time of its last report, silent the seconds
since then, and lag the seconds that the report took, which includes the difference of the clocks. master and version are of that report, too.`, fn.Example("salt-run federation.sites")),
		fn.Of("job", f.job, `Return what became of a job at each site: its state, and a summary of the returns.

state: waiting, stored, refused or expired. ok, changed and failed count minions, groups are the largest groups of equal returns.
final is set when the summary counts all minions, or the command has expired.`, fn.Example("salt-run federation.job 20260301102030405060")),
		fn.Of("returns", f.returns, `Ask the sites of a job for the returns of all minions, store them here, and return them by minion.

Wait until all sites have sent what they have, at most for timeout seconds.`, fn.Example("salt-run federation.returns 20260301102030405060")),
		fn.Of("minions", f.minions, `Return the minions that each site has named so far.`, fn.Example("salt-run federation.minions")),
		fn.Of("keys", f.keys, `Return the keys of sites by state, with their fingerprints. On the site, salt-key -F master prints the same one.`,
			fn.Example("salt-run federation.keys")),
		fn.Of("accept", f.accept, `Accept the key of a site. With a fingerprint, the key must have it.`,
			fn.Example("salt-run federation.accept eu-1"), fn.Example("salt-run federation.accept eu-1 fingerprint=3a:f1:...")),
		fn.Of("reject", f.reject, `Reject the key of a site. What it sends has no effect from then on.`, fn.Example("salt-run federation.reject eu-1")),
		fn.Of("delete", f.remove, `Delete the key of a site. If the site still runs, its key waits for acceptance again.`,
			fn.Example("salt-run federation.delete eu-1")),
	}}
}

func (f federations) on() error {
	if f.hub == nil {
		return salt.Errorf(salt.Invalid, "this master commands no sites: set federation_hub and federation_urls")
	}
	return nil
}

func (f federations) sites(_ context.Context, _ *fn.Call, _ struct{}) (*value.Dict, error) {
	if err := f.on(); err != nil {
		return nil, err
	}
	return f.hub.Sites()
}

type siteJobArgs struct {
	JID string `salt:"jid" doc:"id of the job"`
}

func (f federations) job(_ context.Context, _ *fn.Call, a siteJobArgs) (*value.Dict, error) {
	if err := f.on(); err != nil {
		return nil, err
	}
	d, err := f.hub.Job(a.JID)
	if d == nil && err == nil {
		err = salt.Errorf(salt.NotFound, "no site was given a job %.80s", a.JID)
	}
	return d, err
}

type siteReturnsArgs struct {
	JID     string        `salt:"jid" doc:"id of the job"`
	Timeout time.Duration `salt:"timeout" default:"10" doc:"seconds to wait"`
}

func (f federations) returns(ctx context.Context, _ *fn.Call, a siteReturnsArgs) (*value.Dict, error) {
	if err := f.on(); err != nil {
		return nil, err
	}
	if len(f.hub.Ask(a.JID)) == 0 {
		return nil, salt.Errorf(salt.NotFound, "no site was given a job %.80s, or the hub is unreachable", a.JID)
	}
	var rets map[string]*value.Dict
	for end := time.Now().Add(a.Timeout); ; {
		var err error
		if rets, err = f.jobs.Returns(a.JID); err != nil {
			return nil, err
		}
		about, err := f.hub.Job(a.JID)
		if err != nil {
			return nil, err
		}
		want := int64(0)
		for _, v := range about.All() {
			d, _ := v.(*value.Dict)
			ok, _ := d.At("ok").(int64)
			failed, _ := d.At("failed").(int64)
			want += ok + failed
		}
		if int64(len(rets)) >= want && want > 0 || time.Now().After(end) || !wait.Sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	out := value.NewDict(len(rets))
	for _, id := range sortedIDs(rets) {
		out.Set(id, rets[id].At("return"))
	}
	return out, nil
}

func (f federations) minions(_ context.Context, _ *fn.Call, _ struct{}) (*value.Dict, error) {
	if err := f.on(); err != nil {
		return nil, err
	}
	all := f.hub.Minions()
	out := value.NewDict(len(all))
	for _, site := range sortedIDs(all) {
		out.Set(site, value.Strings(all[site]))
	}
	return out, nil
}

func (f federations) keys(_ context.Context, _ *fn.Call, _ struct{}) (*value.Dict, error) {
	if err := f.on(); err != nil {
		return nil, err
	}
	return f.hub.Keys()
}

type siteKeyArgs struct {
	Name string `salt:"name" doc:"name of the site"`
}

type siteAcceptArgs struct {
	Name        string `salt:"name" doc:"name of the site"`
	Fingerprint string `salt:"fingerprint" default:"" doc:"fingerprint that the key must have"`
}

func (f federations) accept(_ context.Context, _ *fn.Call, a siteAcceptArgs) (bool, error) {
	if err := f.on(); err != nil {
		return false, err
	}
	return true, f.hub.Accept(a.Name, a.Fingerprint)
}

func (f federations) reject(_ context.Context, _ *fn.Call, a siteKeyArgs) (bool, error) {
	if err := f.on(); err != nil {
		return false, err
	}
	return true, f.hub.Reject(a.Name)
}

func (f federations) remove(_ context.Context, _ *fn.Call, a siteKeyArgs) (bool, error) {
	if err := f.on(); err != nil {
		return false, err
	}
	return true, f.hub.Delete(a.Name)
}

func sortedIDs[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
