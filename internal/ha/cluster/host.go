package cluster

import (
	"time"

	"brine/internal/ha/record"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// Job is a job for the minions of another master.
type Job struct {
	JID string
	// Map is the message to the minions.
	Map *value.Dict
	// Minions are its targets, nil if unknown.
	Minions []string
	// Until is when the job expires for unreachable minions.
	Until time.Time
	// From is the master that received it.
	From string
}

// Note is a small fact about a minion for all Brine masters.
type Note string

// The notes: a minion has signed in again, or has asked for missed jobs and therefore is a Brine minion.
const (
	NoteSignedIn Note = "signed_in"
	NoteSpeaks   Note = "speaks"
)

// Host is the master that a cluster belongs to. The calls are sequential for each peer, and should return quickly.
type Host interface {
	// Relay puts an event of a peer on this master's bus. Its data names the
	// peer (PeerID).
	Relay(from, tag string, data *value.Dict)
	// Job publishes a peer's job to the minions of this master.
	Job(j Job)
	// Note handles a note about a minion of another master.
	Note(n Note, minion string)
	// Present returns the minions that are connected to this master.
	Present() []string
	// Lost reports that a peer does not answer (repeated every second), or that messages from it were lost: the host must
	// read what the peer stored.
	Lost(peer string)
	// Rotated reports that the AES key of the cluster may have changed.
	Rotated()
}

// Config is the configuration of a cluster.
type Config struct {
	ID       string
	Listen   string // interface
	CacheDir string
	HashType string
	Options  Options
	Own      *crypt.PrivateKey
	OwnPub   []byte // the file master.pub
	Keysize  int
	// Joins, if not nil, is called before this machine joins a cluster, to move away the state of an earlier membership.
	Joins func() error
	// Store is the store of record, nil if there is none. The caller closes it.
	Store *record.Store
	// Expels, if not nil, is called after a member was removed. It invalidates secrets that the member knew, other than those of
	// the cluster.
	Expels func() error
	// Refuses, if not nil, returns why the key of the cluster must not be replaced: minions would not accept the new one.
	Refuses func() error
	// Ports are the request ports for minions, by transport.
	Ports map[string]int
	// Busy returns the busy time of this machine's processors since boot, and the total time, in the same unit; nil if unknown.
	Busy func() (busy, total int64, ok bool)
	// Copies returns on how many masters this one wants each return (0: all), and for how many seconds it keeps them.
	Copies func() (n int, keep int64)
	// PublishSession is the maximum age of the AES key, 0 for no limit.
	PublishSession time.Duration
}

// Member is the known state of a peer.
type Member struct {
	ID string
	// Kind is brine, salt or unknown.
	Kind string
	// Up means that it answered recently; for stock masters, that a connection to it
	// exists.
	Up bool
	// Problem is why this master does not cooperate with it, or "".
	Problem string
	// Gone means that it was removed from the cluster.
	Gone bool
	// TLS means that it has used TLS with this process; CertificateEnds is when its last certificate expires.
	TLS             bool
	CertificateEnds time.Time
	// Behind is the number of changes it lacks, by stream, as far as known, without a shared directory.
	Behind map[string]int64
	// Refuses is why it cannot store changes of this master at present, by stream.
	Refuses map[string]string
}
