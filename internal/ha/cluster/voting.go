package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/cluster/wire"
	"brine/internal/ha/cluster/witness"
	"brine/internal/ha/lease"
	"brine/internal/ha/voter"
	"brine/internal/py/value"
)

// voting is the lease of a cluster without a shared directory, with its voters, some of which may be witnesses.
type voting struct {
	cfg            *Config
	log            *slog.Logger
	rateLimitedLog *limitlog.Log
	secrets        *keys.Secrets
	identity       *wire.Identity
	peers          *peerSet
	trust          *trust
	queries        *queries
	paths          members.Paths

	once   *lease.Holder // nil without voters
	voter  *voter.Driver // waits for an invitation if this master does not vote
	caller *witness.Master
	dir    string

	mu        sync.Mutex
	witnesses map[string]*witness.Link
}

// votersFile, in a master's own directory, stores the list of voters if a command has changed it.
const votersFile = "voters.json"

// maxLinks bounds the number of witnesses queried since the start.
const maxLinks = 64

// link returns the connection to a witness.
func (vt *voting) link(name string) (*witness.Link, error) {
	vt.mu.Lock()
	defer vt.mu.Unlock()
	l := vt.witnesses[name]
	if l == nil {
		if len(vt.witnesses) >= maxLinks {
			return nil, salt.Errorf(salt.Unavailable, "%d witnesses were asked since the start of this master: restart it", maxLinks)
		}
		l = &witness.Link{Master: vt.caller, Witness: name, Address: vt.cfg.Options.address(name)}
		vt.witnesses[name] = l
	}
	return l, nil
}

// askVote is the query from masters to masters that vote. askLease is its counterpart in versions before the voters agreed by raft.
const (
	askVote  = "vote"
	askLease = "lease"
)

// secretTag identifies the secret without disclosing it.
func (vt *voting) secretTag() string {
	s, err := vt.cfg.Options.secret()
	if err != nil {
		return ""
	}
	return witness.TagOf(s)
}

// isTag reports whether a tag sent by a witness is that of the current witness secret or, in older versions, of the joining secret.
func (vt *voting) isTag(tag string) bool {
	s, err := vt.cfg.Options.secret()
	return err == nil && tag != "" && (tag == witness.TagOf(witness.Secret(s)) || tag == witness.TagOf(s))
}

// vote prepares the lease of a cluster without a shared directory, if there are voters. close must follow.
func (vt *voting) vote(dir string) error {
	voters := vt.cfg.Options.Voters
	if !vt.cfg.Options.Isolated {
		return nil
	}
	path := filepath.Join(dir, witness.VoterFile)
	vt.dir = dir
	for _, name := range []string{askVote, askLease} {
		vt.queries.AnswerPeer(name, vt.answer)
	}
	if len(voters) == 0 {
		if err := os.Remove(filepath.Join(dir, votersFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return salt.Errorf(salt.Unavailable, "cannot remove the list of voters: %w", err)
		}
		return voter.Retire(path)
	}
	learned, err := vt.readVoters()
	if err != nil {
		return err
	}
	cfg := voter.Config{Name: vt.cfg.ID, Voters: voters, Path: path, MayLead: func(name string) bool { return vt.peers.all()[name] != nil }, Log: vt.log}
	if vt.voter, err = voter.Drive(cfg, vt.post, vt.askVoter); err != nil {
		return err
	}
	vt.witnesses = map[string]*witness.Link{}
	vt.caller = &witness.Master{ID: vt.cfg.ID, Cluster: vt.cfg.Options.ID, Identity: vt.identity, Own: vt.cfg.Own, Update: vt.clusterInfo,
		Dir: filepath.Join(dir, witness.Dir), Log: vt.rateLimitedLog}
	vt.once = lease.NewHolder(vt.cfg.ID, lease.Voters{Names: voters, Group: lease.Fingerprint(voters), Ask: vt.askVoter, Learned: vt.learned}, vt.log)
	if l := vt.voter.List(); l.Changed > learned.Changed || l.Changed > 0 && l.Group != learned.Group {
		learned = l
	} else if learned.Changed > 0 {
		vt.compareConfigured(learned)
	}
	vt.once.Know(learned)
	return nil
}

// readVoters returns the stored list of voters; it is empty unless a command has changed the voters.
func (vt *voting) readVoters() (l lease.List, err error) {
	path := filepath.Join(vt.dir, votersFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		return l, salt.Errorf(salt.Unavailable, "cannot read the list of voters %s: %w; if it is damaged, remove it: the voters say it again", path, err)
	}
	return l, nil
}

// learned stores the holder's list if a command has changed it, and removes the file if the configured list is valid again.
func (vt *voting) learned(lease.List) {
	vt.mu.Lock()
	defer vt.mu.Unlock()
	l := vt.once.List()
	path := filepath.Join(vt.dir, votersFile)
	b, err := json.Marshal(l)
	if err == nil && l.Changed == 0 {
		err = os.Remove(path)
	} else if err == nil {
		err = atomicfile.Write(path, b, 0o600, true)
	}
	if err != nil {
		vt.log.Error("cannot store the list of voters: after a restart this master begins with cluster_voters of its configuration", "path", path, "err", err)
	}
	if !slices.Contains(l.Names, vt.cfg.ID) { // otherwise the voter logs it
		vt.compareConfigured(l)
	}
}

// compareConfigured logs a warning if the configured list is not the current one.
func (vt *voting) compareConfigured(l lease.List) {
	if configured := vt.cfg.Options.Voters; lease.Fingerprint(l.Names) != lease.Fingerprint(configured) {
		vt.log.Warn("cluster_voters in the configuration does not count: a command has changed the voters; correct the configuration",
			"configured", strings.Join(configured, ", "), "voters", strings.Join(l.Names, ", "))
	}
}

// List returns the voters known to this master.
func (vt *voting) List() lease.List {
	if vt.once == nil {
		return lease.List{Names: vt.cfg.Options.Voters}
	}
	return vt.once.List()
}

// ChangeVoters adds or removes a voter, and waits until that is done.
func (vt *voting) ChangeVoters(ctx context.Context, op lease.Op, id string, force bool) (lease.List, error) {
	if vt.once == nil {
		return lease.List{}, salt.Errorf(salt.Invalid, "cluster_voters is not set: set it to three or five masters or witnesses on all masters, and restart them")
	}
	return vt.once.ChangeVoters(ctx, op, id, force)
}

// run takes part in voting until ctx ends.
func (vt *voting) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if vt.voter != nil {
		wg.Go(func() {
			if err := vt.voter.Run(ctx); err != nil {
				vt.log.Error("cannot close the state of this voter", "err", err)
			}
		})
	}
	if vt.once != nil {
		wg.Go(func() { vt.once.Run(ctx, vt.peers.first) })
	}
}

// close releases what vote acquired, if run was not called.
func (vt *voting) close() error {
	if vt.voter == nil {
		return nil
	}
	return vt.voter.Close()
}

// answer answers a voter's query from another master.
func (vt *voting) answer(peer string, arg *value.Dict) *value.Dict {
	ctx, cancel := context.WithTimeout(context.Background(), lease.AskTime)
	defer cancel()
	return witness.Reply(ctx, vt.node(), peer, arg, vt.rateLimitedLog.Log)
}

// node returns this master's voter, nil if it does not vote.
func (vt *voting) node() *voter.Node {
	if vt.voter == nil {
		return nil
	}
	return vt.voter.Node
}

// post sends a packet to another voter.
func (vt *voting) post(ctx context.Context, to string, p voter.Packet) (voter.Packet, error) {
	arg, err := witness.PacketDict(p)
	if err != nil {
		return voter.Packet{}, err
	}
	var d *value.Dict
	if vt.peers.all()[to] != nil {
		d, err = vt.queries.AskOne(ctx, to, askVote, arg)
	} else if l, problem := vt.link(to); problem != nil {
		err = problem
	} else {
		d, err = l.Pass(ctx, arg)
	}
	if err != nil {
		return voter.Packet{}, err
	}
	return witness.ReadPacket(d)
}

// askVoter sends a request to a voter: this master, another master, or a witness.
func (vt *voting) askVoter(ctx context.Context, name string, r lease.Request) (lease.Answer, error) {
	if name == vt.cfg.ID && vt.voter != nil {
		return vt.voter.Answer(ctx, r)
	}
	arg, err := witness.RequestDict(r)
	if err != nil {
		return lease.Answer{}, err
	}
	var d *value.Dict
	switch {
	case vt.peers.all()[name] != nil:
		d, err = vt.queries.AskOne(ctx, name, askVote, arg)
	case r.Op == lease.Query || r.Op == lease.Past:
		var l *witness.Link
		if l, err = vt.link(name); err == nil {
			d, err = l.Ask(ctx, arg)
		}
	default:
		return lease.Answer{}, nil // a witness grants no lease
	}
	if err != nil {
		return lease.Answer{}, err
	}
	a, err := witness.ReadAnswer(d)
	if a.Why != "" {
		vt.rateLimitedLog.Warn("voter "+name, "a voter grants no lease", "voter", name, "reason", a.Why)
	}
	return a, err
}

// Lease returns the state of the lease, nil if there are no voters.
func (vt *voting) Lease(ctx context.Context) *lease.Status {
	if vt.once == nil {
		return nil
	}
	s := vt.once.Status(ctx)
	return &s
}

// Once reports whether this master may do work that only one master may do, and the token for it. Without voters it is the reachable
// master with the lowest id, and the token is 0.
func (vt *voting) Once() (token uint64, may bool) {
	if vt.once == nil {
		return 0, vt.peers.first()
	}
	return vt.once.Token()
}

// Votes reports whether a majority of voters decides which master does work that only one may do.
func (vt *voting) Votes() bool { return vt.once != nil }

// Claim calls lease.Holder.Claim.
func (vt *voting) Claim(ctx context.Context, name string) (token uint64, by string, err error) {
	if vt.once == nil {
		return 0, "", salt.Errorf(salt.Invalid, "cluster_voters is not set")
	}
	return vt.once.Claim(ctx, name)
}

// clusterInfo returns the current update for witnesses.
func (vt *voting) clusterInfo() (t witness.Update, err error) {
	if t.Secret, err = vt.cfg.Options.secret(); err != nil {
		return t, err
	}
	if fi, err := os.Stat(filepath.Join(vt.cfg.Options.PKIDir, keys.SecretFile)); err == nil {
		t.SecretFrom = fi.ModTime()
	}
	if fi, err := os.Stat(vt.paths.PeersDir()); err == nil {
		t.MembersFrom = fi.ModTime()
	}
	t.Members = map[string]string{vt.cfg.ID: string(vt.cfg.OwnPub)}
	for id, p := range vt.peers.all() {
		if p.isGone() {
			continue
		}
		if text, err := os.ReadFile(vt.secrets.PeerPath(id)); err == nil {
			t.Members[id] = string(text)
		}
	}
	t.Tls = vt.trust.allTLS()
	return t, nil
}

// outside returns the known voters that are not masters.
func (vt *voting) outside() []string {
	var out []string
	l := vt.List()
	for _, v := range slices.Concat(l.Names, l.Learners) {
		if v != vt.cfg.ID && vt.peers.all()[v] == nil {
			out = append(out, v)
		}
	}
	return out
}

// informed reports whether a witness has the current joining secret. The error is the reason why it will not get it soon.
func (vt *voting) informed(ctx context.Context, id string) (bool, error) {
	if vt.once == nil {
		return false, salt.Errorf(salt.Unavailable, "this master has no connection to it")
	}
	l, err := vt.link(id)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, wire.DialTime)
	defer cancel()
	arg, err := witness.RequestDict(lease.Request{Op: lease.Query, Group: vt.List().Group})
	if err != nil {
		return false, err
	}
	_, err = l.Ask(ctx, arg) // the answer does not matter: the update is sent before the query
	up, byTLS, knows := l.State()
	if err == nil && up && !byTLS {
		err = salt.Errorf(salt.Unavailable, "it does not support TLS, and cannot receive a secret")
	}
	return err == nil && vt.isTag(knows), err
}

// Voters queries the voters. They are in the order of the configuration unless a command has changed the list.
func (vt *voting) Voters(ctx context.Context) (voters []Voter) {
	s := vt.Lease(ctx)
	if s == nil {
		return nil
	}
	outside := vt.outside()
	l := vt.List()
	for _, id := range slices.Concat(l.Names, l.Learners) {
		v := Voter{ID: id, Witness: slices.Contains(outside, id), Why: s.Silent[id]}
		if a, ok := s.Voters[id]; ok {
			v.Votes, v.Holder, v.Token = true, a.Holder, a.Seen
		}
		if slices.Contains(l.Learners, id) {
			v.Why = "it was added, and gets the state of the others before it votes"
		}
		if p := vt.peers.all()[id]; p != nil {
			v.TLS = p.member().TLS
		} else if l, err := vt.link(id); v.Witness && err == nil {
			_, byTLS, knows := l.State()
			v.TLS, v.Secret = byTLS, vt.isTag(knows)
		} else {
			v.TLS = true
		}
		voters = append(voters, v)
	}
	return voters
}
