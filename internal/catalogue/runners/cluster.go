package runners

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/ha/cluster"
	"brine/internal/ha/lease"
	"brine/internal/ha/roster"
	"brine/internal/py/value"
)

// Cluster is the cluster that this master belongs to.
type Cluster interface {
	Members() []cluster.Member
	// Leads reports whether this master runs the tasks that run once per cluster.
	Leads() bool
	// Isolated reports whether the members have no shared directory.
	Isolated() bool
	// Remove removes a member for good and replaces the secrets that it knew, Drop
	// removes a lost member, and Readmit lets a removed id join again.
	Remove(ctx context.Context, id string, keepSecret bool) (have, late []string, err error)
	Drop(id string) error
	Readmit(id string) error
	// Drain makes minions leave a member, or lets them use it again.
	Drain(id string, on bool) error
	// Status asks the members for their status.
	Status(ctx context.Context) []cluster.Status
	// RotateSecret replaces the secret that masters need to join.
	RotateSecret(ctx context.Context) (have, late []string, err error)
	// RotateKey replaces the cluster's key.
	RotateKey(ctx context.Context, force bool) (have, late []string, err error)
	// Stations returns the members as shown to minions.
	Stations() map[string]roster.Member
}

// ClusterVoting decides which master runs the tasks that run once per cluster.
type ClusterVoting interface {
	// Lease returns the status of the lease, nil without voters. Once reports
	// whether this master holds it, and the token of the lease.
	Lease(ctx context.Context) *lease.Status
	Once() (token uint64, may bool)
	// Voters returns the members that grant the lease.
	Voters(ctx context.Context) []cluster.Voter
	// ChangeVoters adds or removes a voter, waits until that is done, and returns
	// the new list.
	ChangeVoters(ctx context.Context, op lease.Op, id string, force bool) (lease.List, error)
}

// ClusterRecords gives access to replicated state and cluster jobs.
type ClusterRecords interface {
	// Check compares the replicated state of the masters.
	Check(ctx context.Context) (*value.Dict, error)
	// Health returns each master's report about the cluster, by id.
	Health(ctx context.Context) map[string]*value.Dict
	// Work returns the cluster jobs, or one of them.
	Work(jid string) (*value.Dict, error)
	// Keys returns when and where the state of the keys that match a glob was
	// decided.
	Keys(match string) (*value.Dict, error)
	// Leave removes this master from the cluster and stops it.
	Leave() error
}

// ClusterRoots are the file_roots and pillar_roots that all masters of a cluster serve.
type ClusterRoots interface {
	// Sync publishes this master's files to all masters.
	Sync(ctx context.Context, o ClusterSyncOptions) (*value.Dict, error)
	// Revision describes the revision that all masters serve, or the one that a job
	// was published with.
	Revision(ctx context.Context, jid string) (*value.Dict, error)
	// Rollback returns to an earlier revision.
	Rollback(ctx context.Context, revision string, o ClusterSyncOptions) (*value.Dict, error)
}

// ClusterSyncOptions control how masters change to other files.
type ClusterSyncOptions struct {
	// Test makes no changes.
	Test bool
	// Force does not wait for masters that lack some of the files.
	Force bool
	// Timeout bounds that wait.
	Timeout time.Duration
}

// Clustering is a master's view of its cluster.
type Clustering struct {
	Cluster
	// ID is this master's id in the cluster.
	ID      string
	Voting  ClusterVoting
	Records ClusterRecords
	Roots   ClusterRoots
}

// clusters implements the module cluster. Clustering is zero for a standalone
// master.
type clusters struct{ Clustering }

func init() { runners.Register("cluster", clusterModule) }

func clusterModule(d Deps) fn.Module {
	var c clusters
	if d.Cluster != nil {
		c.Clustering = *d.Cluster
	}
	return fn.Module{Name: "cluster", Doc: `The cluster of masters that this master belongs to.`, Funcs: []fn.Func{
		fn.Of("members", c.members, `Return the masters of the cluster and their connection status as seen from here.

It shows which are reachable and the error for those that are not, and whether this master leads. Without a shared directory
it also shows how many changes each master lacks, whether it connected by TLS, and when its certificate expires.`,
			fn.Example("salt-run cluster.members")),
		fn.Of("check", c.check, `Compare the replicated data of the masters of a cluster without a shared directory.

The comparison covers keys, jobs, returns, minion data, tokens and the keys of the cluster. While minions return or keys change, there may be differences that disappear within a second.`,
			fn.Example("salt-run cluster.check")),
		fn.Of("status", c.status, `Return the status of each master of the cluster, as reported by itself.

The return code is 1 if a master is unreachable, cannot store changes, lacks some, or has others than the rest. Each row has:

id. state: here, up, or the error. leads: whether it runs the tasks that run once. version and since: version (of Salt) and start time of
its program. brine: its version of Brine. minions: number of connected minions. draining: start of the drain. zone. lag: number of changes of this master that it
lacks. clock: seconds by which its clock is ahead. certificate: expiry of its TLS certificate, without a shared directory.`,
			fn.Example("salt-run cluster.status")),
		fn.Of("doctor", c.doctor, `Diagnose the cluster, and say how to fix what is wrong.

It asks all members what they see. It compares identities, secrets, versions, cluster_voters and the revision of files, and checks
reachability, clocks, lag, voters and witness, certificates, data, disks, drained masters, and minions that do not know all masters.
The return code is 1 if there are findings. brine ha doctor prints them as text.`,
			fn.Example("salt-run cluster.doctor")),
		fn.Of("rotate_secret", c.rotateSecret, `Replace the secret that a master needs to join, and the session keys of masters and minions.

All members take the new secret without a restart and reject the old one. The result lists which members have it and which will get it
when they are reachable again; the return code is 1 if a reachable member has not taken it. The secret is in the file .secret in
cluster_pki_dir and is not returned: brine cluster rotate-secret prints it.`,
			fn.Example("salt-run cluster.rotate_secret")),
		fn.Of("rotate_key", c.rotateKey, `Replace the key of the cluster, by which minions authenticate their masters.

The old key signs the new one, so Brine minions accept it at their next sign-in. The result lists which members have it and which will
get it when they are reachable again; the return code is 1 if a reachable member has not taken it. Stock minions cannot change the key:
while some are connected the function fails, unless force=True.`,
			fn.Example("salt-run cluster.rotate_key")),
		fn.Of("drain", c.drain, `Make minions use other masters of the cluster than this one, or than the named one.

Brine minions with master_type: cluster move within seconds after their jobs have ended; cluster.status shows how many are
left. Other minions stay. The drain survives restarts and lasts until cluster.undrain.`,
			fn.Example("salt-run cluster.drain 192.0.2.3")),
		fn.Of("undrain", c.undrain, `End the drain of a master. Minions come back over master_rebalance seconds.`,
			fn.Example("salt-run cluster.undrain 192.0.2.3")),
		fn.Of("remove", c.remove, `Remove a master from the cluster for good.

Its key is deleted and no other master connects to it. Masters that are unreachable now do the same when they learn of it. Without a
shared directory the secrets that it knew are replaced: session keys, the AES key, the joining secret, and tokens. The result lists which
members have the new joining secret, as cluster.rotate_secret does. keep_secret=True keeps the joining secret and tokens. Its id cannot join again until cluster.readmit.`,
			fn.Example("salt-run cluster.remove 192.0.2.3"), fn.Example("salt-run cluster.remove 192.0.2.3 keep_secret=True")),
		fn.Of("readmit", c.readmit, `Let a removed master join again, in a cluster without a shared directory.`,
			fn.Example("salt-run cluster.readmit 192.0.2.3")),
		fn.Of("recover", c.recover, `Remove all unreachable masters from a cluster without a shared directory, after most masters are lost for good.

Without sure=True it returns the list and changes nothing. It fails while a majority of cluster_voters answers: then use
cluster.remove for single masters. With voters use brine cluster recover, which also changes the configuration.`,
			fn.Example("salt-run cluster.recover"), fn.Example("salt-run cluster.recover sure=True")),
		fn.Of("lease", c.lease, `Return which master holds the lease for tasks that run once, and what each of cluster_voters grants.

With here=True the exit code is 1 if this master does not hold it. A cron job on all masters that begins with this command does its work on one of them.`,
			fn.Example("salt-run cluster.lease"), fn.Example("salt-run cluster.lease here=True")),
		fn.Of("voters", c.voters, `Return the status of each of cluster_voters, as seen by this master.

The return code is 1 if one of them cannot vote. Each row has:

voter, is: master or witness. votes: yes, or why it cannot. grants: the master that it grants the lease to. token: the highest granted token
that it knows. tls: whether it is asked by TLS. secret: whether a witness has the current secret of the cluster.

The list is that of the configuration until cluster.add_voter or cluster.remove_voter changes it.`,
			fn.Example("salt-run cluster.voters")),
		fn.Of("add_voter", c.addVoter, `Add a master or a running witness to the voters, and wait until it votes.

It gets the state of the others first, without a vote. From then on cluster_voters in the configuration does not count; correct it on all machines all the same.`,
			fn.Example("salt-run cluster.add_voter 192.0.2.4")),
		fn.Of("remove_voter", c.removeVoter, `Remove a master or witness from the voters.

It fails if fewer than three voters or no reachable majority would be left; force=True removes it then, too. A master stays a member of the cluster.`,
			fn.Example("salt-run cluster.remove_voter 192.0.2.4"), fn.Example("salt-run cluster.remove_voter 192.0.2.4 force=True")),
		fn.Of("keys", c.keys,
			`Return the state of minion keys, including deleted ones: since when, and on which master, by whom and how it was decided.

All masters return the same. who is a user, or the rule that accepted the minion; unknown if another program changed the file.`,
			fn.Example("salt-run cluster.keys"), fn.Example("salt-run cluster.keys 'web*'")),
		fn.Of("work", c.work,
			`Return the runners that were started for the whole cluster (salt-run --cluster) in the last day, or one of them with its result.

Each has: fun, user, by: the master that received the order, at: the time. state: ordered, running, done or failed. on and token: the master that runs it,
and its lease. runs: the number of attempts. lost: the master that died or lost the lease while it ran.`,
			fn.Example("salt-run cluster.work"), fn.Example("salt-run cluster.work 20260101120000000000")),
		fn.Of("sync_roots", c.syncRoots,
			`Make all masters of a cluster without a shared directory serve the file_roots and pillar_roots of this master, as they are now.

Each master fetches what it lacks. When all reachable masters have everything, they switch at the same moment; files that are not in the new revision disappear.
An unreachable master switches when it is back, before it serves anything. From then on, call this again on any master to publish changes in these directories.`,
			fn.Example("salt-run cluster.sync_roots"), fn.Example("salt-run cluster.sync_roots test=True")),
		fn.Of("revision", c.revision,
			`Return the revision of file_roots and pillar_roots that the masters have agreed on, which masters serve it, and former revisions; `+
				`or the revision that a job was started with.`,
			fn.Example("salt-run cluster.revision"), fn.Example("salt-run cluster.revision jid=20260101120000000000")),
		fn.Of("rollback", c.rollback,
			`Make all masters serve an earlier revision of file_roots and pillar_roots: the previous one, or one that cluster.revision lists. The `+
				`directories themselves do not change.`,
			fn.Example("salt-run cluster.rollback"), fn.Example("salt-run cluster.rollback 3f1c09aa")),
		fn.Of("leave", c.leave, `Make this master leave a cluster without a shared directory, and stop.

It accepts no more requests, waits until all reachable masters have its changes, and announces that it has left.`,
			fn.Example("salt-run cluster.leave")),
	}}
}

var errNoCluster = salt.Errorf(salt.Invalid, "this master is not in a cluster: cluster_id is not set")

func (c clusters) members(_ context.Context, _ *fn.Call, _ struct{}) (*value.Dict, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	out := value.NewDict(4)
	self := value.DictOf("up", true, "self", true, "leads", c.Cluster.Leads())
	out.Set(c.ID, self)
	for _, m := range c.Cluster.Members() {
		d := value.DictOf("up", m.Up, "self", false, "kind", m.Kind)
		if m.Problem != "" {
			d.Set("problem", m.Problem)
		}
		if c.Cluster.Isolated() {
			behind := value.NewDict(len(m.Behind))
			for _, name := range slices.Sorted(maps.Keys(m.Behind)) {
				behind.Set(name, m.Behind[name])
			}
			d.Set("behind", behind)
			// The last connection status may be from before a restart.
			d.Set("tls", m.TLS)
			if !m.CertificateEnds.IsZero() {
				d.Set("certificate", m.CertificateEnds.UTC().Format(time.RFC3339))
			}
		}
		out.Set(m.ID, d)
	}
	return out, nil
}

// checkTime bounds the comparison of all masters.
const checkTime = 2 * time.Minute

func (c clusters) check(ctx context.Context, call *fn.Call, _ struct{}) (*value.Dict, error) {
	switch {
	case c.Cluster == nil:
		return nil, errNoCluster
	case !c.Cluster.Isolated():
		return nil, salt.Errorf(salt.Invalid, "the masters of this cluster share a directory: there is nothing to compare")
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	d, err := c.Records.Check(ctx)
	if err == nil && !d.Bool("equal") {
		call.SetRetcode(1)
	}
	return d, err
}

type keysArgs struct {
	Match string `salt:"match" doc:"glob of ids" default:"*"`
}

func (c clusters) keys(_ context.Context, _ *fn.Call, a keysArgs) (*value.Dict, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	return c.Records.Keys(a.Match)
}

type workArgs struct {
	JID string `salt:"jid" doc:"job id; empty: all" default:""`
}

func (c clusters) work(_ context.Context, _ *fn.Call, a workArgs) (*value.Dict, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	return c.Records.Work(a.JID)
}

type removeArgs struct {
	ID         string `salt:"id" doc:"id of the master"`
	KeepSecret bool   `salt:"keep_secret" doc:"keep the joining secret and tokens, if the machine will be repaired" default:"false"`
}

func (c clusters) remove(ctx context.Context, call *fn.Call, a removeArgs) (*value.Dict, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	have, late, err := c.Cluster.Remove(ctx, a.ID, a.KeepSecret)
	if err != nil {
		return nil, err
	}
	d := value.DictOf("removed", a.ID)
	if c.Cluster.Isolated() && !a.KeepSecret {
		c.lateness(call, late)
		d.Set("have", value.Strings(have))
		d.Set("late", value.Strings(late))
	}
	return d, nil
}

type readmitArgs struct {
	ID string `salt:"id" doc:"id of the master"`
}

func (c clusters) readmit(_ context.Context, _ *fn.Call, a readmitArgs) (bool, error) {
	if err := c.isolated(); err != nil {
		return false, err
	}
	return true, c.Cluster.Readmit(a.ID)
}

// lateness sets the return code if a reachable member has not accepted a new secret.
func (c clusters) lateness(call *fn.Call, late []string) {
	for _, m := range c.Cluster.Members() {
		if m.Up && slices.Contains(late, m.ID) {
			call.SetRetcode(1)
		}
	}
}

type recoverArgs struct {
	Sure bool `salt:"sure" doc:"remove them; otherwise only list them" default:"false"`
}

func (c clusters) recover(ctx context.Context, _ *fn.Call, a recoverArgs) (*value.Dict, error) {
	if err := c.isolated(); err != nil {
		return nil, err
	}
	if s := c.Voting.Lease(ctx); s != nil && len(s.Voters) > len(s.Silent) {
		return nil, salt.Errorf(salt.Invalid, "a majority of cluster_voters answers, so the cluster is not lost; use cluster.remove for single masters")
	}
	lost := []string{}
	for _, s := range c.Cluster.Status(ctx) {
		switch {
		case s.Self:
		case !s.Up:
			lost = append(lost, s.ID)
		case s.Says == nil:
			return nil, salt.Errorf(salt.Unavailable, "%s is running and does not answer: stop it, or wait until it answers", s.ID)
		}
	}
	if a.Sure {
		for _, id := range lost {
			if err := c.Cluster.Drop(id); err != nil && salt.KindOf(err) != salt.NotFound {
				return nil, err
			}
		}
	}
	return value.DictOf("lost", value.Strings(lost), "removed", a.Sure), nil
}

func (c clusters) rotateSecret(ctx context.Context, call *fn.Call, _ struct{}) (*value.Dict, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	have, late, err := c.Cluster.RotateSecret(ctx)
	if err != nil {
		return nil, err
	}
	c.lateness(call, late)
	return value.DictOf("have", value.Strings(have), "late", value.Strings(late)), nil
}

type rotateKeyArgs struct {
	Force bool `salt:"force" doc:"also if connected minions cannot change to the new key" default:"false"`
}

func (c clusters) rotateKey(ctx context.Context, call *fn.Call, a rotateKeyArgs) (*value.Dict, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	have, late, err := c.Cluster.RotateKey(ctx, a.Force)
	if err != nil {
		return nil, err
	}
	c.lateness(call, late)
	return value.DictOf("have", value.Strings(have), "late", value.Strings(late)), nil
}

type drainArgs struct {
	ID string `salt:"id" default:"" doc:"id of the master; empty: this one"`
}

func (c clusters) drain(_ context.Context, _ *fn.Call, a drainArgs) (bool, error) {
	return c.setDrain(a.ID, true)
}

func (c clusters) undrain(_ context.Context, _ *fn.Call, a drainArgs) (bool, error) {
	return c.setDrain(a.ID, false)
}

func (c clusters) setDrain(id string, on bool) (bool, error) {
	if c.Cluster == nil {
		return false, errNoCluster
	}
	if err := c.Cluster.Drain(cmp.Or(id, c.ID), on); err != nil {
		return false, err
	}
	return true, nil
}

func (c clusters) status(ctx context.Context, call *fn.Call, _ struct{}) (*value.List, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	rows := &value.List{}
	stations := c.Cluster.Stations()
	for _, s := range c.Cluster.Status(ctx) {
		state := "up"
		switch {
		case s.Self && s.Says.Str("unstored") == "":
			state = "here"
		case s.Problem != "":
			state = s.Problem
		case !s.Up:
			state = "away"
		case s.Says == nil && s.Kind != "salt":
			state = "does not answer"
		case s.Says.Str("unstored") != "":
			state = unstored(s.Says)
		}
		row := value.DictOf("id", s.ID, "state", state)
		lag := int64(0)
		for _, n := range s.Behind {
			lag += n
		}
		for _, k := range []string{"leads", "version", "brine", "since", "minions", "files"} {
			row.Set(k, s.Says.At(k))
		}
		row.Set("zone", stations[s.ID].Zone)
		row.Set("share", int64(cmp.Or(stations[s.ID].Share, roster.FullShare)))
		row.Set("draining", stations[s.ID].Draining)
		row.Set("lag", lag)
		row.Set("clock", math.Round(s.Offset.Seconds()*1000)/1000)
		differs := int64(0)
		if c.Cluster.Isolated() {
			row.Set("certificate", s.Says.At("certificate"))
			differs = s.Says.Int("differs")
			row.Set("differs", differs)
			if r := s.Says.Dict("returns"); r.Len() > 0 {
				row.Set("copies", copiesState(r))
				if r.Int("missing") > 0 || r.Int("few") > 0 {
					call.SetRetcode(1)
				}
			}
			if st := s.Says.Dict("store"); st.Len() > 0 {
				row.Set("store", storeState(st))
				if st.Str("problem") != "" || st.Int("unreadable") > 0 {
					call.SetRetcode(1)
				}
			}
		}
		rows.Append(row)
		if state != "up" && state != "here" || differs > 0 {
			call.SetRetcode(1)
		}
	}
	return rows, nil
}

// unstored returns why a member cannot store what other masters decide and store.
func unstored(says *value.Dict) string {
	return "cannot store changes of other masters: " + says.Str("unstored")
}

// copiesState returns the number of masters that store each return, as a member sees it, and what it
// lacks.
func copiesState(r *value.Dict) string {
	text := "all"
	if n := r.Int("copies"); n > 0 {
		text = fmt.Sprintf("%d of %d", n, r.Int("masters"))
	} else if why := r.Str("reason"); why != "" {
		text += " (" + why + ")"
	}
	switch n := r.Int("missing"); {
	case n > 0:
		text += fmt.Sprintf("; %d missing", n)
	case n < 0:
		text += "; looking for missing ones"
	}
	if jid := r.Str("lost"); jid != "" && r.Int("missing") > 0 {
		text += ", the oldest of job " + jid
	}
	if n := r.Int("few"); n > 0 {
		text += fmt.Sprintf("; %d with too few reachable copies, the oldest of job %s", n, r.Str("oldest"))
	}
	return text
}

// storeState returns the state of the store of record in one line.
func storeState(st *value.Dict) string {
	text := st.Str("engine")
	if p := st.Str("problem"); p != "" {
		text += ": " + p
	}
	for _, n := range []struct{ name, what string }{
		{"waiting", "changes to write there"}, {"lacking", "changes to read from there"}, {"unreadable", "unreadable rows"},
	} {
		if st.Int(n.name) > 0 {
			text += fmt.Sprintf("; %d %s", st.Int(n.name), n.what)
		}
	}
	return text
}

func (c clusters) leave(_ context.Context, _ *fn.Call, _ struct{}) (bool, error) {
	if c.Cluster == nil {
		return false, errNoCluster
	}
	if err := c.Records.Leave(); err != nil {
		return false, err
	}
	return true, nil
}

type syncArgs struct {
	Test    bool          `salt:"test" doc:"show what would change, and change nothing" default:"false"`
	Force   bool          `salt:"force" doc:"do not wait for reachable masters that lack contents" default:"false"`
	Timeout time.Duration `salt:"timeout" doc:"timeout in seconds for masters to fetch what they lack" default:"300"`
}

func (a syncArgs) options() ClusterSyncOptions {
	return ClusterSyncOptions(a)
}

var errSharesDirectory = salt.Errorf(salt.Invalid,
	"the masters of this cluster share a directory (cluster_isolated_filesystem is not set): put file_roots and pillar_roots there, or use gitfs and "+
		"git_pillar")

func (c clusters) isolated() error {
	switch {
	case c.Cluster == nil:
		return errNoCluster
	case !c.Cluster.Isolated():
		return errSharesDirectory
	}
	return nil
}

func (c clusters) syncRoots(ctx context.Context, _ *fn.Call, a syncArgs) (*value.Dict, error) {
	if err := c.isolated(); err != nil {
		return nil, err
	}
	return c.Roots.Sync(ctx, a.options())
}

type revisionArgs struct {
	JID string `salt:"jid" doc:"job id" default:""`
}

func (c clusters) revision(ctx context.Context, _ *fn.Call, a revisionArgs) (*value.Dict, error) {
	if err := c.isolated(); err != nil {
		return nil, err
	}
	return c.Roots.Revision(ctx, a.JID)
}

type rollbackArgs struct {
	Revision string `salt:"revision" doc:"prefix of its id; empty: the previous one" default:""`
	syncArgs
}

func (c clusters) rollback(ctx context.Context, _ *fn.Call, a rollbackArgs) (*value.Dict, error) {
	if err := c.isolated(); err != nil {
		return nil, err
	}
	return c.Roots.Rollback(ctx, a.Revision, a.options())
}

func (c clusters) voters(ctx context.Context, call *fn.Call, _ struct{}) (*value.List, error) {
	if err := c.isolated(); err != nil {
		return nil, err
	}
	voters := c.Voting.Voters(ctx)
	if len(voters) == 0 {
		return nil, salt.Errorf(salt.Invalid, "cluster_voters is not set: of the masters that see each other, the first by id runs tasks that run once")
	}
	rows := &value.List{}
	for _, v := range voters {
		is, votes := "master", "yes"
		if v.Witness {
			is = "witness"
		}
		if !v.Votes {
			votes = "no: " + v.Why
			call.SetRetcode(1)
		}
		row := value.DictOf("voter", v.ID, "is", is, "votes", votes, "grants", v.Holder, "token", int64(v.Token), "tls", v.TLS, "secret", nil)
		if v.Witness {
			row.Set("secret", v.Secret)
		}
		rows.Append(row)
	}
	return rows, nil
}

// changeTime bounds the wait for a change of the voters.
const changeTime = 30 * time.Second

type addVoterArgs struct {
	ID string `salt:"id" doc:"id of the master or witness"`
}

func (c clusters) addVoter(ctx context.Context, _ *fn.Call, a addVoterArgs) (*value.Dict, error) {
	return c.changeVoters(ctx, lease.AddVoter, a.ID, false)
}

type removeVoterArgs struct {
	ID    string `salt:"id" doc:"id of the master or witness"`
	Force bool   `salt:"force" doc:"also if fewer than three voters or no reachable majority is left" default:"false"`
}

func (c clusters) removeVoter(ctx context.Context, _ *fn.Call, a removeVoterArgs) (*value.Dict, error) {
	return c.changeVoters(ctx, lease.RemoveVoter, a.ID, a.Force)
}

func (c clusters) changeVoters(ctx context.Context, op lease.Op, id string, force bool) (*value.Dict, error) {
	if err := c.isolated(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	l, err := c.Voting.ChangeVoters(ctx, op, id, force)
	if err != nil {
		return nil, err
	}
	d := value.DictOf("voters", value.Strings(l.Names), "next",
		"set this list as cluster_voters in the configuration of all masters and witnesses; no restart is needed")
	if n := len(l.Names); n%2 == 0 {
		d.Set("note", fmt.Sprintf("%d voters survive the loss of no more than %d do: add or remove another one", n, n-1))
	}
	return d, nil
}

type leaseArgs struct {
	Here bool `salt:"here" doc:"exit with 1 if this master does not hold the lease" default:"false"`
}

func (c clusters) lease(ctx context.Context, call *fn.Call, a leaseArgs) (*value.Dict, error) {
	if err := c.isolated(); err != nil {
		return nil, err
	}
	token, here := c.Voting.Once()
	out := value.DictOf("here", here)
	if s := c.Voting.Lease(ctx); s != nil {
		if here {
			out.Set("token", int64(token))
		}
		voters := value.NewDict(len(s.Voters) + len(s.Silent))
		for _, id := range slices.Sorted(maps.Keys(s.Voters)) {
			v := s.Voters[id]
			voters.Set(id, "grants no lease")
			if v.Holder != "" {
				voters.Set(id, "grants it to "+v.Holder)
			}
		}
		for id, why := range s.Silent {
			voters.Set(id, "cannot vote: "+why)
		}
		var holder any
		if s.Holder != "" {
			holder = s.Holder
		}
		out.Set("holder", holder)
		out.Set("majority", 2*len(s.Voters) > len(s.Voters)+len(s.Silent))
		out.Set("voters", voters)
	} else {
		out.Set("note", "cluster_voters is not set: of the masters that see each other, the first by id runs it; after a partition two may run it")
	}
	if _, now := c.Voting.Once(); a.Here && (!here || !now) {
		call.SetRetcode(1)
	}
	return out, nil
}
