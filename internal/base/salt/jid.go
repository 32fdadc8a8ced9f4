package salt

import (
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// jidLayout is the UTC time to the microsecond without separators.
const jidLayout = "20060102150405.000000"

// JIDSlots is the number of masters that can create job ids concurrently without
// duplicates. Each has one slot in every millisecond.
const JIDSlots = 200

const jidSlot = time.Millisecond / JIDSlots

// noSlot means that every microsecond is used.
const noSlot = -1

var jids = struct {
	sync.Mutex
	last time.Time
	slot int
}{slot: noSlot}

// UseJIDSlot has NewJID use only one slot of each millisecond, from 0 to
// JIDSlots-1. Masters call it, since minions run an id only once, whichever master
// it is from.
func UseJIDSlot(slot int) {
	jids.Lock()
	defer jids.Unlock()
	jids.slot = slot
}

// NewJID returns a job id: 20 digits, the UTC time in microseconds. Ids of one
// process are unique and increase, even if the clock goes back.
func NewJID(now time.Time) string {
	jids.Lock()
	defer jids.Unlock()
	jids.last = nextJID(now.UTC(), jids.last, jids.slot)
	return FormatJID(jids.last)
}

// nextJID returns the time of the next id after last.
func nextJID(now, last time.Time, slot int) time.Time {
	if slot == noSlot {
		if now = now.Truncate(time.Microsecond); !now.After(last) {
			now = last.Add(time.Microsecond)
		}
		return now
	}
	begin := func(t time.Time) time.Time { return t.Truncate(time.Millisecond).Add(time.Duration(slot) * jidSlot) }
	if t := begin(now); t.After(last) {
		return t
	}
	if next, end := last.Add(time.Microsecond), begin(last).Add(jidSlot); next.Before(end) && !next.Before(begin(last)) {
		return next
	}
	next := begin(last)
	if !next.After(last) {
		next = next.Add(time.Millisecond)
	}
	return next
}

// JIDSlot returns the slot of a master among all that make ids for the same
// minions. It differs for each of up to JIDSlots masters that know the same ids.
// Most masters keep theirs when others come and go.
func JIDSlot(id string, all []string) int {
	ids := slices.Clone(all)
	if !slices.Contains(ids, id) {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	taken := map[int]bool{}
	for _, other := range slices.Compact(ids) {
		h := fnv.New64a()
		h.Write([]byte(other))
		slot := int(h.Sum64() % JIDSlots)
		for taken[slot] && len(taken) < JIDSlots {
			slot = (slot + 1) % JIDSlots
		}
		taken[slot] = true
		if other == id {
			return slot
		}
	}
	return 0 // not reached: id is among them
}

// FormatJID returns the job id of a time.
func FormatJID(t time.Time) string {
	s := t.UTC().Format(jidLayout)
	return s[:14] + s[15:]
}

// ValidJID reports whether s has the form of a job id: 20 digits, optionally
// followed by an underscore and more.
func ValidJID(s string) bool {
	if len(s) < 20 || len(s) > 64 || len(s) > 20 && (s[20] != '_' || len(s) == 21) {
		return false
	}
	for i := range 20 {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	for i := 20; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '/' || c == '\\' {
			return false
		}
	}
	return true
}

// JIDTime returns the time in a job id.
func JIDTime(jid string) (time.Time, error) {
	if !ValidJID(jid) {
		return time.Time{}, fmt.Errorf("%q is not a job id", jid)
	}
	return time.Parse(jidLayout, jid[:14]+"."+jid[14:20])
}
