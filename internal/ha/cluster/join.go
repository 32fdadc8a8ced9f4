package cluster

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// Times of joining.
const (
	// foundTime is how long a master that may create the cluster waits for unreachable masters. It creates none while one of them
	// accepts connections.
	foundTime = 5 * time.Second
	// joinTime is how long a master that may not create the cluster waits for a member.
	joinTime  = 60 * time.Second
	joinPause = 200 * time.Millisecond
	// joinStoreTime is the timeout for the keys in the store of record.
	joinStoreTime = 10 * time.Second
)

// establish ensures that this master has the keys of the cluster: they exist already, or a member sends them, or this master creates the
// cluster. If no peer is a member yet, the master with the lowest id (of cluster_peers and itself) creates the cluster. No other master
// ever creates keys, so that of several that start at once only one does.
func establish(cfg *Config, log *slog.Logger) (isNew bool, err error) {
	path := filepath.Join(cfg.Options.PKIDir, keys.PairName+".pem")
	if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if len(cfg.Options.Peers) > 0 {
		if err := cfg.Options.checkJoin(); err != nil {
			return false, err
		}
	}
	founder := cfg.Options.founds(cfg.ID)
	if !founder && len(cfg.Options.Peers) == 0 {
		return false, salt.Errorf(salt.Invalid, "cluster_pub_fingerprint is that of a cluster to join, and cluster_peers names no member of it")
	}
	from := time.Now()
	for told := false; ; told = true {
		unreachable, listening, last := 0, "", error(nil)
		var missing error // why the store of record does not let this master create the cluster
		if cfg.Store != nil {
			joined, err := joinStore(cfg)
			switch {
			case joined && err == nil:
				log.Info("got the keys of the cluster from the store of record", "cluster", cfg.Options.ID)
				return true, nil
			case err != nil && (joined || salt.KindOf(err) != salt.Unavailable):
				return false, err
			}
			missing = err
		}
		for _, id := range cfg.Options.Peers {
			err := join(cfg, id)
			var no *refusal.Error
			switch {
			case err == nil:
				log.Info("joined the cluster", "cluster", cfg.Options.ID, "peer", id)
				return true, nil
			case errors.As(err, &no):
				return false, salt.Errorf(salt.Invalid, "this master cannot join the cluster at %s: %s", id, no.Reason)
			case errors.Is(err, syscall.ECONNREFUSED):
			case errors.As(err, new(unreachableError)):
				unreachable++
			default: // it may be a member that is busy or stopping
				listening = id
			}
			if listening == "" || listening == id {
				last = err
			}
		}
		waited := time.Since(from)
		switch {
		case founder && missing == nil && listening == "" && (unreachable == 0 || waited > foundTime):
			log.Warn("creating a new cluster: no other master answers. To join an existing one instead, stop this master, remove cluster_pki_dir, "+
				"and name a running member in cluster_peers", "cluster", cfg.Options.ID)
			return true, nil
		case waited > joinTime && founder && missing != nil && listening == "":
			return false, salt.Errorf(salt.Unavailable, "this master has no keys of the cluster in cluster_pki_dir and cannot get them from the store of record: %w",
				missing)
		case waited > joinTime && listening != "":
			return false, salt.Errorf(salt.Unavailable,
				"the master at %s takes connections on port %d but does not let this one join: see its log, and restart it, or remove it from "+
					"cluster_peers: %w",
				listening, cfg.Options.Port, last)
		case waited > joinTime:
			first := slices.MinFunc(cfg.Options.Peers, func(a, b string) int { return strings.Compare(canonical(a), canonical(b)) }) + " first, which creates it"
			if cfg.Options.Fingerprint != "" {
				first = "one of them"
			}
			return false, salt.Errorf(salt.Unavailable, "no master of the cluster answers on port %d (%s): start %s, or correct cluster_peers: %w",
				cfg.Options.Port, strings.Join(cfg.Options.Peers, ", "), first, last)
		case !told:
			log.Info("waiting for a member of the cluster, to join it there", "cluster", cfg.Options.ID, "cluster_peers",
				strings.Join(cfg.Options.Peers, ", "))
		}
		time.Sleep(joinPause)
	}
}

// joinStore writes the keys of the cluster that the store of record has to cluster_pki_dir. If the store has none, joined is
// false, and err is nil if this master may create them.
func joinStore(cfg *Config) (joined bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinStoreTime)
	defer cancel()
	w, err := cfg.Store.Keys(ctx)
	switch {
	case err != nil:
		return false, err
	case w == nil:
		return false, cfg.Store.Claim(ctx)
	}
	return true, settle(cfg, w)
}

// founds reports whether the master id creates the cluster if no peer is a member yet. A master that knows the
// fingerprint of the cluster's key joins an existing cluster.
func (o *Options) founds(id string) bool {
	return o.Fingerprint == "" && !slices.ContainsFunc(o.Peers, func(p string) bool { return canonical(p) <= canonical(id) })
}

// Join makes this machine a member of a cluster through a running member, and writes the cluster's keys to cluster_pki_dir. A master
// without these keys joins at its start. An error of kind Denied is the member's answer.
func Join(cfg *Config, member string) error {
	if err := cfg.Options.checkJoin(); err != nil {
		return err
	}
	err := join(cfg, member)
	var no *refusal.Error
	if errors.As(err, &no) {
		return salt.Errorf(salt.Denied, "%s", no.Reason)
	}
	return err
}

// callMember connects to a master at which this one may not be known, and prepares the handshake of a joining master.
func callMember(cfg *Config, id string) (conn *wire.Line, frames *event.FrameReader, j *memberauth.Joiner, err error) {
	d := net.Dialer{Timeout: wire.DialTime}
	if ip := net.ParseIP(cfg.ID); ip != nil {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	dial := func() (net.Conn, error) {
		conn, err := d.Dial("tcp", cfg.Options.address(id))
		if err != nil {
			return nil, unreachableError{err}
		}
		return conn, conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
	}
	raw, err := dial()
	if err != nil {
		return nil, nil, nil, err
	}
	// The member is authenticated by messages inside TLS that are bound to this connection.
	conn, err = (*wire.Identity)(nil).Client(context.Background(), raw, func(*x509.Certificate) *refusal.Error { return nil })
	if wire.HasNoTLS(err) {
		// If all members use TLS, none answers without TLS.
		raw.Close()
		if raw, err = dial(); err != nil {
			return nil, nil, nil, err
		}
		conn = &wire.Line{Conn: raw, Raw: raw}
	}
	if err != nil {
		raw.Close()
		return nil, nil, nil, err
	}
	frames = event.NewFrameReader(wire.Count(conn, new(atomic.Int64)), wire.MaxGreeting)
	return conn, frames, memberauth.NewJoiner(memberauth.Applicant{
		ID: cfg.ID, Cluster: cfg.Options.ID, Member: id, Secret: cfg.Options.Secret, Fingerprint: cfg.Options.Fingerprint, Own: cfg.Own, OwnPub: cfg.OwnPub,
	}, connOf(conn)), nil
}

func join(cfg *Config, id string) error {
	conn, frames, j, err := callMember(cfg, id)
	if err != nil {
		return err
	}
	defer conn.Raw.Close()
	send := func(body []byte) error {
		_, err := conn.Write(event.Frame(body))
		frames.SetLimit(maxWelcome)
		return err
	}
	if _, err := drive(j, nil, frames.Next, send, func(error) {}); err != nil {
		return err
	}
	return settle(cfg, j.Welcome)
}

// identify asks the master at an address for its id and the key of its cluster.
func identify(cfg *Config, address string) (id string, clusterKey *crypt.PublicKey, err error) {
	conn, frames, j, err := callMember(cfg, address)
	if err != nil {
		return "", nil, err
	}
	defer conn.Raw.Close()
	out, err := j.Step(nil, time.Now())
	if err == nil {
		_, err = conn.Write(event.Frame(out.Send))
	}
	var reply []byte
	if err == nil {
		reply, err = frames.Next()
	}
	if err != nil {
		return "", nil, err
	}
	return j.Identify(reply)
}

// foreign finds masters that cluster_peers names and that are in another cluster: if several masters start for the first time at once,
// and each names the others differently, each may create a cluster.
type foreign struct {
	mu      sync.Mutex
	met     map[string]bool   // entries of cluster_peers that name a member, maybe not by its id
	reasons map[string]string // by entry of cluster_peers
}

// look asks the masters of cluster_peers that are no members by that name for their cluster, and returns the new reasons.
func (f *foreign) look(cfg *Config, peers *peerSet, ring *keys.Ring) map[string]string {
	news := map[string]string{}
	for _, entry := range cfg.Options.Peers {
		f.mu.Lock()
		met := f.met[entry]
		f.mu.Unlock()
		if met || peers.all()[entry] != nil {
			continue
		}
		id, key, err := identify(cfg, entry)
		no := refusal.Of(err)
		if err != nil && no == nil {
			continue // unreachable, or of a version that does not answer
		}
		why := ""
		switch {
		case no != nil:
			why = no.Reason
		case !key.Equal(ring.Key.Public()) && !ring.Related(nil, keys.Tag(key)):
			why = fmt.Sprintf("the master there, %s, is in another cluster of the name %s, with the fingerprint %s", id, cfg.Options.ID, keys.Tag(key))
		}
		f.mu.Lock()
		if f.met == nil {
			f.met, f.reasons = map[string]bool{}, map[string]string{}
		}
		switch {
		case why == "":
			f.met[entry] = true
			delete(f.reasons, entry)
		case f.reasons[entry] != why:
			f.reasons[entry], news[entry] = why, why
		}
		f.mu.Unlock()
	}
	return news
}

// maxWelcome bounds the last message in bytes: it has the keys of all members.
const maxWelcome = 4 << 20

// settle writes the keys. The cluster's key is last: once it exists, this master is a member.
func settle(cfg *Config, welcome *wire.Welcome) error {
	if cfg.Joins != nil {
		if err := cfg.Joins(); err != nil {
			return salt.Errorf(salt.Unavailable, "cannot move away the state of an earlier membership: %w", err)
		}
	}
	dir := cfg.Options.PKIDir
	peers := filepath.Join(dir, keys.PeersDir)
	for _, made := range []struct {
		path string
		mode fs.FileMode
	}{{dir, 0o700}, {peers, 0o755}} {
		if err := os.MkdirAll(made.path, made.mode); err != nil {
			return salt.Errorf(salt.Unavailable, "cannot create a directory of the cluster: %w", err)
		}
	}
	if _, err := crypt.NewCrypticle(welcome.AES); err != nil {
		return fmt.Errorf("the AES key of the cluster is invalid: %w", err)
	}
	for k, pub := range welcome.Peers.All() {
		id := value.Str(k)
		text, _ := pub.([]byte)
		if _, err := crypt.ParsePublic(text); salt.CheckID(id) != nil || err != nil {
			return fmt.Errorf("the key of the member %.80q is invalid", id)
		}
		if id != cfg.ID {
			if err := atomicfile.Write(filepath.Join(peers, id+".pub"), text, 0o644, true); err != nil {
				return err
			}
		}
	}
	// It shows that this id has joined; see renamed.
	if err := atomicfile.Write(filepath.Join(peers, cfg.ID+".pub"), cfg.OwnPub, 0o644, true); err != nil {
		return err
	}
	key, err := crypt.ParsePrivate(welcome.ClusterPEM, cfg.Options.KeyPass)
	if err != nil {
		return fmt.Errorf("the key of the cluster is invalid: %w", err)
	}
	if pub, err := crypt.ParsePublic(welcome.ClusterPub); err != nil || !pub.Equal(key.Public()) {
		return errors.New("the private and public key of the cluster do not match")
	}
	clusterPEM, err := key.EncryptedPEM(cfg.Options.KeyPass)
	if err != nil {
		return err
	}
	// A member of an older version has no secret for session keys.
	if s := welcome.Sessions; s != "" {
		if _, err := crypt.NewCrypticle(s); err != nil {
			return fmt.Errorf("the secret of session keys that the member sent is invalid: %w", err)
		}
		if err := atomicfile.Write(filepath.Join(dir, keys.SessionFile), []byte(s), 0o600, true); err != nil {
			return err
		}
	}
	var r keys.Rotation
	if b := welcome.Rotation; len(b) > 0 && json.Unmarshal(b, &r) == nil && r.Pub != "" {
		if err := atomicfile.Write(filepath.Join(dir, keys.RotationFile), b, 0o644, true); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name    string
		content []byte
		mode    fs.FileMode
	}{
		{keys.AESName, []byte(welcome.AES), 0o600},
		{keys.PairName + ".pub", welcome.ClusterPub, 0o644},
		{keys.PairName + ".pem", clusterPEM, 0o400},
	} {
		if err := atomicfile.Write(filepath.Join(dir, f.name), f.content, f.mode, true); err != nil {
			return err
		}
	}
	return nil
}

// renamed returns an error if this master was a member under another id. Its jobs, records and queued returns are in the directory
// of that id, and the other members would count both ids.
func renamed(cfg *Config) error {
	dir := cfg.Options.PKIDir
	if _, err := os.Lstat((&keys.Secrets{Dir: dir}).PeerPath(cfg.ID)); err == nil {
		return nil
	}
	pub, err := crypt.ParsePublic(cfg.OwnPub)
	if err != nil {
		return nil // OpenSecrets reports it
	}
	ids, err := keys.Holders(dir, pub, cfg.ID)
	if err != nil {
		return err
	}
	// Masters with one key, as of copied machines, name each other.
	ids = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(cfg.Options.Peers, id) })
	if len(ids) == 0 {
		return nil
	}
	old := ids[0]
	if !cfg.Options.Isolated {
		return salt.Errorf(salt.Invalid,
			"the id of this master was %s and is %s now: set id back, or, to change it, rename %s to %[2]s, remove %s, and name %[2]s in cluster_peers of the others",
			old, cfg.ID, filepath.Join(cfg.CacheDir, ownDir, old), (&keys.Secrets{Dir: dir}).PeerPath(old))
	}
	return salt.Errorf(salt.Invalid,
		"the id of this master was %s and is %s now, and what it stored as %[1]s may not be on the other masters yet: set id back and start it. To change the "+
			"id, run brine cluster leave then, remove %s and %s, set the new id, and start it", old, cfg.ID, dir,
		filepath.Join(cfg.CacheDir, ownDir, old))
}

// admission decides about joining masters.
type admission struct {
	*trust
	o          *Options
	id         string
	pub        []byte // its own public key
	clusterPub []byte
	ring       *keys.Ring
}

// AllTLS implements memberauth.Admission.
func (a *admission) AllTLS() bool { return a.allTLS() }

// Secret implements memberauth.Admission.
func (a *admission) Secret() (string, error) { return a.o.secret() }

// Banned implements memberauth.Admission.
func (a *admission) Banned(id string) (*refusal.Error, error) {
	r, removed, err := a.files.Banned(id)
	if err != nil || !removed {
		return nil, err
	}
	return refusal.New(refusal.Removed, "%s was removed from this cluster (on %s, at %s): to let it join again, run brine cluster readmit %[1]s on a member",
		id, r.By, wire.Stamp(r.At)), nil
}

// Welcome implements memberauth.Admission.
func (a *admission) Welcome(id string, pub []byte) (*wire.Welcome, error) {
	if err := a.double(id, pub); err != nil {
		return nil, err
	}
	// The other members get the key of the new one before it gets theirs.
	if err := atomicfile.Write(a.secrets.PeerPath(id), pub, 0o644, true); err != nil {
		return nil, err
	}
	all := value.DictOf(a.id, a.pub)
	for other := range a.peers.all() {
		if text, err := os.ReadFile(a.secrets.PeerPath(other)); err == nil {
			all.Set(other, text)
		}
	}
	rotated, err := json.Marshal(a.ring.Rotation)
	if err != nil {
		return nil, err
	}
	return &wire.Welcome{ClusterPEM: a.ring.Key.PEM(), ClusterPub: a.clusterPub, AES: a.secrets.AES.Current(), Sessions: a.secrets.Sessions.Current(),
		Rotation: rotated, Peers: all}, nil
}

// double returns the refusal of a joining master that has the key of another, unreachable member: it may be that member with a new
// id, which must not count twice. A copy of a machine whose original runs may join.
func (a *admission) double(id string, pub []byte) error {
	key, err := crypt.ParsePublic(pub)
	if err != nil {
		return err
	}
	ids, err := keys.Holders(a.o.PKIDir, key, id)
	if err != nil {
		return err
	}
	for _, old := range ids {
		if p := a.peers.all()[old]; p != nil && !p.isGone() && !p.member().Up {
			return refusal.New(refusal.ID, "%s has the key of the member %s, which is not connected. If it is that master with a new id, run "+
				"brine cluster remove %[2]s on a member, and start it again; if it is a copy of that machine, remove master.pem and master.pub in "+
				"its pki_dir, and start it again", id, old)
		}
	}
	return nil
}
