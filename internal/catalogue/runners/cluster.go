package runners

import (
	"cmp"
	"context"
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

// Cluster is the cluster that the master is one of.
type Cluster interface {
	Members() []cluster.Member
	// Leads reports whether this master does what one of them should do.
	Leads() bool
	// Isolated reports whether they share no directory.
	Isolated() bool
	// Remove takes a member out for good and replaces the keys that it knew, Drop
	// takes one out that is lost, and Readmit lets a removed id join again.
	Remove(ctx context.Context, id string, keepSecret bool) (have, late []string, err error)
	Drop(id string) error
	Readmit(id string) error
	// Drain has minions use others than a member, or use it again.
	Drain(id string, on bool) error
	// Status asks the members how they are.
	Status(ctx context.Context) []cluster.Status
	// RotateSecret replaces the secret by which masters join.
	RotateSecret(ctx context.Context) (have, late []string, err error)
	// RotateKey replaces the key of the cluster.
	RotateKey(ctx context.Context, force bool) (have, late []string, err error)
	// Stations are the members as minions see them.
	Stations() map[string]roster.Member
}

// ClusterVoting decides which master of the cluster does what is to be done once.
type ClusterVoting interface {
	// Lease reports the lease for that, nil without voters; Once whether this master
	// may do it, and with which token.
	Lease(ctx context.Context) *lease.Status
	Once() (token uint64, may bool)
	// Voters are those that give the lease.
	Voters(ctx context.Context) []cluster.Voter
}

// ClusterRecords is what the masters of a cluster know of each other and of their work.
type ClusterRecords interface {
	// Check compares what they have.
	Check(ctx context.Context) (*value.Dict, error)
	// Health asks them how they find the cluster, by their ids.
	Health(ctx context.Context) map[string]*value.Dict
	// Work returns what was ordered for the whole cluster, or one job of it.
	Work(jid string) (*value.Dict, error)
	// Keys returns when and where was decided about keys that a glob means.
	Keys(match string) (*value.Dict, error)
	// Leave has this master leave the cluster, and end.
	Leave() error
}

// ClusterRoots are the file_roots and pillar_roots that all masters of a cluster serve.
type ClusterRoots interface {
	// Sync makes those of this master what all serve.
	Sync(ctx context.Context, o ClusterSyncOptions) (*value.Dict, error)
	// Revision tells what all serve, or what a job was given with.
	Revision(ctx context.Context, jid string) (*value.Dict, error)
	// Rollback goes back to an earlier state.
	Rollback(ctx context.Context, revision string, o ClusterSyncOptions) (*value.Dict, error)
}

// ClusterSyncOptions say how masters are to agree on other files.
type ClusterSyncOptions struct {
	// Test has nothing changed.
	Test bool
	// Force does not wait for masters that have not got all of it.
	Force bool
	// Timeout bounds that.
	Timeout time.Duration
}

// Clustering is the cluster of a master.
type Clustering struct {
	Cluster
	// ID is this master's name there.
	ID      string
	Voting  ClusterVoting
	Records ClusterRecords
	Roots   ClusterRoots
}

// clusters has the zero Clustering for a master of its own.
type clusters struct{ Clustering }

func init() { runners.Register("cluster", clusterModule) }

func clusterModule(d Deps) fn.Module {
	var c clusters
	if d.Cluster != nil {
		c.Clustering = *d.Cluster
	}
	return fn.Module{Name: "cluster", Doc: `The cluster of masters that this one belongs to.`, Funcs: []fn.Func{
		fn.Of("members", c.members, `Return the masters of the cluster and how they are.

Which can be reached from here, what is the matter with those that cannot, whether this one does what one of them
should do, and, without a shared directory, how many changes each has not got yet, whether it has spoken TLS to this one and when the certificate ends that it showed.`,
			fn.Example("salt-run cluster.members")),
		fn.Of("check", c.check, `Compare what the masters of a cluster without a shared directory have.

That is keys, jobs, returns, what is known of minions, tokens and the keys of the cluster. While minions return, or keys change, there may be differences that are gone a second later.`,
			fn.Example("salt-run cluster.check")),
		fn.Of("status", c.status, `Return how each master of the cluster is, by what it says itself.

The return code is 1 if one of them cannot be reached. Each row has:

id, state: here, up, or why it is not. leads: whether it does what one of them should do. version and since: of its program, and when that
was started. minions: how many are connected to it. draining: since when minions are to use others. zone. lag: how many changes it has not got yet
of those that this master has. clock: seconds by which its clock is ahead. certificate: without a shared directory, when the one ends that it shows now.`,
			fn.Example("salt-run cluster.status")),
		fn.Of("doctor", c.doctor, `Look for what is wrong with the cluster, and say what to do.

All members are asked, and how each sees the others: who can be reached from where, whether they are who the others think, whether secret, versions, cluster_voters and
the state of files are the same, clocks, lag, the majority of the voters and the witness, certificates, data, disks, minions that do not know all masters, who drains. The return code is 1 if there
are findings. brine ha doctor shows them as text.`,
			fn.Example("salt-run cluster.doctor")),
		fn.Of("rotate_secret", c.rotateSecret, `Replace the secret that a master must know to join, and the keys by which masters and minions read each other.

All members take the new one without a restart, and refuse who knows only the old one. It returns which have it, and which will when they are
back; the return code is 1 if one that can be reached has not taken it. The secret is in the file .secret in cluster_pki_dir, and not returned:
brine cluster rotate-secret shows it.`,
			fn.Example("salt-run cluster.rotate_secret")),
		fn.Of("rotate_key", c.rotateKey, `Replace the key of the cluster, by which minions know their masters.

The former key vouches for the new one, so minions of Brine take it when they sign in, which they do at the next message. It returns which members have it, and which
will when they are back; the return code is 1 if one that can be reached has not taken it. Minions of Salt take no other key: while some are connected it refuses, unless force=True.`,
			fn.Example("salt-run cluster.rotate_key")),
		fn.Of("drain", c.drain, `Have minions use other masters of the cluster than this or another one.

Minions of Brine that have learned of the masters (master_type: cluster) go within seconds, when their jobs have ended; see cluster.status for who is
left. Others stay. It lasts over restarts, until cluster.undrain.`,
			fn.Example("salt-run cluster.drain 192.0.2.3")),
		fn.Of("undrain", c.undrain, `Have minions use a master again that drains. They come back over master_rebalance seconds.`,
			fn.Example("salt-run cluster.undrain 192.0.2.3")),
		fn.Of("remove", c.remove, `Take a master out of the cluster for good.

Its key is deleted, and no other speaks with it any more. Those that cannot be reached now do the same as soon as they hear of it.
Without a shared directory the keys that it knew are replaced: the secret of session keys, the AES key, the joining secret, and tokens end. It returns which
members have the new joining secret, as cluster.rotate_secret does. keep_secret=True keeps the joining secret and tokens. Its id may not join again until cluster.readmit.`,
			fn.Example("salt-run cluster.remove 192.0.2.3"), fn.Example("salt-run cluster.remove 192.0.2.3 keep_secret=True")),
		fn.Of("readmit", c.readmit, `Let a master join again that was removed from a cluster without a shared directory.`,
			fn.Example("salt-run cluster.readmit 192.0.2.3")),
		fn.Of("recover", c.recover, `Take all masters out of a cluster without a shared directory that cannot be reached: most are lost for good.

Without sure=True it returns which those are, and does nothing. It refuses while a majority of cluster_voters answers: then nothing is lost, and
cluster.remove takes single masters out. With voters, brine cluster recover is to be used, which changes the configuration, too.`,
			fn.Example("salt-run cluster.recover"), fn.Example("salt-run cluster.recover sure=True")),
		fn.Of("lease", c.lease, `Return which master may do what one of the cluster is to do, and what the voters of cluster_voters say.

With here=True the exit code is 1 if that is not this master: a job of cron on all masters that begins with it works on one.`,
			fn.Example("salt-run cluster.lease"), fn.Example("salt-run cluster.lease here=True")),
		fn.Of("voters", c.voters, `Return how each of cluster_voters is, as this master sees it.

The return code is 1 if one of them cannot vote. Each row has:

voter, is: master or witness. votes: yes, or why it cannot. grants: whom it grants the lease now. token: the greatest that it has granted. tls: whether it is
asked by TLS. secret: of a witness, whether it has the secret of the cluster as it is now.

The list is that of the configuration, the same on all. To exchange a voter, stop the one that goes first, for good; then change the list on all and restart them.`,
			fn.Example("salt-run cluster.voters")),
		fn.Of("keys", c.keys,
			`Return of the keys of minions, also of deleted ones, in which state they are, since when, and on which master, by whom and how that was decided.

All masters say the same. who is a user, or the rule that let the minion in; unknown if a program has changed the file that does not tell.`,
			fn.Example("salt-run cluster.keys"), fn.Example("salt-run cluster.keys 'web*'")),
		fn.Of("work", c.work,
			`Return the runners that were ordered for the whole cluster (salt-run --cluster) in the last day, or one of them with what it returned.

Each has: fun, user, by: the master that took the order, at: when. state: ordered, running, done or failed. on and token: the master that has begun it, and its lease. runs: how
often it was begun. lost: the master that had begun it and died, or lost the lease.`,
			fn.Example("salt-run cluster.work"), fn.Example("salt-run cluster.work 20260101120000000000")),
		fn.Of("sync_roots", c.syncRoots,
			`Have all masters of a cluster without a shared directory serve the file_roots and pillar_roots of this one, as they are now.

Each gets what it lacks; when all that can be reached have everything, they switch at the same moment, and what is not there any more is gone. A master that
is unreachable does it when it is back, before it serves anything. From then on changes in these directories count when this is called again, on whichever master.`,
			fn.Example("salt-run cluster.sync_roots"), fn.Example("salt-run cluster.sync_roots test=True")),
		fn.Of("revision", c.revision,
			`Return which state of file_roots and pillar_roots the masters of the cluster have agreed on, who serves it, and what there was before; `+
				`or which one a job was given with.`,
			fn.Example("salt-run cluster.revision"), fn.Example("salt-run cluster.revision jid=20260101120000000000")),
		fn.Of("rollback", c.rollback,
			`Have all masters serve an earlier state of file_roots and pillar_roots: the one before, or one that cluster.revision names. The `+
				`directories themselves stay as they are.`,
			fn.Example("salt-run cluster.rollback"), fn.Example("salt-run cluster.rollback 3f1c09aa")),
		fn.Of("leave", c.leave, `Have this master leave a cluster without a shared directory, and end.

It takes no more requests, waits until the masters that can be reached have all that it has, and tells them that it is gone.`,
			fn.Example("salt-run cluster.leave")),
	}}
}

var errNoCluster = salt.Errorf(salt.Invalid, "this master is not one of a cluster: cluster_id is not set")

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
			// What it showed last, which may be of before it was restarted.
			d.Set("tls", m.TLS)
			if !m.CertificateEnds.IsZero() {
				d.Set("certificate", m.CertificateEnds.UTC().Format(time.RFC3339))
			}
		}
		out.Set(m.ID, d)
	}
	return out, nil
}

// checkTime bounds a comparison of all masters.
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
	KeepSecret bool   `salt:"keep_secret" doc:"keep the joining secret and tokens, for a machine that is repaired" default:"false"`
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

// lateness sets the return code if a member that can be reached has not taken a
// new secret.
func (c clusters) lateness(call *fn.Call, late []string) {
	for _, m := range c.Cluster.Members() {
		if m.Up && slices.Contains(late, m.ID) {
			call.SetRetcode(1)
		}
	}
}

type recoverArgs struct {
	Sure bool `salt:"sure" doc:"do it" default:"false"`
}

func (c clusters) recover(ctx context.Context, _ *fn.Call, a recoverArgs) (*value.Dict, error) {
	if err := c.isolated(); err != nil {
		return nil, err
	}
	if s := c.Voting.Lease(ctx); s != nil && len(s.Voters) > len(s.Silent) {
		return nil, salt.Errorf(salt.Invalid, "a majority of cluster_voters answers: nothing is lost; cluster.remove takes a master out")
	}
	lost := []string{}
	for _, s := range c.Cluster.Status(ctx) {
		switch {
		case s.Self:
		case !s.Up:
			lost = append(lost, s.ID)
		case s.Says == nil:
			return nil, salt.Errorf(salt.Unavailable, "%s is there and does not answer: stop it, or wait until it does", s.ID)
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
	Force bool `salt:"force" doc:"also if minions are connected that cannot take the new key" default:"false"`
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
	ID string `salt:"id" default:"" doc:"id of the master; empty: the one that is asked"`
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
		case s.Self:
			state = "here"
		case s.Problem != "":
			state = s.Problem
		case !s.Up:
			state = "away"
		case s.Says == nil && s.Kind != "salt":
			state = "does not answer"
		}
		row := value.DictOf("id", s.ID, "state", state)
		lag := int64(0)
		for _, n := range s.Behind {
			lag += n
		}
		for _, k := range []string{"leads", "version", "since", "minions", "files"} {
			row.Set(k, s.Says.At(k))
		}
		row.Set("zone", stations[s.ID].Zone)
		row.Set("share", int64(cmp.Or(stations[s.ID].Share, roster.FullShare)))
		row.Set("draining", stations[s.ID].Draining)
		row.Set("lag", lag)
		row.Set("clock", math.Round(s.Offset.Seconds()*1000)/1000)
		if c.Cluster.Isolated() {
			row.Set("certificate", s.Says.At("certificate"))
		}
		rows.Append(row)
		if !s.Self && state != "up" {
			call.SetRetcode(1)
		}
	}
	return rows, nil
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
	Test    bool          `salt:"test" doc:"tell what would change, and change nothing" default:"false"`
	Force   bool          `salt:"force" doc:"do not wait for masters that are there and do not get all of it" default:"false"`
	Timeout time.Duration `salt:"timeout" doc:"seconds that masters have to get what they lack" default:"300"`
}

func (a syncArgs) options() ClusterSyncOptions {
	return ClusterSyncOptions(a)
}

var errSharesFolder = salt.Errorf(salt.Invalid,
	"the masters of this cluster share a directory (cluster_isolated_filesystem is not set): put file_roots and pillar_roots there, or use gitfs and "+
		"git_pillar")

func (c clusters) isolated() error {
	switch {
	case c.Cluster == nil:
		return errNoCluster
	case !c.Cluster.Isolated():
		return errSharesFolder
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
	Revision string `salt:"revision" doc:"the beginning of its id; empty: the one before" default:""`
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
		return nil, salt.Errorf(salt.Invalid, "cluster_voters is not set: the first master by id does what one is to do, of those that see each other")
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

type leaseArgs struct {
	Here bool `salt:"here" doc:"exit with 1 if this is not the master" default:"false"`
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
			voters.Set(id, "grants it to no master")
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
		out.Set("note", "cluster_voters is not set: the first master by id does it, of those that see each other, so that two may")
	}
	if _, now := c.Voting.Once(); a.Here && (!here || !now) {
		call.SetRetcode(1)
	}
	return out, nil
}
