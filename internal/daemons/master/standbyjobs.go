package master

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/daemons/master/sinks"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// A minion with master_type failover also runs the jobs of standby masters. So that
// the operator finds such a job at both masters, the minion sends the return to the
// active master as well, with a record of the job that the publishing master
// signed. Masters with the same key trust each other's records; the minion can
// neither change nor forge one.

// standbyJobs issues and accepts records of jobs.
type standbyJobs struct {
	id       string // id of this master
	settings *settings
	cluster  *cluster.Cluster // nil without a cluster
	key      func() *crypt.PrivateKey
	queue    *queue
	jobs     jobStore
	// expired reports whether a job is too old to be kept.
	expired    func(jid string, now time.Time) bool
	targets    *targets
	sinks      *sinks.Jobs
	stock      *sinks.StockFiles
	background *sync.WaitGroup
	slots      *slots

	rateLimitedLog *ratelimit.Log

	mu     sync.Mutex
	signed map[string][]byte // records by job id
	order  []string          // order of signed, oldest first

	storing sync.Mutex // serializes store: of many minions with one record, the first one stores it
}

// signedRecords bounds the cached signed records: all minions of a job request the
// same one, at about the same time.
const signedRecords = 64

// Limits of concurrent returns with records.
const (
	recordSlots = 16
	recordShare = 2 // for one minion
)

// offered reports whether minions run jobs of this master while it is on standby.
// The masters of a cluster publish each job to all minions.
func (s *standbyJobs) offered() bool { return s.cluster == nil && s.settings.options().StandbyJobs }

// give answers a minion that requests the record of a job that was published to
// it: {jid}. The answer is {record}, or an empty map.
func (s *standbyJobs) give(c *channel.Call) {
	answer := value.NewDict(1)
	var in wire.AboutJob
	wire.View(c.Load, &in)
	jid := in.JID
	if meant, _ := s.queue.meant(jid, c.ID); meant && s.offered() {
		b, err := s.record(jid)
		if err != nil {
			s.rateLimitedLog.Log(slog.LevelWarn, "cannot create a job record for other masters", "jid", jid, "err", err)
		} else if b != nil {
			answer.Set("record", b)
		}
	}
	c.Reply(answer)
}

// record returns the signed record of a job, nil if it is not stored here.
func (s *standbyJobs) record(jid string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.signed[jid]; ok {
		return b, nil
	}
	load, err := s.jobs.Load(jid)
	if load == nil || err != nil {
		return nil, err
	}
	b, err := sealRecord(recordOf(load, s.id), s.key())
	if err != nil {
		return nil, err
	}
	if s.signed == nil {
		s.signed = map[string][]byte{}
	}
	if len(s.order) >= signedRecords {
		delete(s.signed, s.order[0])
		s.order = s.order[1:]
	}
	s.signed[jid] = b
	s.order = append(s.order, jid)
	return b, nil
}

// recordOf builds the record of a published job.
func recordOf(load *value.Dict, master string) wire.JobRecord {
	o := readOrder(load)
	arg, _ := o.Arg.(*value.List)
	meta, _ := o.kw.Metadata.(*value.Dict)
	return wire.JobRecord{
		JID: o.JID, Master: master, Fun: o.Fun, Arg: arg, Tgt: o.Tgt, TgtType: o.TgtType, Ret: o.Ret,
		User: o.user(), Metadata: meta, Delimiter: o.kw.Delimiter,
	}
}

// loadOf converts a record into the load of the job, as if it had been published
// here.
func loadOf(r *wire.JobRecord) *value.Dict {
	arg := r.Arg
	if arg == nil {
		arg = &value.List{}
	}
	load := value.DictOf("cmd", "publish", "tgt", r.Tgt, "fun", r.Fun, "arg", arg, "tgt_type", r.TgtType, "ret", r.Ret, "jid", r.JID, "user", r.User)
	kwargs := value.NewDict(2)
	if r.Metadata.Len() > 0 {
		kwargs.Set("metadata", r.Metadata)
	}
	if r.Delimiter != "" {
		kwargs.Set("delimiter", r.Delimiter)
	}
	if kwargs.Len() > 0 {
		load.Set("kwargs", kwargs)
	}
	return load
}

// recordDomain is a prefix of the signed data that no other signed data has, so that
// no other signature of the key is valid for a record.
const recordDomain = "brine record of a job\n"

// maxRecordBytes bounds an encoded record. A job with larger arguments has none.
const maxRecordBytes = 128 << 10

var recordLimits = msgpack.Limits{Items: 10_000, Bytes: maxRecordBytes + 8<<10, Depth: 32}

func sealRecord(r wire.JobRecord, key *crypt.PrivateKey) ([]byte, error) {
	text, err := msgpack.Marshal(wire.Encode(r), msgpack.NewSpec)
	if err != nil {
		return nil, err
	}
	if len(text) > maxRecordBytes {
		return nil, fmt.Errorf("its arguments have %d bytes", len(text))
	}
	sig, err := key.Sign(crypt.PKCS1v15SHA224, append([]byte(recordDomain), text...))
	if err != nil {
		return nil, err
	}
	return msgpack.Marshal(wire.Encode(wire.SignedRecord{Record: text, Sig: sig}), msgpack.NewSpec)
}

var errRecord = errors.New("it is not a record of a job")

// openRecord verifies and decodes a record.
func openRecord(b []byte, key *crypt.PublicKey) (r wire.JobRecord, err error) {
	var outer wire.SignedRecord
	if err := decodeRecord(b, &outer); err != nil {
		return r, err
	}
	if err := key.Verify(crypt.PKCS1v15SHA224, append([]byte(recordDomain), outer.Record...), outer.Sig); err != nil {
		return r, salt.Errorf(salt.Denied, "the record of a job is not signed by a master with the key of this one: %w", err)
	}
	if err := decodeRecord(outer.Record, &r); err != nil {
		return r, err
	}
	if !salt.ValidJID(r.JID) {
		return r, errRecord
	}
	return r, nil
}

func decodeRecord(b []byte, to any) error {
	if len(b) > recordLimits.Bytes {
		return errRecord
	}
	v, err := recordLimits.UnmarshalTyped(b)
	d, _ := v.(*value.Dict)
	if err != nil || d == nil {
		return errRecord
	}
	return wire.Decode(d, to)
}

// take stores the job to which a return from another master's job belongs, and then continues
// with the return. It runs in a goroutine of its own unless the job was published here or
// standby jobs are off.
func (s *standbyJobs) take(c *channel.Call, record []byte, then func()) {
	jid := c.Load.Str("jid")
	if meant, _ := s.queue.meant(jid, c.ID); meant || !s.offered() {
		then()
		return
	}
	leave := s.slots.enter(c.ID)
	s.background.Go(func() {
		defer leave()
		if err := s.store(jid, c.ID, record); err != nil {
			s.rateLimitedLog.Log(slog.LevelWarn, "storing a return without the record of its job, which another master published", "jid", jid, "minion",
				c.ID, "err", err)
		}
		then()
	})
}

// store stores the job of a record, unless a job published under its id is known
// here. A job that a minion started itself is replaced.
func (s *standbyJobs) store(jid, id string, record []byte) error {
	s.storing.Lock()
	defer s.storing.Unlock()
	known, err := s.jobs.Load(jid)
	if err != nil || known != nil && job.Published(known) {
		return err
	}
	r, err := openRecord(record, s.key().Public())
	switch {
	case err != nil:
		return err
	case r.JID != jid:
		return salt.Errorf(salt.Denied, "the record is of the job %s", r.JID)
	case s.expired(jid, time.Now()):
		return salt.Errorf(salt.Invalid, "the job is older than keep_jobs_seconds")
	}
	load := loadOf(&r)
	if !mayMatch(s.settings.nodegroups(), load, id) {
		return salt.Errorf(salt.Denied, "the job was not for this minion")
	}
	typ := r.TgtType
	if typ == "" {
		typ = "glob"
	}
	minions, _, err := s.targets.resolve(typ, r.Tgt, r.Delimiter)
	if err != nil {
		minions = nil
	}
	if !slices.Contains(minions, id) {
		minions = append(minions, id)
	}
	if err := s.jobs.NewJobUntil(load, minions, time.Time{}); err != nil {
		return err
	}
	s.sinks.SendLoad(load, jid, minions)
	s.stock.PutLoad(load, jid, minions)
	return nil
}
