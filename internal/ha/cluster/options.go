package cluster

import (
	"cmp"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/lease"
	"brine/internal/ha/record"
	"brine/internal/ha/roster"
	"brine/internal/net/remote/rows"
)

// Options configure a master of a cluster. Names and meanings are Salt's.
type Options struct {
	ID      string   `salt:"cluster_id" default:"" doc:"name of the cluster that this master belongs to; empty: none" change:"restart"`
	Peers   []string `salt:"cluster_peers" default:"[]" doc:"the other masters of the cluster: addresses or names that are their ids" change:"restart"`
	PKIDir  string   `salt:"cluster_pki_dir" default:"" doc:"directory of the keys of the cluster and of minions, shared by all masters unless cluster_isolated_filesystem is set; empty: pki_dir" change:"restart"`
	Port    int      `salt:"cluster_pool_port" default:"4520" doc:"port for connections between masters of a cluster" change:"restart"`
	Zone    string   `salt:"cluster_zone" default:"" doc:"zone of this master; minions with the same master_zone prefer it (Brine only)" change:"restart"`
	KeyPass string   `salt:"cluster_key_pass" default:"" doc:"passphrase of cluster.pem" change:"restart"`

	Weight   int  `salt:"cluster_weight" default:"100" doc:"share of the minions for this master, relative to the cluster_weight of the others: 1 to 10000; 0 is 100 (Brine only)" change:"restart"`
	ShedLoad bool `salt:"cluster_shed_load" default:"true" doc:"request a smaller share of minions, down to a quarter, while the processors of this machine are more than 90 percent busy (Brine only)" change:"restart"`

	MinionAddress string `salt:"cluster_minion_address" default:"" doc:"address or name that minions use for this master; empty: its id (Brine only)" change:"restart"`

	Isolated     bool   `salt:"cluster_isolated_filesystem" default:"false" doc:"the masters share no directory and replicate their state over the network" change:"restart"`
	Secret       string `salt:"cluster_secret" default:"" doc:"secret that a master needs to join a cluster without a shared directory" change:"restart"`
	Fingerprint  string `salt:"cluster_pub_fingerprint" default:"" doc:"SHA-256, in hexadecimal digits, of the file cluster.pub of the cluster to join; empty: a member is authenticated by cluster_secret only" change:"restart"`
	KeepDeleted  int64  `salt:"cluster_keep_deleted_seconds" default:"2592000" least:"0" doc:"minimum seconds for which masters without a shared directory remember deletions of keys and minion data; longer while one of them is unreachable; 0: forever (Brine only)" change:"restart"`
	Copies       int    `salt:"cluster_return_copies" default:"3" doc:"number of masters without a shared directory on which each return is stored; the others ask them for it; 0: all masters (Brine only)" change:"restart"`
	Record       string `salt:"store_of_record" default:"" doc:"server on which the masters keep what they must not lose: etcd or postgres, with the connection options of the cache driver of that name; empty: none (Brine only)" change:"restart"`
	RecordSecret string `salt:"store_of_record_secret" default:"" doc:"secret with which the masters encrypt what they keep there: at least 32 hexadecimal digits, the same on all (Brine only)" change:"restart"`

	Voters []string `salt:"cluster_voters" default:"[]" doc:"three or five masters or witnesses whose majority grants the lease for work that only one master may do; the same list on all; empty: the first reachable master by id does it" change:"restart"`
}

func (o *Options) weight() int { return cmp.Or(o.Weight, roster.FullShare) }

// On reports whether the master belongs to a cluster.
func (o *Options) On() bool { return o.ID != "" }

// Check finds settings that would make stock masters drop events silently: invalid peers, and an id that cannot be the address under
// which peers know this master. chosen reports whether the option id is set; listen is the address that the master listens on
// (interface).
func (o *Options) Check(id string, chosen bool, listen string) error {
	switch {
	case !chosen:
		return salt.Errorf(salt.Invalid,
			"cluster_id is set and id is not: the peers would know this master as %s, which is not an address; set id to the name by which "+
				"cluster_peers of the others name it", id)
	case salt.CheckID(id) != nil:
		return salt.Errorf(salt.Invalid, "id: %w", salt.CheckID(id))
	case o.Port < 1 || o.Port > 65535:
		return salt.Errorf(salt.Invalid, "cluster_pool_port: %d is not a port", o.Port)
	case o.Isolated && len(o.Secret) < keys.MinSecret:
		return salt.Errorf(salt.Invalid,
			"cluster_isolated_filesystem needs a cluster_secret of at least %d characters, the same on all masters: it permits joining; generate one "+
				"with openssl rand -hex 16", keys.MinSecret)
	case o.Isolated && o.Fingerprint != "" && !keys.IsFingerprint(o.Fingerprint):
		return salt.Errorf(salt.Invalid,
			"cluster_pub_fingerprint is not a SHA-256 of 64 hexadecimal digits: %.80q; on a member, sha256sum shows that of cluster.pub in cluster_pki_dir",
			o.Fingerprint)
	}
	if err := (roster.Member{ID: id, Host: cmp.Or(o.MinionAddress, id), Zone: o.Zone, Ports: map[string]int{"": 1}}).Check(); err != nil {
		return salt.Errorf(salt.Invalid, "cluster_minion_address or cluster_zone: %w", err)
	}
	if o.Copies < 0 || o.Copies == 1 {
		return salt.Errorf(salt.Invalid, "cluster_return_copies: %d is not 0 (all masters) or at least 2: with one copy, the loss of a disk would lose returns",
			o.Copies)
	}
	if o.Weight < 0 || o.Weight > roster.MaxShare {
		return salt.Errorf(salt.Invalid, "cluster_weight: %d is not from 0 to %d", o.Weight, roster.MaxShare)
	}
	if err := o.CheckRecord(); err != nil {
		return err
	}
	if err := checkSpelling(id); err != nil {
		return salt.Errorf(salt.Invalid, "id: %w", err)
	}
	seen := map[string]string{}
	for _, p := range o.Peers {
		if err := checkSpelling(p); err != nil {
			return salt.Errorf(salt.Invalid, "cluster_peers: %w", err)
		}
		c := canonical(p)
		switch other, twice := seen[c]; {
		case c == canonical(id):
			return salt.Errorf(salt.Invalid, "cluster_peers names %s, which is this master itself; name only the others", p)
		case twice && other == p:
			return salt.Errorf(salt.Invalid, "cluster_peers names %s twice", p)
		case twice:
			return salt.Errorf(salt.Invalid, "cluster_peers names one master twice, as %s and %s: name it once, by its id", other, p)
		}
		seen[c] = p
	}
	if len(o.Voters) > 0 && !o.Isolated {
		return salt.Errorf(salt.Invalid,
			"cluster_voters is for clusters without a shared directory (cluster_isolated_filesystem); with one, the lease is a file there")
	}
	if err := lease.CheckVoters(o.Voters); err != nil {
		return err
	}
	return ownAddress(id, listen)
}

// canonical returns one form of all spellings of an address or name.
func canonical(name string) string {
	if ip := net.ParseIP(name); ip != nil {
		return ip.String()
	}
	return strings.ToLower(name)
}

// checkSpelling rejects what is not the address or name of a master alone. Masters know each other by these texts.
func checkSpelling(p string) error {
	host, _, err := net.SplitHostPort(p)
	bare := strings.TrimSuffix(strings.TrimPrefix(p, "["), "]")
	switch {
	case strings.TrimSpace(p) == "":
		return salt.Errorf(salt.Invalid, "an entry is empty; remove it")
	case salt.CheckID(p) != nil || strings.ContainsAny(p, "/ "):
		return salt.Errorf(salt.Invalid, "%.80q is not an address or name", p)
	case net.ParseIP(p) == nil && err == nil:
		return salt.Errorf(salt.Invalid, "write %.80q without a port, as %s: cluster_pool_port is the port of all masters", p, host)
	case bare != p:
		return salt.Errorf(salt.Invalid, "write %.80q without brackets, as %s", p, bare)
	case strings.HasSuffix(p, "."):
		return salt.Errorf(salt.Invalid, "write %.80q without the dot at its end", p)
	}
	return nil
}

// joinSecret is the minimum number of hexadecimal digits of the secret for joining a cluster whose fingerprint is unknown. The joining
// master proves the secret to an unauthenticated peer, which can guess a weak one offline.
const joinSecret = 32

// checkJoin rejects joining with a secret that an impostor could guess.
func (o *Options) checkJoin() error {
	hexadecimal := strings.Trim(o.Secret, "0123456789abcdefABCDEF") == ""
	if o.Fingerprint == "" && (len(o.Secret) < joinSecret || !hexadecimal) {
		return salt.Errorf(salt.Invalid,
			"cluster_secret has fewer than %d hexadecimal digits, and cluster_pub_fingerprint is empty: a false member could guess the secret. Set "+
				"cluster_pub_fingerprint (sha256sum of cluster.pub on a member), or make a new secret there with brine cluster rotate-secret", joinSecret)
	}
	return nil
}

// ownAddress checks that an id that is an address is one of this machine, and one that this master listens on.
func ownAddress(id, listen string) error {
	ip := net.ParseIP(id)
	if ip == nil {
		return nil
	}
	if at := net.ParseIP(listen); at != nil && !at.IsUnspecified() && !at.Equal(ip) {
		return salt.Errorf(salt.Invalid,
			"id is %s, but this master listens on %s (interface): peers connect to the id of a master, so these must be the same", id, listen)
	}
	if ip.IsLoopback() {
		return nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	if !slices.ContainsFunc(addrs, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(ip) }) {
		return salt.Errorf(salt.Invalid,
			"id is %s, which is not an address of this machine: peers connect to the id of a master; set id to its address or name", id)
	}
	return nil
}

// address returns the address on which a peer listens.
func (o *Options) address(peer string) string { return net.JoinHostPort(peer, strconv.Itoa(o.Port)) }

// ownDir is the parent of the masters' own directories in cachedir.
const ownDir = "brine/masters"

// secret returns the current joining secret.
func (o *Options) secret() (string, error) { return keys.Joining(o.PKIDir, o.Secret) }

// Common lists the replicated files and directories in cluster_pki_dir, except the key pair of the cluster and the keys of minions.
func Common() []string {
	return []string{keys.PeersDir, members.StationsDir, members.SharesDir, members.RosterFile, keys.AESName, keys.SecretFile, keys.SessionFile,
		members.RemovedDir, keys.RotationFile}
}

// OwnDir creates and returns the directory of a master's own data in a shared cachedir.
func OwnDir(cacheDir, id string) (string, error) {
	if err := salt.CheckID(id); err != nil {
		return "", salt.Errorf(salt.Invalid, "id: %w", err)
	}
	dir := filepath.Join(cacheDir, ownDir, id)
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return "", salt.Errorf(salt.Unavailable, "cannot create a directory: %w", err)
	}
	return dir, nil
}

// CheckRecord checks the options of the store of record. Check calls it; a master without a cluster
// calls it alone.
func (o *Options) CheckRecord() error {
	switch {
	case o.Record == "":
		return nil
	case !slices.Contains(rows.Engines(), o.Record):
		return salt.Errorf(salt.Invalid, "store_of_record is %.80q: use etcd or postgres", o.Record)
	case !o.On():
		return salt.Errorf(salt.Invalid, "store_of_record needs cluster_id and cluster_isolated_filesystem: True, also for one master alone")
	case !o.Isolated:
		return salt.Errorf(salt.Invalid, "store_of_record needs cluster_isolated_filesystem: True: masters that share a directory keep their state there")
	}
	return record.CheckSecret(o.RecordSecret)
}
