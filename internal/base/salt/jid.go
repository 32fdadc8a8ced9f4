package salt

import (
	"fmt"
	"sync"
	"time"
)

// jidLayout is the UTC time to the microsecond without separators.
const jidLayout = "20060102150405.000000"

var lastJID struct {
	sync.Mutex
	t time.Time
}

// NewJID returns a job id: 20 digits, the UTC time in microseconds. Ids of one
// process are unique and increase, even if the clock goes back.
func NewJID(now time.Time) string {
	lastJID.Lock()
	defer lastJID.Unlock()
	now = now.UTC().Truncate(time.Microsecond)
	if !now.After(lastJID.t) {
		now = lastJID.t.Add(time.Microsecond)
	}
	lastJID.t = now
	return FormatJID(now)
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
