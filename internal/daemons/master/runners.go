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
	"slices"
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
	roles := t.settings.auth().Roles()
	add := func(source string, entries []any) {
		for _, g := range acl.Grants(entries, roles) {
			if allows(g.Entry) {
				found = append(found, runners.Rule{Source: source, Entry: g.Entry, Role: g.Role})
			}
		}
	}
	for _, system := range t.settings.auth().Configured() {
		if q.EAuth == "" || q.EAuth == system {
			add("external_auth: "+system, t.settings.auth().Entries(&auth.User{Name: q.User, System: system, Groups: q.Groups}))
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

// ability is what a role may or may not include, for a description of the role.
type ability struct{ form, fun, text string }

// abilities are those that matter most: who has one of them can get others by it, or sees secrets.
var abilities = []ability{
	{runners.FormMinions, "cmd.run", "run commands on minions (cmd.run)"},
	{runners.FormMinions, "state.apply", "apply states (state.apply)"},
	{runners.FormMinions, "state.highstate", "apply all states (state.highstate)"},
	{runners.FormMinions, "cp.get_file", "write files of the master on minions (cp.get_file)"},
	{runners.FormMinions, "pillar.items", "read pillars on minions (pillar.items)"},
	{acl.Runner, "state.orchestrate", "start orchestrations (state.orchestrate)"},
	{acl.Runner, "pillar.show_pillar", "read pillars on the master (pillar.show_pillar)"},
	{acl.Runner, "jobs.lookup_jid", "read jobs of others (jobs.lookup_jid)"},
	{acl.Runner, "auth.permissions", "see the permissions of users (auth.permissions)"},
	{acl.Runner, "auth.del_token", "end sessions of others (auth.del_token)"},
	{acl.Runner, "audit.list", "read the audit log (audit.list)"},
	{acl.Wheel, "key.accept", "accept keys (key.accept)"},
	{acl.Wheel, "key.delete", "delete keys (key.delete)"},
	{acl.Wheel, "config.update_config", "change the master's configuration (config.update_config)"},
	{acl.Wheel, "file_roots.write", "change files that minions get (file_roots.write)"},
}

// Roles implements runners.Tokens.
func (t runnerTokens) Roles() (out []runners.RoleView) {
	grants := t.Grants()
	blacklist := t.settings.options().PublisherACLBlacklist
	for _, r := range acl.Roles(t.settings.auth().Roles()) {
		v := runners.RoleView{Name: r.Name, Description: r.Description, Entries: r.Permissions}
		for _, a := range abilities {
			call := acl.Call{Fun: a.fun}
			onSome, onAll := acl.OnMaster(r.Permissions, a.form, call), true
			if a.form == runners.FormMinions {
				covers := func(yes bool) bool {
					return !acl.Blacklisted(blacklist, "", []acl.Call{call}) && acl.Allowed(r.Permissions, []acl.Call{call}, func(string) bool { return yes })
				}
				onSome, onAll = covers(true), covers(false)
			}
			switch {
			case !onSome:
				v.Cannot = append(v.Cannot, a.text)
			case !onAll:
				v.Partly = append(v.Partly, a.text)
			}
		}
		for _, g := range grants {
			if slices.ContainsFunc(g.Entries, func(e any) bool { name, ok := acl.RoleName(e); return ok && name == r.Name }) {
				v.Who = append(v.Who, g)
			}
		}
		out = append(out, v)
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
