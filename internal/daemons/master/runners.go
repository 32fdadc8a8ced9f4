package master

import (
	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/call/auth"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/wheel"
	"brine/internal/files/fileserver"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"context"
	"path/filepath"
	"strconv"
	"strings"
)

// runnerTokens creates and deletes tokens for the runner auth.
type runnerTokens struct {
	settings *settings
	tokens   *auth.Tokens
	access   *access
}

// NewToken implements runners.Tokens.
func (t runnerTokens) NewToken(ctx context.Context, creds *value.Dict) (*value.Dict, error) {
	var in wire.Credentials
	wire.View(creds, &in)
	expire, _ := strconv.ParseFloat(value.Str(in.TokenExpire), 64)
	d, err := t.settings.auth().NewToken(ctx, credentials(creds), expire)
	if salt.KindOf(err) == salt.Denied {
		return nil, nil
	}
	return d, err
}

// DropToken implements runners.Tokens.
func (t runnerTokens) DropToken(token string) (bool, error) {
	if there := t.settings.auth().Token(token); there == nil {
		return false, nil
	}
	return true, t.tokens.Remove(token)
}

const publisherACL = "publisher_acl"

// Rules implements runners.Tokens. It asks for each entry alone whether it would allow the call, by
// the code that decides real calls.
func (t runnerTokens) Rules(q runners.Question) (found []runners.Rule, forbidden string) {
	o := &order{}
	o.Fun, o.Arg, o.Tgt, o.TgtType = q.Fun, value.ListOf(q.Args...), q.Tgt, q.TgtType
	allows := func(entry any) bool {
		c := &caller{how: byEAuth, name: q.User, list: []any{entry}}
		if q.Form == runners.FormMinions {
			return t.access.mayPublish(c, o)
		}
		return acl.OnMaster(c.list, q.Form, jobCall(q.Fun, q.Args))
	}
	add := func(source string, entries []any) {
		for _, e := range entries {
			if allows(e) {
				found = append(found, runners.Rule{Source: source, Entry: e})
			}
		}
	}
	for _, system := range t.settings.auth().Configured() {
		if q.EAuth == "" || q.EAuth == system {
			add("external_auth: "+system, t.settings.auth().Rights(&auth.User{Name: q.User, System: system, Groups: q.Groups}))
		}
	}
	if grants, ok := t.settings.options().PublisherACL.(*value.Dict); ok && q.Form == runners.FormMinions && (q.EAuth == "" || q.EAuth == publisherACL) {
		add(publisherACL, acl.Users(grants, q.User))
	}
	if calls, ok := callsOf(o); ok && q.Form == runners.FormMinions && acl.Blacklisted(t.settings.options().PublisherACLBlacklist, q.User, calls) {
		forbidden = "publisher_acl_blacklist forbids the user or the function"
	}
	return found, forbidden
}

// Grants implements runners.Tokens.
func (t runnerTokens) Grants() (out []runners.Grant) {
	add := func(source string, permissions *value.Dict, groups bool) {
		for k, v := range permissions.All() {
			who, ok := k.(string)
			if !ok || strings.HasPrefix(who, "^") { // "^model" names where a system has its permissions
				continue
			}
			name, group := strings.CutSuffix(who, "%")
			if !groups {
				name, group = who, false
			}
			out = append(out, runners.Grant{Source: source, Who: name, Group: group, Entries: value.Items(v)})
		}
	}
	for _, system := range t.settings.auth().Configured() {
		add("external_auth: "+system, t.settings.auth().Permissions(system), true)
	}
	if grants, ok := t.settings.options().PublisherACL.(*value.Dict); ok {
		add(publisherACL, grants, false)
	}
	return out
}

// snapshotDir, in the master's own directory, contains a copy of its jobs for
// migrations.
const snapshotDir = "snapshot"

// jobDatabase is the master's own job database.
type jobDatabase struct {
	own   string // the master's own directory
	store *job.Store
	stock *job.LocalCache
}

// ownJobs returns the master's own job database, nil in a cluster whose jobs are files.
func ownJobs(own string, jobs jobStore, stock *job.LocalCache) runners.JobDatabase {
	s, ok := jobs.(*job.Store)
	if !ok {
		return nil
	}
	return jobDatabase{own, s, stock}
}

// Snapshot implements runners.JobDatabase.
func (d jobDatabase) Snapshot() (string, error) {
	dir := filepath.Join(d.own, snapshotDir)
	return dir, d.store.Snapshot(dir)
}

// Adopt implements runners.JobDatabase.
func (d jobDatabase) Adopt() (int, error) { return job.Adopt(d.store, d.stock) }

// runnerMinions implements runners.Minions.
type runnerMinions struct {
	presence *presence
	reports  *connectionReports
}

func (m runnerMinions) Connected() map[string]bool   { return m.presence.connected() }
func (m runnerMinions) Holders() map[string][]string { return m.presence.holders() }
func (m runnerMinions) Standings(ctx context.Context, ids []string) map[string]runners.Standing {
	return m.reports.collect(ctx, ids)
}

// runnerServes implements runners.Serves.
type runnerServes struct {
	settings  *settings
	files     *fileUpdates
	templates *templates
	fetched   func() // called after modules in Python were fetched, or nil
}

func (s runnerServes) FileServer() runners.FileServer         { return s.settings.fileServer() }
func (s runnerServes) TellChanges(found []fileserver.Changes) { s.files.tellFetchedChanges(found) }
func (s runnerServes) Pillars() runners.Pillars               { return s.settings.current().pillar }
func (s runnerServes) GitPillar() runners.GitPillar {
	return tellingPillar{s.settings.current().git, s.files.tellFetched}
}

// clusterRecords implements runners.ClusterRecords.
type clusterRecords struct {
	id         string
	work       *clusterJobs
	replicated *replicated
	comparison *comparison
	health     *health
	end        func()
}

func (r clusterRecords) Check(ctx context.Context) (*value.Dict, error) {
	return r.comparison.check(ctx)
}
func (r clusterRecords) Health(ctx context.Context) map[string]*value.Dict {
	return r.health.collect(ctx)
}
func (r clusterRecords) Work(jid string) (*value.Dict, error) { return r.work.show(jid) }
func (r clusterRecords) Keys(match string) (*value.Dict, error) {
	return r.replicated.keyRecords(match)
}
func (r clusterRecords) Leave() error { return leaveCluster(r.id, r.replicated, r.end) }

// newWheels builds the wheel functions. When they change keys, it fires an event, flushes the
// cached data of deleted minions, and rotates the AES key of publications if the options say
// so.
func newWheels(d wheel.Deps, bus *event.Bus, c *cache.Cache, s *settings, rotate func()) (*fn.Registry, error) {
	d.Changed = func(act, id string) { bus.Fire("salt/key", value.DictOf("result", true, "act", act, "id", id)) }
	d.Forget = func(id string) error {
		_, err := c.Flush("minions/"+id, "")
		return err
	}
	d.Revoked = func() {
		if s.options().RotateAESKey {
			rotate()
		}
	}
	return fn.NewRegistry(nil, wheel.New(d)...)
}
