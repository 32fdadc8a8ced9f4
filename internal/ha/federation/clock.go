package federation

import (
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
)

const (
	// clockLeast is the difference of clocks from which on a site follows that of the hub.
	clockLeast = 2 * time.Minute
	// clockAgain is the time between two comparisons of one connection.
	clockAgain = 10 * time.Minute
	// clockRepeat is how long a question is repeated without change.
	clockRepeat = 3 * time.Second
	// clockWait is how long an answer to a question may take. An older hub never answers.
	clockWait = 15 * time.Second
)

// clock is the clock of the hub, as far as a site knows it: the certificates of messages and the expiry of
// commands are times of the hub.
type clock struct {
	local func() time.Time

	mu    sync.Mutex
	off   time.Duration // what is added to the clock of this machine
	nonce []byte        // of the last question, until it is answered
	asked time.Time     // of it, in monotonic time
	since time.Time     // of the first question that has no answer
	due   bool          // a question has to be sent
	heard time.Time     // when the last answer arrived, in monotonic time
}

func newClock(local func() time.Time) *clock {
	if local == nil {
		local = time.Now
	}
	return &clock{local: local, due: true, since: time.Now()}
}

// now returns the time of the hub.
func (c *clock) now() time.Time { return c.local().Add(c.offset()) }

// offset returns what is added to the clock of this machine.
func (c *clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off
}

// ask lets the next greeting ask for the time.
func (c *clock) ask() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due, c.since = true, time.Now()
}

// question returns the nonce of a question, nil if none is due. Without an answer it is asked again.
func (c *clock) question() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.due && time.Since(c.heard) < clockAgain {
		return nil
	}
	if c.nonce != nil && time.Since(c.asked) < clockRepeat {
		return c.nonce // the hub bounds how often it answers
	}
	c.nonce, c.asked = make([]byte, 16), time.Now()
	if _, err := rand.Read(c.nonce); err != nil {
		c.nonce = nil
	}
	return c.nonce
}

// answer applies the answer to the last question, and returns the offsets before and after it.
func (c *clock) answer(m *sealed.Message) (before, after time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := m.Clock(c.nonce)
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(c.asked)
	if took > clockWait {
		return 0, 0, salt.Errorf(salt.Timeout, "the time of the hub took %s", took.Round(time.Second))
	}
	c.nonce, c.due, c.heard = nil, false, time.Now()
	before = c.off
	off := at.Add(took / 2).Sub(c.local())
	switch {
	case off.Abs() < clockLeast:
		c.off = 0
	case (off - c.off).Abs() > clockLeast/2:
		c.off = off.Round(time.Second)
	}
	return before, c.off, nil
}

// compared reports whether the hub has answered since the connection, or does not answer.
func (c *clock) compared() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.due || time.Since(c.since) > clockWait
}

// hubClock answers sites that ask for the time.
type hubClock struct {
	key    *sealed.Sealer
	bounds ratelimit.Keys // of the signatures, by site
}

// maxClocks bounds the sites whose questions are counted.
const maxClocks = 10_000

func newHubClock(key *sealed.Sealer) *hubClock {
	return &hubClock{key: key, bounds: ratelimit.Keys{Most: maxClocks, Every: 200 * time.Millisecond}}
}

// answer returns the answer to the greeting of an accepted site, nil if it does not ask.
func (c *hubClock) answer(m *sealed.Message, log *ratelimit.Log) *wire.SiteClock {
	var in wire.SitePresence
	if err := m.Read(&in); err != nil || len(in.Nonce) == 0 || !c.bounds.Admit(m.From.Name, time.Now()) {
		return nil
	}
	out, err := c.key.Clock(in.Nonce)
	if err != nil {
		log.Log(slog.LevelError, "cannot send the time to a site", "site", m.From.Name, "err", err)
		return nil
	}
	return &out
}
