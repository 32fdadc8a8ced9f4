package minion

import (
	"errors"
	"fmt"

	"brine/internal/daemons/minion/roles"
	"brine/internal/net/handshake"
)

// Exit codes of a minion that no master takes, as Salt's.
const (
	ExitFinger   = 42 // no master has the demanded fingerprint
	ExitRejected = 77 // all masters have rejected the key
)

// Unwanted is the error of Run when the configuration asks for an end: every
// master has said for good that it does not take this minion, or shows another
// fingerprint than demanded. One that is merely away is no reason to end.
type Unwanted struct {
	Code int
	err  error
}

func (e *Unwanted) Error() string { return fmt.Sprintf("every master refuses: %v", e.err) }

// Unwrap returns what the last master said.
func (e *Unwanted) Unwrap() error { return e.err }

// ExitCode is that of the process.
func (e *Unwanted) ExitCode() int { return e.Code }

// fatalCode is the code with which err would end the process, 0 for never.
func (m *Minion) fatalCode(err error) int {
	switch {
	case errors.Is(err, handshake.ErrFinger):
		return ExitFinger
	case errors.Is(err, handshake.ErrRejected) && !m.cfg.Options.RejectedRetry:
		return ExitRejected
	}
	return 0
}

// refusedBy notes what c's master has said, nil for that it is good. When all
// masters have said the like, the minion ends.
func (m *Minion) refusedBy(c *connection, err error) {
	m.refusals.Lock()
	defer m.refusals.Unlock()
	c.fatal = m.fatalCode(err)
	if c.fatal == 0 {
		return
	}
	for _, o := range m.masters() {
		if r, _ := o.role.get(); o.fatal == 0 && (r != roles.Off || m.failover != nil) {
			return
		}
	}
	m.stop(&Unwanted{Code: c.fatal, err: err})
}
