package master

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// syndics are the ids of the syndics below this master, from their start events and returns. As in
// Salt, each has a file in cachedir/syndics. An id may also be that of a minion, on the same
// machine with the same key; then the file says so. A nil *syndics has none: order_masters is off.
type syndics struct {
	dir   string
	log   *slog.Logger
	below *below

	mu    sync.Mutex
	known map[string]bool // whether the id is only that of a syndic
}

// minions returns what decides for which minions a syndic may return.
func (s *syndics) minions() *below {
	if s == nil {
		return nil
	}
	return s.below
}

// alsoMinion is the content of the file of a syndic whose id is also that of a minion.
const alsoMinion = "also a minion\n"

// openSyndics reads the ids that are known from before.
func openSyndics(cacheDir string, log *slog.Logger) *syndics {
	s := &syndics{dir: filepath.Join(cacheDir, "syndics"), log: log, known: map[string]bool{}}
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot read the list of syndics", "path", s.dir, "err", err)
	}
	for _, e := range entries {
		if id := e.Name(); salt.CheckID(id) == nil && e.Type().IsRegular() {
			b, err := os.ReadFile(filepath.Join(s.dir, id))
			s.known[id] = err == nil && string(b) != alsoMinion
		}
	}
	return s
}

// seen records that an id is that of a syndic.
func (s *syndics) seen(id string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[id]; ok {
		return
	}
	s.known[id] = true
	s.write(id, "")
	s.log.Info("a syndic has connected", "syndic", id)
}

// minion records that the id of a syndic is also that of a minion.
func (s *syndics) minion(id string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[id] {
		s.known[id] = false
		s.write(id, alsoMinion)
	}
}

func (s *syndics) write(id, text string) {
	path := filepath.Join(s.dir, id)
	err := atomicfile.MkdirAll(s.dir, 0o755)
	if err == nil {
		err = atomicfile.Write(path, []byte(text), 0o644, false)
	}
	if err != nil {
		s.log.Warn("cannot record a syndic", "path", path, "err", err)
	}
}

// without returns the ids that are not only those of syndics: no return comes under such an id.
func (s *syndics) without(ids []string) []string {
	if s == nil {
		return ids
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := ids[:0:0]
	for _, id := range ids {
		if !s.known[id] {
			out = append(out, id)
		}
	}
	return out
}

// below records the minions of a job that a syndic reported, if the job is known.
func (e *events) below(id string, data *value.Dict) {
	var in wire.JobEvent
	wire.View(data, &in)
	jid, _ := in.JID.(string)
	var ids []string
	for _, m := range value.OnlyTexts(in.Minions) {
		if salt.CheckID(m) == nil {
			ids = append(ids, m)
		}
	}
	if e.syndics == nil || len(ids) == 0 || !salt.ValidJID(jid) || e.syndics.below.isSyndic(id) != nil {
		return
	}
	if known, err := e.jobs.Load(jid); known == nil || err != nil {
		return
	}
	ids = slices.DeleteFunc(ids, func(m string) bool {
		err := e.syndics.below.may(id, m)
		if err != nil {
			e.refused.Log(slog.LevelWarn, "a syndic names a minion that is not below it", "syndic", id, "minion", m, "jid", jid, "reason", err)
		}
		return err != nil
	})
	if len(ids) == 0 {
		return
	}
	if err := e.jobs.AddMinions(jid, ids); err != nil {
		e.log.Error("cannot record the minions of a job below a syndic", "jid", jid, "syndic", id, "err", err)
	}
}
