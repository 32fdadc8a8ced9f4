package job

import (
	"bytes"
	"errors"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Usage is what the jobs of a store take.
type Usage struct {
	Path  string
	Bytes int64
	Jobs  int64
	// More means that there are more jobs, which were not counted.
	More bool
	// Oldest is the hour in which the oldest job was stored; zero if there is none.
	Oldest time.Time
}

// maxCounted bounds the jobs that Usage counts.
const maxCounted = 200_000

// Usage counts the jobs.
func (s *Store) Usage() (u Usage, err error) {
	u.Path = s.file.path
	fi, err := os.Stat(u.Path)
	if err != nil {
		return u, err
	}
	u.Bytes = fi.Size()
	order := Filter{Oldest: true}
	err = s.file.view(func(tx *bolt.Tx) error {
		err := eachHour(tx, false, func(name []byte, hour *bolt.Bucket) error {
			c := hour.Cursor()
			for jid := order.firstJID(c); jid != ""; jid = order.nextJID(c, jid) {
				if u.Jobs >= maxCounted {
					u.More = true
					return errFound
				}
				if u.Jobs++; u.Oldest.IsZero() {
					u.Oldest, _ = time.Parse(hourLayout, string(bytes.Clone(name)))
				}
			}
			return nil
		})
		if errors.Is(err, errFound) {
			return nil
		}
		return err
	})
	return u, err
}
