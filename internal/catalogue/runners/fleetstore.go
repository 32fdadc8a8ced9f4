package runners

import (
	"context"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// StoreUsage is what the stores of a master take.
type StoreUsage struct {
	Master string
	At     time.Time
	Stores []StoreRow
	// Free and Size are the bytes of the disk with the master's data; 0 if unknown.
	Free, Size int64
}

// StoreRow is one store.
type StoreRow struct {
	// Name is what is stored, Driver how: bbolt, files, or the name of a returner. Path is "" for servers.
	Name, Driver, Path string
	Bytes              int64
	// Count is the number of jobs or rows, -1 if unknown; with More there are more.
	Count  int64
	More   bool
	Oldest time.Time // zero if unknown
	// Keep is how long entries are kept; 0 for ever. Limit says instead what bounds the store.
	Keep  time.Duration
	Limit string
	// Waiting are the entries that wait for a server.
	Waiting int64
	Problem string
}

func (f fleet) store(context.Context, *fn.Call, none) (*value.Dict, error) {
	if f.console.Stores == nil {
		return nil, salt.Errorf(salt.Unavailable, "only a running master knows its stores")
	}
	u := f.console.Stores()
	rows := &value.List{}
	for _, s := range u.Stores {
		d := value.DictOf("name", s.Name, "driver", s.Driver)
		if s.Path != "" {
			d.Set("path", s.Path)
		}
		if s.Path != "" || s.Bytes > 0 {
			d.Set("bytes", s.Bytes)
		}
		if s.Count >= 0 {
			d.Set("count", s.Count)
			d.Set("more", s.More)
			d.Set("oldest", nil)
		}
		if !s.Oldest.IsZero() {
			d.Set("oldest", stamp(s.Oldest))
		}
		if s.Limit != "" {
			d.Set("limit", s.Limit)
		} else {
			d.Set("days", s.Keep.Hours()/24)
		}
		if s.Path == "" {
			d.Set("waiting", s.Waiting)
		}
		if s.Problem != "" {
			d.Set("problem", s.Problem)
		}
		rows.Append(d)
	}
	return value.DictOf("master", u.Master, "at", stamp(u.At), "stores", rows, "disk", value.DictOf("free", u.Free, "size", u.Size)), nil
}
