package voter

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"brine/internal/ha/lease"
	"brine/internal/store/boltfile"
)

// meta describes the group of the log, and what this voter knew before.
type meta struct {
	// Group is the fingerprint of the group's initial list. Voters is that list.
	Group  string   `json:"group"`
	Voters []string `json:"voters,omitempty"`
	// Generation distinguishes the groups of the same list.
	Generation uint64 `json:"generation,omitempty"`
	// Number is the number of this voter in the group, 0 if it has none.
	Number uint64 `json:"number"`
	// Changed is not 0 if a command changed Voters or added this voter. It is the entry of the change, as far as known without the log. In
	// that case the configured list is not used.
	Changed uint64 `json:"changed,omitempty"`
	// Left means that a command removed this voter.
	Left bool `json:"left,omitempty"`
	// Before is this voter's knowledge of earlier groups, and of the protocol of earlier versions.
	Before lease.Before `json:"before"`
}

// saved is the content of a disk.
type saved struct {
	meta
	hard    *pb.HardState
	snap    *pb.Snapshot
	entries []*pb.Entry
	// writes counts the changes. marks are those of other voters.
	writes uint64
	marks  map[uint64]mark
}

// change is written in one transaction.
type change struct {
	meta    *meta // if not nil, a new group begins: the old log is dropped
	hard    *pb.HardState
	snap    *pb.Snapshot
	entries []*pb.Entry
	// compact is the index up to which entries are dropped.
	compact uint64
	writes  uint64
	marks   map[uint64]mark
}

// counts is the encoding of the counts on disk.
type counts struct {
	Writes uint64          `json:"writes"`
	Marks  map[uint64]mark `json:"marks"`
}

// disk is the durable part of a voter. save writes everything or nothing, and returns when it is on disk.
type disk interface {
	load() (*saved, error)
	save(change) error
	Close() error
}

var (
	bucketVoter = []byte("voter")
	bucketLog   = []byte("log")
	keyMeta     = []byte("meta")
	keyHard     = []byte("hard")
	keySnap     = []byte("snapshot")
	keyCounts   = []byte("counts")
)

// boltDisk is a disk in a bbolt file. The log of raft is in the same file as its state, so that one flush writes both.
type boltDisk struct{ *boltfile.File }

// lockTime is how long to wait while another process has the file open.
const lockTime = 5 * time.Second

func openDisk(path string) (disk, error) {
	f, err := boltfile.Open(path, bolt.Options{Timeout: lockTime})
	if err != nil {
		return nil, err
	}
	return boltDisk{f}, nil
}

func logKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func (d boltDisk) load() (s *saved, err error) {
	s = &saved{marks: map[uint64]mark{}}
	return s, d.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketVoter)
		if b == nil {
			return nil
		}
		if v := b.Get(keyMeta); v != nil {
			if err := json.Unmarshal(v, &s.meta); err != nil {
				return err
			}
		}
		if v := b.Get(keyCounts); v != nil {
			c := counts{Marks: s.marks}
			if err := json.Unmarshal(v, &c); err != nil {
				return err
			}
			s.writes, s.marks = c.Writes, c.Marks
		}
		if v := b.Get(keyHard); v != nil {
			s.hard = &pb.HardState{}
			if err := proto.Unmarshal(v, s.hard); err != nil {
				return err
			}
		}
		if v := b.Get(keySnap); v != nil {
			s.snap = &pb.Snapshot{}
			if err := proto.Unmarshal(v, s.snap); err != nil {
				return err
			}
		}
		l := tx.Bucket(bucketLog)
		if l == nil {
			return nil
		}
		return l.ForEach(func(_, v []byte) error {
			e := &pb.Entry{}
			s.entries = append(s.entries, e)
			return proto.Unmarshal(v, e)
		})
	})
}

func (d boltDisk) save(c change) error {
	return d.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucketVoter)
		if err != nil {
			return err
		}
		if c.meta != nil {
			if err := renew(tx, b, c.meta); err != nil {
				return err
			}
		}
		l, err := tx.CreateBucketIfNotExists(bucketLog)
		if err != nil {
			return err
		}
		count, err := json.Marshal(counts{c.writes, c.marks})
		if err == nil {
			err = b.Put(keyCounts, count)
		}
		if err != nil {
			return err
		}
		if c.hard != nil {
			if err := put(b, keyHard, c.hard); err != nil {
				return err
			}
		}
		if c.snap != nil {
			if err := put(b, keySnap, c.snap); err != nil {
				return err
			}
		}
		if err := compact(l, c.compact); err != nil {
			return err
		}
		for _, e := range c.entries {
			if err := put(l, logKey(e.GetIndex()), e); err != nil {
				return err
			}
		}
		if len(c.entries) == 0 {
			return nil
		}
		// Later entries were replaced by these.
		return drop(l, c.entries[len(c.entries)-1].GetIndex()+1, math.MaxUint64)
	})
}

// renew replaces the log by the empty log of a group.
func renew(tx *bolt.Tx, b *bolt.Bucket, m *meta) error {
	if err := tx.DeleteBucket(bucketLog); err != nil && tx.Bucket(bucketLog) != nil {
		return err
	}
	text, err := json.Marshal(m)
	return errors.Join(err, b.Put(keyMeta, text), b.Delete(keyHard), b.Delete(keySnap))
}

func put(b *bolt.Bucket, key []byte, m proto.Message) error {
	v, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return b.Put(key, v)
}

// compact drops the entries up to an index.
func compact(l *bolt.Bucket, index uint64) error {
	if index == 0 {
		return nil
	}
	return drop(l, 0, index)
}

// drop drops the entries from one index to another.
func drop(l *bolt.Bucket, from, to uint64) error {
	var keys [][]byte
	cur := l.Cursor()
	for k, _ := cur.Seek(logKey(from)); k != nil && binary.BigEndian.Uint64(k) <= to; k, _ = cur.Next() {
		keys = append(keys, k)
	}
	for _, k := range keys {
		if err := l.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
