package members

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/roster"
)

// Share requests this master's share of the minions, and a smaller share while its machine is too busy.
type Share struct {
	Files *Files
	ID    string
	// Weight is the full share. Shed means that a smaller share is requested under load.
	Weight int
	Shed   bool
	// Busy returns the busy time of this machine's processors since boot, and the total time, in the same unit; nil if unknown.
	Busy func() (busy, total int64, ok bool)
	Log  *slog.Logger

	asked int
	work  work
	load  roster.Load
}

// Request requests a share of the minions.
func (s *Share) Request(share int) error {
	share = min(max(share, 1), roster.MaxShare)
	if share == s.asked {
		return nil
	}
	err := os.MkdirAll(s.Files.SharesDir(), 0o755)
	if err == nil && s.Files.Share(s.ID) != share {
		err = atomicfile.Write(s.Files.sharePath(s.ID), fmt.Appendln(nil, share), 0o644, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot store the requested share of the minions: %w", err)
	}
	s.asked = share
	return nil
}

// Weigh checks the load of this machine, and requests a smaller share of the minions if it is too busy, or a larger one when it no longer
// is.
func (s *Share) Weigh(now time.Time) {
	if s.Busy == nil || !s.Shed {
		return
	}
	busy, total, ok := s.Busy()
	was := s.work
	s.work = work{busy, total}
	if !ok || was.total == 0 || total <= was.total {
		return
	}
	percent := s.load.Look(float64(busy-was.busy)/float64(total-was.total), now)
	before, share := s.asked, max(s.Weight*percent/100, 1)
	if err := s.Request(share); err != nil {
		s.Files.Log.Warn("share", "cannot publish the load of this master to minions", "err", err)
	} else if before != share {
		s.Log.Info("this master requests another share of the minions because of its load", "before", before, "share", share, "busy", s.load.Busy())
	}
}

// work is the time of a machine's processors since boot.
type work struct{ busy, total int64 }
