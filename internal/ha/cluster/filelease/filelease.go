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
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// Lease is a lock in the shared directory that expires when its holder dies or freezes. It is a series of files NAME.1, NAME.2 … of which
// the last is valid. Creating a file is atomic, so that only one master succeeds; the file belongs to it until the time in it has passed. A
// successor creates the next file. The file of the present holder is never removed; otherwise two masters could both believe that they
// removed it. The number is a fencing token: a holder that resumes late sees a later file.
type Lease struct {
	dir, name, holder string
	term              time.Duration
	now               func() time.Time

	number int // of this master's lease, 0 for none
}

// New returns a lease for a master in a directory. The time d must far exceed clock differences.
func New(dir, name, holder string, d time.Duration) *Lease {
	return &Lease{dir: dir, name: name, holder: holder, term: d, now: time.Now}
}

// held is the content of a file.
type held struct {
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
}

// Hold tries to acquire or renew the lease, and reports whether this master holds it now.
func (l *Lease) Hold() (bool, error) {
	number, last, err := l.last()
	if err != nil {
		return false, err
	}
	now := l.now()
	switch {
	case number > 0 && number == l.number:
		// This master still holds the lease unless another one has taken over: check after writing.
		if err := l.write(number, now); err != nil {
			return false, err
		}
		again, _, err := l.last()
		return err == nil && again == number, err
	case number > 0 && now.Before(last.Until):
		l.number = 0
		return false, nil
	}
	b, err := json.Marshal(held{l.holder, now.Add(l.term)})
	if err != nil {
		return false, err
	}
	err = atomicfile.Create(l.path(number+1), b, 0o600)
	if errors.Is(err, fs.ErrExist) {
		l.number = 0
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
	if l.number == 0 {
		return nil
	}
	n := l.number
	l.number = 0
	return l.write(n, l.now().Add(-l.term))
}

func (l *Lease) write(number int, now time.Time) error {
	b, err := json.Marshal(held{l.holder, now.Add(l.term)})
	if err == nil {
		err = atomicfile.Write(l.path(number), b, 0o600, false)
	}
	return err
}

func (l *Lease) path(n int) string { return filepath.Join(l.dir, l.name+"."+strconv.Itoa(n)) }

// last returns the valid lease, number 0 for none.
func (l *Lease) last() (int, held, error) {
	numbers, err := l.numbers()
	if err != nil || len(numbers) == 0 {
		return 0, held{}, err
	}
	n := slices.Max(numbers)
	b, err := os.ReadFile(l.path(n))
	var h held
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		return n, held{}, salt.Errorf(salt.Unavailable, "cannot read a lease of the cluster: %w", err)
	}
	return n, h, nil
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
