package job

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
	"brine/internal/store/oplog"
)

// Compared reads the jobs and returns of a replicated store, to compare them with those of other
// masters. An item is a job with its minions, named by the job id, or a return, named by the job
// id, a NUL and the minion. So the order of the names is that of the database keys.
//
// Jobs are stored, and expire, by the hour in which they arrived, which may differ between masters.
// So items that may have expired on another master are not compared. Neither are jobs whose id is
// ahead of their hour, which happens with stock minions in other time zones.
type Compared struct {
	s *Store

	mu     sync.Mutex
	resent map[string]time.Time
}

// Compared returns the comparison view of a replicated store.
func (s *Store) Compared() *Compared { return &Compared{s: s, resent: map[string]time.Time{}} }

// Bounds of one comparison.
const (
	compareThings = 2048
	compareBytes  = 1 << 20
	// maxItem bounds the bytes of an item sent as a reply. A larger item is logged again and sent
	// like a new one.
	maxItem = 1 << 20
	// resendPause is the minimum interval between two such resends of an item. maxResent bounds the
	// number of recorded resends.
	resendPause = 10 * time.Minute
	maxResent   = 1024
	// expiryMargin is the time before their expiry, by their ids, from which items are no longer
	// compared. ahead is how far a job id may be ahead of the hour in which the job arrived.
	expiryMargin = 3 * time.Hour
	ahead        = 2 * time.Hour
	// Uncompared is the checksum of an item that is not compared.
	Uncompared = "-"
	// none sorts after all job ids.
	none = "~"
)

// Vector is Stream.Vector.
func (c *Compared) Vector() (oplog.Vector, error) { return c.s.stream.Vector() }

// from returns the name before which items are not compared.
func (c *Compared) from() string {
	keep := c.s.o.Keep()
	switch {
	case !c.s.o.JobCache:
		return none
	case keep <= 0:
		return ""
	}
	return c.s.now().UTC().Add(min(expiryMargin, keep/4) - keep).Format(jidMinute)
}

// jidMinute is the layout of the first part of a job id.
const jidMinute = "200601021504"

// Sums returns the checksums of the items after one name, up to and including another, in order; ""
// is no bound. It stops early after many items. last is the name up to which it read, "" if it read
// everything. Items before from are not compared.
func (c *Compared) Sums(after, to string) (sums map[string]string, last, from string, err error) {
	sums, last, from = map[string]string{}, to, c.from()
	start := max(after, from)
	err = c.s.file.view(func(tx *bolt.Tx) error {
		things, size := 0, 0
		at := ""
		walkThings(tx, start, func(name string, sum func() (string, int)) bool {
			if name <= after {
				return true
			}
			if to != "" && name > to {
				return false
			}
			if things >= compareThings || size >= compareBytes {
				last = at
				return false
			}
			text, n := sum()
			if text != "" {
				sums[name] = text
			}
			things, size, at = things+1, size+n, name
			return true
		})
		return nil
	})
	return sums, last, from, err
}

// hourCursor is a position in the bucket of an hour.
type hourCursor struct {
	hour   *bolt.Bucket
	latest string // ids of later hours are not compared
	c      *bolt.Cursor
	k, v   []byte
}

// latestHour returns the latest hour of the job ids that are compared in the bucket of an hour.
func latestHour(hour []byte) string {
	t, err := time.Parse(hourLayout, string(hour))
	if err != nil {
		return ""
	}
	return t.Add(ahead).Format(hourLayout)
}

// walkThings calls fn for the items from a name on, in the order of their names, until fn returns
// false. sum returns the checksum, and the number of bytes read for it.
func walkThings(tx *bolt.Tx, start string, fn func(name string, sum func() (text string, size int)) bool) {
	var all []*hourCursor
	eachHour(tx, false, func(name []byte, hour *bolt.Bucket) error {
		h := &hourCursor{hour: hour, latest: latestHour(name), c: hour.Cursor()}
		if h.k, h.v = h.c.Seek(startKey(start)); h.k != nil {
			all = append(all, h)
		}
		return nil
	})
	for len(all) > 0 {
		h := slices.MinFunc(all, func(a, b *hourCursor) int { return bytes.Compare(a.k, b.k) })
		// Stop at the next job, since another bucket may have the next one in order.
		for jid := ""; h.k != nil; h.k, h.v = h.c.Next() {
			now, entry, id := splitKey(h.k)
			if jid != "" && now != jid {
				break
			}
			first := jid == ""
			jid = now
			if len(jid) < len(hourLayout) || jid[:len(hourLayout)] > h.latest {
				if entry == entryReturn {
					first, now = true, jid+"\x00"+id
				}
				if first && !fn(now, func() (string, int) { return Uncompared, 0 }) {
					return
				}
				continue
			}
			switch {
			case entry == entryReturn:
				raw := h.v
				if !fn(jid+"\x00"+id, func() (string, int) { return sumReturn(raw), len(raw) }) {
					return
				}
			case first:
				if !fn(jid, func() (string, int) { return sumJob(h.hour, jid) }) {
					return
				}
			}
		}
		all = slices.DeleteFunc(all, func(h *hourCursor) bool { return h.k == nil })
	}
}

// startKey returns the database key at which to start for the items from a name on.
func startKey(name string) []byte {
	if jid, id, ok := strings.Cut(name, "\x00"); ok {
		return key(jid, entryReturn, id)
	}
	return []byte(name)
}

// sumJob returns the checksum of a job without its returns, "" if there is none.
func sumJob(hour *bolt.Bucket, jid string) (text string, size int) {
	load, ids := hour.Get(key(jid, entryLoad, "")), hour.Get(key(jid, entryMinions, ""))
	if load == nil && ids == nil {
		return "", 0
	}
	minions := decodeIDs(ids)
	slices.Sort(minions)
	return shortSum([]byte("l"), load, []byte("\x00"+strings.Join(minions, "\x00"))), len(load) + len(ids)
}

func shortSum(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Some returns the checksums of the named items.
func (c *Compared) Some(names []string) (sums map[string]string, from string, err error) {
	sums, from = map[string]string{}, c.from()
	err = c.s.file.view(func(tx *bolt.Tx) error {
		for _, name := range names {
			if sum := sumThing(tx, name); sum != "" {
				sums[name] = sum
			}
		}
		return nil
	})
	return sums, from, err
}

func sumThing(tx *bolt.Tx, name string) string {
	jid, id, isReturn := strings.Cut(name, "\x00")
	hour, at := hourOf(tx, jid)
	if hour == nil {
		return ""
	}
	if len(jid) < len(hourLayout) || jid[:len(hourLayout)] > latestHour(at) {
		return Uncompared
	}
	if !isReturn {
		text, _ := sumJob(hour, jid)
		return text
	}
	raw := hour.Get(key(jid, entryReturn, id))
	if raw == nil {
		return ""
	}
	return sumReturn(raw)
}

// logKey returns the log entry of an item.
func logKey(name string) []byte {
	if jid, id, ok := strings.Cut(name, "\x00"); ok {
		return key(jid, entryReturn, id)
	}
	return key(name, entryLoad, "")
}

// Item returns an item for Restore on another master, and the hour in which it is stored. Nil means
// that the item does not exist, or that it is larger than maxItem and is sent to all other masters
// like a new one.
func (c *Compared) Item(name string) (data []byte, hour string, err error) {
	jid, id, _ := strings.Cut(name, "\x00")
	err = c.s.file.view(func(tx *bolt.Tx) error {
		_, at := hourOf(tx, jid)
		hour = string(at)
		var err error
		data, err = readItem(tx, logKey(name), func(_ *bolt.Bucket, _, _ string, raw []byte) []byte { return raw })
		return err
	})
	if err != nil || len(data) <= maxItem {
		return data, hour, err
	}
	if !c.mayResend(name) {
		return nil, "", nil
	}
	return nil, "", c.s.writer.wait(&op{kind: opResend, jid: jid, id: id})
}

// mayResend reports whether an item was not resent during resendPause, and if so records a resend.
func (c *Compared) mayResend(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.s.now()
	for old, at := range c.resent {
		if now.Sub(at) > resendPause {
			delete(c.resent, old)
		}
	}
	if _, lately := c.resent[name]; lately || len(c.resent) >= maxResent {
		return false
	}
	c.resent[name] = now
	return true
}

// Restore stores an item of another master: one that is missing here, or another version, which is
// merged with the local one. If instead is set, it replaces the local version, which is damaged.
// hour is the hour in which the other master stores the item, so that both expire at the same time.
// A changed item is sent to other masters like a new one.
func (c *Compared) Restore(name string, data []byte, hour string, instead bool) (changed bool, err error) {
	at, err := time.Parse(hourLayout, hour)
	if err != nil {
		return false, salt.Errorf(salt.Invalid, "%.20q is not the hour of a job", hour)
	}
	if keep := c.s.o.Keep(); keep > 0 && c.s.now().Sub(at.Add(time.Hour)) > keep {
		return false, nil
	}
	it, err := decodeItem(data)
	if err != nil || !bytes.Equal(logKey(name), it.ref()) {
		return false, salt.Errorf(salt.Invalid, "what another master sent for %.100q is not that job or return", name)
	}
	if name < c.from() {
		return false, nil
	}
	o := &op{kind: opRestore, by: c.s.stream.id, jid: it.JID, id: it.ID, items: []item{it}, instead: instead, until: at}
	if err := c.s.writer.wait(o); err != nil {
		return false, err
	}
	if taken := c.s.stream.taken; taken != nil && len(o.took) > 0 {
		taken(o.took)
	}
	return o.changed, nil
}

// ref returns the log entry of an item.
func (it item) ref() []byte {
	if it.ID != "" {
		return key(it.JID, entryReturn, it.ID)
	}
	return key(it.JID, entryLoad, "")
}

// restore stores the item of an opRestore and logs it if it changed.
func (o *op) restore(at *place, now, early time.Time) error {
	it := o.items[0]
	if o.until.Before(now) {
		now = o.until
	}
	o.took, o.changed = nil, false
	name := it.JID
	if it.ID != "" {
		name += "\x00" + it.ID
	}
	before := sumThing(at.tx, name)
	if o.instead && before != "" {
		if err := at.find(it.JID, now); err != nil {
			return err
		}
		var err error
		if it.ID != "" {
			if isShort(it.raw) && !isShort(at.hour.Get(it.ref())) {
				return nil // another master has the content that is to replace this one
			}
			err = at.hour.Put(it.ref(), it.raw)
		} else if err = at.putLoad(it.raw); err == nil {
			err = putIDs(at.hour, it.JID, it.Minions)
		}
		if err != nil {
			return err
		}
	} else {
		if it.Short {
			// The others see this master as the receiver, since it logs the return.
			it.raw = shortOf(it.raw[1:1+sumLen], oplog.Mark(o.by))
		}
		t, _, err := at.takeItem(it, now, early)
		if err != nil {
			return err
		}
		if t != nil {
			o.took = append(o.took, *t)
		}
	}
	if o.changed = sumThing(at.tx, name) != before; !o.changed {
		return nil
	}
	_, _, err := oplog.Append(at.tx, it.ref())
	return err
}

// resend logs an item again if it still exists.
func (o *op) resend(at *place) error {
	name := o.jid
	if o.id != "" {
		name += "\x00" + o.id
	}
	if sumThing(at.tx, name) == "" {
		return nil
	}
	_, _, err := oplog.Append(at.tx, logKey(name))
	return err
}
