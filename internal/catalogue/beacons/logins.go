package beacons

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"brine/internal/host/account"
	"brine/internal/py/value"
)

// The files of logins and of failed logins.
const (
	wtmpFile = "/var/log/wtmp"
	btmpFile = "/var/log/btmp"
)

// Types of a record.
const (
	loginType  = 7
	logoutType = 8
)

// recordSize is the size of one record of both files, in bytes.
func recordSize() int {
	if wideRecords() {
		return 400
	}
	return 384
}

// wideRecords reports whether the C library of this architecture stores session
// and time in 64 bits.
func wideRecords() bool { return runtime.GOARCH == "arm64" || runtime.GOARCH == "riscv64" }

// loginRecord reads one record into the fields of Salt's events. Salt reads the
// two parts of the exit status as exit_status and session, so that its time is
// the session and its addr is the time in seconds. Reactors rely on that.
func loginRecord(r []byte) *value.Dict {
	text := func(b []byte) string { return string(bytes.ToValidUTF8(bytes.Trim(b, "\x00"), []byte("\ufffd"))) }
	short := func(at int) int64 { return int64(int16(binary.NativeEndian.Uint16(r[at:]))) }
	long := func(at int) int64 { return int64(int32(binary.NativeEndian.Uint32(r[at:]))) }
	session, seconds := long(336), long(340)
	if wideRecords() {
		session, seconds = int64(binary.NativeEndian.Uint64(r[336:])), int64(binary.NativeEndian.Uint64(r[344:]))
	}
	return value.DictOf("type", short(0), "PID", long(4), "line", text(r[8:40]), "inittab", text(r[40:44]), "user", text(r[44:76]),
		"hostname", text(r[76:332]), "exit_status", short(332), "session", short(334), "time", session, "addr", seconds)
}

// hours is a time range of each day, or of one day.
type hours struct{ start, end func(now time.Time) time.Time }

func (h hours) covers(now time.Time) bool {
	return !now.Before(h.start(now)) && !now.After(h.end(now))
}

// parseHours reads time_range; nil for none.
func parseHours(v any) (*hours, error) {
	if v == nil {
		return nil, nil
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, errors.New("time_range: expected a map")
	}
	if d.Len() == 0 {
		return nil, nil
	}
	var h hours
	for _, part := range []struct {
		key string
		to  *func(time.Time) time.Time
	}{{"start", &h.start}, {"end", &h.end}} {
		text, ok := d.Get(part.key)
		if !ok {
			return nil, errors.New("time_range: it needs start and end")
		}
		var err error
		if *part.to, err = parseMoment(value.Str(text)); err != nil {
			return nil, fmt.Errorf("time_range: %s: %w", part.key, err)
		}
	}
	return &h, nil
}

// parseMoment reads a time of day, such as 8am, 8:30pm or 16:00, or with a
// date before it, 2026-11-30 16:00.
func parseMoment(text string) (func(now time.Time) time.Time, error) {
	clean := strings.ToUpper(strings.Join(strings.Fields(text), " "))
	clean = strings.ReplaceAll(strings.ReplaceAll(clean, " AM", "AM"), " PM", "PM")
	for _, layout := range []string{"3PM", "3:04PM", "3:04:05PM", "15:04", "15:04:05"} {
		if t, err := time.Parse(layout, clean); err == nil {
			return func(now time.Time) time.Time {
				return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			}, nil
		}
		if t, err := time.Parse("2006-01-02 "+layout, clean); err == nil {
			return func(now time.Time) time.Time {
				return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			}, nil
		}
	}
	return nil, fmt.Errorf("%q is not a time such as 8am or 16:30", text)
}

// watchedUsers says whose logins are reported, and when.
type watchedUsers struct {
	all    bool // neither users nor groups are configured
	users  map[string]*hours
	groups map[string]*hours
	rest   *hours // for users without a range of their own
}

func parseUsers(c Config) (w watchedUsers, err error) {
	read := func(key string) (map[string]*hours, error) {
		v := c.Get(key)
		d, ok := v.(*value.Dict)
		if v != nil && !ok {
			return nil, fmt.Errorf("%s: expected a map", key)
		}
		out := map[string]*hours{}
		for k, v := range d.All() {
			set, _ := v.(*value.Dict)
			h, err := parseHours(set.At("time_range"))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", key, value.Str(k), err)
			}
			out[value.Str(k)] = h
		}
		return out, nil
	}
	if w.users, err = read("users"); err != nil {
		return w, err
	}
	if w.groups, err = read("groups"); err != nil {
		return w, err
	}
	w.all = len(w.users)+len(w.groups) == 0
	v := c.Get("defaults")
	d, ok := v.(*value.Dict)
	if v != nil && !ok {
		return w, errors.New("defaults: expected a map")
	}
	if w.rest, err = parseHours(d.At("time_range")); err != nil {
		return w, fmt.Errorf("defaults: %w", err)
	}
	return w, nil
}

func validLogins(c Config) error {
	_, err := parseUsers(c)
	return err
}

// wants reports whether a login of a user is to be reported.
func (w watchedUsers) wants(user string, members map[string][]string, now time.Time) bool {
	own, listed := w.users[user]
	if !listed {
		for group, h := range w.groups {
			if slices.Contains(members[group], user) {
				own, listed = h, true
				break
			}
		}
	}
	if !w.all && !listed {
		return false
	}
	if own == nil {
		own = w.rest
	}
	return own == nil || own.covers(now)
}

// logins returns the new records of a file of logins; each may change an event
// before its user is checked.
func (b machine) logins(ctx context.Context, l Look, path string, each func(*value.Dict)) ([]*value.Dict, error) {
	size := recordSize()
	data, err := grown(l.Memory, b.m.Path(path), func(b []byte) int { return len(b) / size * size })
	if err != nil || len(data) == 0 {
		return nil, err
	}
	w, err := parseUsers(l.Config)
	if err != nil {
		return nil, err
	}
	members := map[string][]string{}
	for group := range w.groups {
		if g, ok := account.GroupByName(ctx, b.m, group); ok {
			members[group] = g.Members
		}
	}
	var out []*value.Dict
	for ; len(data) >= size; data = data[size:] {
		e := loginRecord(data[:size])
		each(e)
		if w.wants(e.Str("user"), members, l.Now.Local()) {
			out = append(out, e)
		}
	}
	return out, nil
}

func init() {
	kinds.Register("btmp", func(b machine) Beacon {
		return Beacon{
			Settings: "users groups defaults",
			Doc:      "Report failed logins, of all users or of those that are named, optionally within a time of day.",
			Example:  "- users:\n    root:\n      time_range: {start: 8am, end: 4pm}\n",
			Validate: validLogins, Look: b.btmp,
		}
	})
}

func (b machine) btmp(ctx context.Context, l Look) ([]*value.Dict, error) {
	return b.logins(ctx, l, btmpFile, func(*value.Dict) {})
}

// maxTerminals bounds the users that are remembered for their logouts.
const maxTerminals = 10_000

func init() {
	kinds.Register("wtmp", func(b machine) Beacon {
		return Beacon{
			Settings: "users groups defaults ut_type",
			Doc: "Report logins, of all users or of those that are named, optionally within a time of day. With groups also users of " +
				"groups.",
			Example:  "- users:\n    root:\n      time_range: {start: 8am, end: 4pm}\n",
			Validate: validLogins, Look: b.wtmp,
		}
	})
}

// wtmp adds action to logins and logouts. Logout records have no user, so it
// adds the user who had logged in at that terminal.
func (b machine) wtmp(ctx context.Context, l Look) ([]*value.Dict, error) {
	in, out := int64(loginType), int64(logoutType)
	if types, ok := l.Config.Get("ut_type").(*value.Dict); ok {
		for key, to := range map[string]*int64{"login": &in, "logout": &out} {
			if n, ok := types.At(key).(int64); ok {
				*to = n
			}
		}
	}
	users, _ := l.Memory.At("terminals").(*value.Dict)
	if users == nil {
		users = value.NewDict(0)
		l.Memory.Set("terminals", users)
	}
	return b.logins(ctx, l, wtmpFile, func(e *value.Dict) {
		switch line := e.Str("line"); e.At("type") {
		case in:
			e.Set("action", "login")
			if users.Len() < maxTerminals {
				users.Set(line, e.Str("user"))
			}
		case out:
			e.Set("action", "logout")
			if user, ok := users.Get(line); ok {
				e.Set("user", user)
				users.Delete(line)
			}
		}
	})
}
