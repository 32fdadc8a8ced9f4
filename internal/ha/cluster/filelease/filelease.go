// Package filelease is a lease in a directory that several masters share: of a cluster with a shared directory, its holder is the leader.
package filelease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// Lease is a lock in the shared directory that ends when its holder dies or freezes. It is a series of files NAME.1, NAME.2 … of which
// the last is valid. Creating a file is atomic, so that only one master succeeds. The holder renews the file, which changes its content. A
// master that has seen the same content for the term of the lease, by its own clock, creates the next file: clocks are never compared. The
// file of the present holder is never removed; otherwise two masters could both believe that they removed it. The number is a fencing
// token: a holder that resumes late sees a later file.
//
// Hold and Release are called by one goroutine, Holds by any.
type Lease struct {
	dir, name, holder string
	term              time.Duration
	now               func() time.Time

	number  int // of this master's lease, 0 for none
	renewal int // number of renewals of it
	seen    sighting
	renewed atomic.Pointer[time.Time] // start of the last renewal of a lease that is held
}

// sighting is the content of a file of another master, and when it was seen first.
type sighting struct {
	number int
	text   string
	since  time.Time
}

// New returns a lease for a master in a directory. An unreachable holder loses it after d.
func New(dir, name, holder string, d time.Duration) *Lease {
	return &Lease{dir: dir, name: name, holder: holder, term: d, now: time.Now}
}

// held is the content of a file.
type held struct {
	Holder string `json:"holder"`
	// Until is for masters of earlier versions, which compare it with their clocks.
	Until   time.Time `json:"until"`
	Renewal int       `json:"renewal"`
	// Free means that the holder has released it.
	Free bool `json:"free,omitempty"`
}

// Holds reports whether this master holds the lease: it has renewed it in the last half of a term, also by the wall clock, which goes on
// while a machine is suspended. After that another master may be about to take it.
func (l *Lease) Holds() bool {
	at := l.renewed.Load()
	if at == nil {
		return false
	}
	now := l.now()
	return max(now.Sub(*at), now.Round(0).Sub(at.Round(0))) < l.term/2
}

// Hold tries to acquire or renew the lease, and reports whether this master holds it now.
func (l *Lease) Hold() (bool, error) {
	now := l.now()
	held, err := l.hold(now)
	if !held || err != nil {
		l.renewed.Store(nil)
		return false, err
	}
	l.renewed.Store(&now)
	return true, nil
}

func (l *Lease) hold(now time.Time) (bool, error) {
	number, last, text, err := l.last()
	if err != nil {
		return false, err
	}
	switch {
	case number > 0 && number == l.number:
		// This master still holds the lease unless another one has taken over: check after writing.
		if err := l.write(number, now.Add(l.term), false); err != nil {
			return false, err
		}
		again, _, _, err := l.last()
		return err == nil && again == number, err
	case number > 0 && !last.Free:
		l.number = 0
		if l.seen.number != number || l.seen.text != text {
			l.seen = sighting{number, text, now}
		}
		if now.Sub(l.seen.since) < l.term {
			return false, nil
		}
	}
	l.number = 0
	b, err := l.content(now.Add(l.term), false)
	if err != nil {
		return false, err
	}
	err = atomicfile.Create(l.path(number+1), b, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot take a lease of the cluster: %w", err)
	}
	l.number = number + 1
	l.removeOld()
	return true, nil
}

// Release releases the lease early.
func (l *Lease) Release() error {
	l.renewed.Store(nil)
	if l.number == 0 {
		return nil
	}
	n := l.number
	l.number = 0
	return l.write(n, time.Time{}, true)
}

func (l *Lease) content(until time.Time, free bool) ([]byte, error) {
	l.renewal++
	return json.Marshal(held{Holder: l.holder, Until: until, Renewal: l.renewal, Free: free})
}

func (l *Lease) write(number int, until time.Time, free bool) error {
	b, err := l.content(until, free)
	if err == nil {
		err = atomicfile.Write(l.path(number), b, 0o600, false)
	}
	return err
}

func (l *Lease) path(n int) string { return filepath.Join(l.dir, l.name+"."+strconv.Itoa(n)) }

// last returns the valid lease and the text of its file, number 0 for none. A file that a loss of power has damaged is a lease that is
// never renewed.
func (l *Lease) last() (int, held, string, error) {
	numbers, err := l.numbers()
	if err != nil || len(numbers) == 0 {
		return 0, held{}, "", err
	}
	n := slices.Max(numbers)
	b, err := os.ReadFile(l.path(n))
	if err != nil {
		return n, held{}, "", salt.Errorf(salt.Unavailable, "cannot read a lease of the cluster: %w", err)
	}
	var h held
	if json.Unmarshal(b, &h) != nil {
		h = held{}
	}
	return n, h, string(b), nil
}

func (l *Lease) numbers() (out []int, err error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot look for leases of the cluster: %w", err)
	}
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), l.name+"."); ok {
			if n, err := strconv.Atoi(rest); err == nil && n > 0 {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

// removeOld removes all files but the last two: they have no holder.
func (l *Lease) removeOld() {
	numbers, _ := l.numbers()
	for _, n := range numbers {
		if n < l.number-1 {
			os.Remove(l.path(n))
		}
	}
}
