package job

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// A replicated store may have a return without its content, because other masters have it: a short
// return. The entry has the checksum of the content instead, so that a master knows which minions have
// returned, and can compare its entries with those of others, without asking. The content always
// replaces a short return, never the other way round.
//
// A short return is shortMark, the checksum and the mark of the master that got the return from the
// minion: its receiver. No msgpack value begins with shortMark. A master that logs a return has its
// content, or gets it.
const (
	shortMark = 0xc1
	sumLen    = 8
	maxMark   = 16
	// shortFrom is the size in bytes from which returns are shortened. All masters store the others, for which
	// the short form would save little.
	shortFrom = 256
)

// Place is what decides which masters store a return.
type Place struct {
	JID, ID string
	// Receiver is the oplog.Mark of the master that got the return from the minion, "" if unknown.
	Receiver string
	// Issuer is the id of the master that published the job, "" if none did.
	Issuer string
	// Sum is the checksum of the content, "" if unknown. It differs from that of a valid content if two masters got different
	// returns of the minion.
	Sum string
}

// Fits reports whether a content can be decoded (readable), and has the checksum of the return.
func (p Place) Fits(content []byte) (readable, fits bool) {
	if _, err := decodeDict(content); err != nil {
		return false, false
	}
	sum := checksum(content)
	return true, p.Sum == "" || p.Sum == string(sum[:])
}

// Name returns the name of a return for Contents and Fill.
func (p Place) Name() string { return p.JID + "\x00" + p.ID }

// Holds reports whether a master stores the content of a return.
type Holds func(master string, p Place) bool

// Contents returns the contents of returns that other masters have, by Place.Name, as far as these are
// reachable.
type Contents func(places []Place) map[string][]byte

func isShort(raw []byte) bool { return len(raw) > sumLen && raw[0] == shortMark }

// shorten returns the short form of a return.
func shorten(raw []byte, receiver string) []byte {
	if isShort(raw) {
		return raw
	}
	sum := checksum(raw)
	return shortOf(sum[:], receiver)
}

func shortOf(sum []byte, receiver string) []byte {
	return append(append([]byte{shortMark}, sum...), receiver[:min(len(receiver), maxMark)]...)
}

// checksum is the checksum of a return; sumReturn shows it.
func checksum(raw []byte) (sum [sumLen]byte) {
	h := sha256.New()
	h.Write([]byte("r"))
	h.Write(raw)
	copy(sum[:], h.Sum(nil))
	return sum
}

func sumReturn(raw []byte) string {
	if isShort(raw) {
		return hex.EncodeToString(raw[1 : 1+sumLen])
	}
	sum := checksum(raw)
	return hex.EncodeToString(sum[:])
}

// sumOf returns the checksum in a short return.
func sumOf(raw []byte) string { return string(raw[1 : 1+sumLen]) }

// receiverOf returns the receiver in a short return.
func receiverOf(raw []byte) string { return string(raw[1+sumLen:]) }

// beats reports whether a return replaces a stored one of the same minion and job. Of two contents, and
// of two short returns, the one that sorts first counts. So all masters that have the same log entries
// have the same receiver, if several masters got the return, or logged it again.
func beats(ret, old []byte) bool {
	if short := isShort(ret); short != isShort(old) {
		return !short
	}
	return bytes.Compare(ret, old) < 0
}

// Place sets which masters store a return. Before, and for nil, all do.
func (s *Stream) Place(h Holds) { s.holds.Store(&h) }

// Fetch sets the functions that get contents from other masters, and that describe which masters have to store a return.
// Call it before the first read.
func (s *Stream) Fetch(c Contents, where func(p Place) string) { s.contents, s.where = c, where }

func (s *Stream) isHolder(master string, p Place) bool {
	h := s.holds.Load()
	return h == nil || *h == nil || (*h)(master, p)
}

// placeOf returns the Place of a short return.
func placeOf(hour *bolt.Bucket, jid, id string, raw []byte) Place {
	_, issuer := readFrom(hour, jid)
	return Place{JID: jid, ID: id, Receiver: receiverOf(raw), Issuer: issuer, Sum: sumOf(raw)}
}

var _ oplog.Selective = (*Stream)(nil)

// ReadFor implements oplog.Selective. Peers that need not store a return get its short form. A short
// return is left out if the peer does not support it; comparisons find that later.
func (s *Stream) ReadFor(peer string, short bool, origin string, after uint64, items, size int) (oplog.Batch, error) {
	mark := oplog.MarkOf(origin)
	return s.read(origin, after, items, size, func(hour *bolt.Bucket, jid, id string, raw []byte) []byte {
		switch {
		case isShort(raw) && !short:
			return nil
		case !short || len(raw) < shortFrom && !isShort(raw) || s.isHolder(peer, Place{JID: jid, ID: id, Receiver: mark, Issuer: issuerOf(hour, jid)}):
			return raw
		}
		return shorten(raw, mark)
	})
}

func issuerOf(hour *bolt.Bucket, jid string) string {
	_, issuer := readFrom(hour, jid)
	return issuer
}

// onlyFull leaves short returns out.
func onlyFull(_ *bolt.Bucket, _, _ string, raw []byte) []byte {
	if isShort(raw) {
		return nil
	}
	return raw
}

// Cursor is a position of Wanted and Shorts.
type Cursor struct{ hour, key []byte }

// wantedStep bounds the entries that one call of Shorts reads.
const wantedStep = 5000

// Wanted returns short returns whose content this master has to store, from a position on, and where
// to continue. It reads a part of the store, and at most limit such returns; done is true at the end.
func (s *Stream) Wanted(from Cursor, limit int) (places []Place, next Cursor, done bool, err error) {
	return s.Shorts(from, limit, func(p Place) bool { return s.isHolder(s.id, p) })
}

// Shorts is Wanted for the short returns that keep selects.
func (s *Stream) Shorts(from Cursor, limit int, keep func(p Place) bool) (places []Place, next Cursor, done bool, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		places = nil
		hours := tx.Bucket(hoursBucket)
		at, n := from.key, 0
		hc := hours.Cursor()
		for name, _ := hc.Seek(from.hour); name != nil; name, _ = hc.Next() {
			hour := hours.Bucket(name)
			if hour == nil {
				continue
			}
			if !bytes.Equal(name, from.hour) {
				at = nil
			}
			c := hour.Cursor()
			for k, v := c.Seek(at); k != nil; k, v = c.Next() {
				if n++; n > wantedStep || len(places) >= limit {
					next = Cursor{bytes.Clone(name), bytes.Clone(k)}
					return nil
				}
				jid, entry, id := splitKey(k)
				if entry != entryReturn || !isShort(v) {
					continue
				}
				if p := placeOf(hour, jid, id, v); keep(p) {
					places = append(places, p)
				}
			}
		}
		done = true
		return nil
	})
	return places, next, done, err
}

// WantedOf returns the short returns among some changes whose content this master has to store. A new job is
// considered with all its returns, because its issuer was not known before.
func (s *Stream) WantedOf(news []Taken) (places []Place, err error) {
	if !slices.ContainsFunc(news, func(t Taken) bool { return t.Short || t.ID == "" }) {
		return nil, nil
	}
	err = s.file.view(func(tx *bolt.Tx) error {
		places = nil
		at := place{tx: tx}
		for _, t := range news {
			if !t.Short && t.ID != "" || !at.look(t.JID) {
				continue
			}
			hour := at.hour
			want := func(id string, raw []byte) {
				if p := placeOf(hour, t.JID, id, raw); s.isHolder(s.id, p) {
					places = append(places, p)
				}
			}
			if t.ID == "" {
				eachReturnOf(hour, t.JID, func(id string, raw []byte) {
					if isShort(raw) {
						want(id, raw)
					}
				})
			} else if raw := hour.Get(key(t.JID, entryReturn, t.ID)); isShort(raw) {
				want(t.ID, raw)
			}
		}
		return nil
	})
	return places, err
}

// look moves to a job, and reports whether it exists.
func (p *place) look(jid string) bool {
	if p.hour == nil || p.jid != jid {
		p.jid, p.hour = jid, findHour(p.tx, jid)
	}
	return p.hour != nil
}

// Full returns the contents of returns that this master stores, by Place.Name. It stops when it has size
// bytes, but not before the first name; done is the number of names that it has looked for.
func (s *Stream) Full(names []string, size int) (out map[string][]byte, done int, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		out, done = map[string][]byte{}, 0
		for _, name := range names {
			if done > 0 && size <= 0 {
				return nil
			}
			done++
			jid, _, isReturn := splitName(name)
			hour := findHour(tx, jid)
			if hour == nil || !isReturn {
				continue
			}
			raw := hour.Get(startKey(name))
			if raw == nil || isShort(raw) {
				continue
			}
			if _, err := decodeDict(raw); err != nil {
				continue // damaged; another master may have it
			}
			out[name] = bytes.Clone(raw)
			size -= len(raw)
		}
		return nil
	})
	return out, done, err
}

// Fill stores the contents of short returns, by Place.Name. Contents that cannot be decoded are
// ignored. Returns that are not short, or have expired, stay as they are. It returns the number stored.
func (s *Stream) Fill(contents map[string][]byte) (n int, err error) {
	o := &op{kind: opFill}
	for name, raw := range contents {
		jid, id, ok := splitName(name)
		d, err := decodeDict(raw)
		if err != nil || !ok || !salt.ValidJID(jid) || salt.CheckID(id) != nil {
			continue
		}
		o.items = append(o.items, item{Taken{JID: jid, ID: id, Return: d}, raw})
	}
	if len(o.items) == 0 {
		return 0, nil
	}
	if err := s.writer.wait(o); err != nil {
		return 0, err
	}
	if s.taken != nil && len(o.took) > 0 {
		s.taken(o.took)
	}
	return len(o.took), nil
}

func (o *op) fill(at *place) error {
	o.took = nil
	for _, it := range o.items {
		hour := findHour(at.tx, it.JID)
		if hour == nil || !isShort(hour.Get(it.ref())) {
			continue
		}
		if err := hour.Put(it.ref(), it.raw); err != nil {
			return err
		}
		o.took = append(o.took, it.Taken)
	}
	return nil
}

// ContentOf returns the content of a return in the data that Compared.Item returned on another master, nil if these are not
// that return or have no content.
func ContentOf(data []byte, name string) []byte {
	it, err := decodeItem(data)
	if err != nil || it.ID == "" || it.Short || it.JID+"\x00"+it.ID != name {
		return nil
	}
	return it.raw
}

// ReadReturn decodes the content of a return.
func ReadReturn(content []byte) (*value.Dict, error) { return decodeDict(content) }

// Stored returns the returns of a job that this master stores, by minion, and the places of the others. It asks no
// other master.
func (s *Store) Stored(jid string) (stored map[string]*value.Dict, short []Place, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		stored, short = map[string]*value.Dict{}, nil
		hour := findHour(tx, jid)
		if hour == nil {
			return nil
		}
		eachReturnOf(hour, jid, func(id string, raw []byte) {
			if isShort(raw) {
				short = append(short, placeOf(hour, jid, id, raw))
			} else if d, err := decodeDict(raw); err != nil {
				s.damaged(jid, "return of "+id, err)
			} else {
				stored[id] = d
			}
		})
		return nil
	})
	return stored, short, err
}

// elsewhere returns the dict shown instead of a return whose content cannot be got.
func (s *Stream) elsewhere(jid string, e rawReturn) *value.Dict {
	text := "ERROR: This return is stored on other masters of the cluster, and none of those that have it can be reached."
	if s != nil && s.where != nil {
		text += " Masters that have to store it: " + s.where(e.place(jid)) + "."
	}
	return value.DictOf("return", text, "retcode", 1, "success", false, unavailable, true)
}

// unavailable is the key of a dict that is shown instead of a return. Stored returns do not have it (kept).
const unavailable = "unavailable"

// Unavailable reports whether a dict stands for a return whose content only other masters store, none of which has answered.
func Unavailable(ret *value.Dict) bool { return ret.At(unavailable) == true }

// ReturnedBy returns the minions that have returned a job, sorted. It asks no other master.
func (s *Store) ReturnedBy(jid string) (ids []string, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		ids = nil
		if hour := findHour(tx, jid); hour != nil {
			ids = returnedIDs(hour, jid)
		}
		return nil
	})
	return ids, err
}

func returnedIDs(hour *bolt.Bucket, jid string) (ids []string) {
	eachReturnOf(hour, jid, func(id string, _ []byte) { ids = append(ids, id) })
	return ids
}

func eachReturnOf(hour *bolt.Bucket, jid string, fn func(id string, raw []byte)) {
	prefix := key(jid, entryReturn, "")
	c := hour.Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		fn(string(bytes.Clone(k[len(prefix):])), v)
	}
}

// ReturnSums returns the checksums of the returns of a job, by minion. They are the same on all masters.
func (s *Store) ReturnSums(jid string) (sums map[string]string, err error) {
	sums = map[string]string{}
	err = s.file.view(func(tx *bolt.Tx) error {
		if hour := findHour(tx, jid); hour != nil {
			eachReturnOf(hour, jid, func(id string, raw []byte) { sums[id] = sumReturn(raw) })
		}
		return nil
	})
	return sums, err
}

// complete gets the contents of the short returns among some of a job.
func (s *Store) complete(jid string, got []rawReturn) {
	if s.stream == nil || s.stream.contents == nil {
		return
	}
	var places []Place
	for _, e := range got {
		if isShort(e.raw) {
			places = append(places, e.place(jid))
		}
	}
	if len(places) == 0 {
		return
	}
	contents := s.stream.contents(places)
	for i, e := range got {
		if raw := contents[jid+"\x00"+e.id]; raw != nil && isShort(e.raw) {
			got[i].raw = raw
		}
	}
}

// rawReturn is an encoded return of a minion.
type rawReturn struct {
	id, issuer string
	raw        []byte
}

// place returns the Place of a short return.
func (e rawReturn) place(jid string) Place {
	return Place{JID: jid, ID: e.id, Receiver: receiverOf(e.raw), Issuer: e.issuer, Sum: sumOf(e.raw)}
}

// expiring reports whether a job may have expired on other masters.
func (s *Store) expiring(jid string) bool { return jid < s.Compared().from() }

// Short returns the number of short returns among the first entries of the store, for tests.
func (s *Stream) Short() (n int, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		n = 0
		return eachHour(tx, false, func(_ []byte, hour *bolt.Bucket) error {
			return hour.ForEach(func(k, v []byte) error {
				if _, entry, _ := splitKey(k); entry == entryReturn && isShort(v) {
					n++
				}
				return nil
			})
		})
	})
	return n, err
}

func splitName(name string) (jid, id string, isReturn bool) {
	i := slices.Index([]byte(name), 0)
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}
