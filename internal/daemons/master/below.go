package master

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/py/value"
)

// SyndicMinions is the option syndic_minions: the minions for which each syndic may return. Both
// are globs.
type SyndicMinions struct {
	given *value.Dict
	rules []syndicRule
}

type syndicRule struct {
	syndic  target.Glob
	minions []target.Glob
}

// SetValue accepts a map of a glob, and a glob or a list of globs.
func (s *SyndicMinions) SetValue(v any) error {
	*s = SyndicMinions{}
	if v == nil {
		return nil
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return salt.Errorf(salt.Invalid, "expected a map of syndics and the minions below them, as in {site-a: ['a-*']}, got %s", value.TypeName(v))
	}
	for k, v := range d.All() {
		id, ok := k.(string)
		if l, isList := v.(*value.List); !isList {
			v = value.ListOf(v)
		} else if l.Len() == 0 {
			ok = false
		}
		globs := value.OnlyTexts(v)
		if !ok || id == "" || len(globs) != len(value.Items(v)) {
			return salt.Errorf(salt.Invalid, "%s: expected a glob or a list of globs of minion ids", value.Str(k))
		}
		rule := syndicRule{syndic: target.ParseGlob(id)}
		for _, g := range globs {
			rule.minions = append(rule.minions, target.ParseGlob(g))
		}
		s.rules = append(s.rules, rule)
	}
	s.given = d
	return nil
}

// Value returns the map.
func (s SyndicMinions) Value() any {
	if s.given == nil {
		return value.NewDict(0)
	}
	return s.given
}

// names reports whether a rule is for this syndic.
func (s *SyndicMinions) names(syndic string) bool {
	for _, r := range s.rules {
		if r.syndic.Match(syndic) {
			return true
		}
	}
	return false
}

// allow reports whether a rule allows the syndic to return for the minion.
func (s *SyndicMinions) allow(syndic, minion string) bool {
	for _, r := range s.rules {
		if !r.syndic.Match(syndic) {
			continue
		}
		for _, g := range r.minions {
			if g.Match(minion) {
				return true
			}
		}
	}
	return false
}

const (
	// claimHolds is for how long a minion belongs to a syndic that does not name it again. Brine
	// syndics send a refused return again for twice as long.
	claimHolds = 12 * time.Hour
	// claimLeft is for how long the minions of a syndic that is not connected belong to it.
	claimLeft = 10 * time.Minute
	// maxClaims bounds the minions below syndics that are remembered.
	maxClaims = 1 << 20
)

// below decides for which minions a syndic may return. Without syndic_minions, a minion belongs to
// this master if it has an accepted key here, and otherwise to the syndic that named it first. A nil
// *below refuses nothing.
type below struct {
	settings  *settings
	accepted  func(id string) bool
	connected func() map[string]bool
	now       func() time.Time
	path      string
	log       *slog.Logger
	limited   *ratelimit.Log

	mu     sync.Mutex
	claims map[string]siteOf // by minion
	heard  map[string]time.Time
	began  time.Time
	full   bool
}

// siteOf is the syndic that a minion is below, and when the syndic named it last.
type siteOf struct {
	syndic string
	at     time.Time
}

// notBelow is the error of a syndic that returns for a minion which is not below it. owner is the
// syndic that the minion is below, "" if it is a minion of this master or not allowed.
type notBelow struct{ text, owner string }

func (e *notBelow) Error() string { return e.text }

// read reads the claims from before, and opens the file to record further ones.
func (b *below) read() {
	b.claims, b.heard, b.began = map[string]siteOf{}, map[string]time.Time{}, b.now()
	f, err := os.Open(b.path)
	if err == nil {
		s := bufio.NewScanner(f)
		for s.Scan() {
			minion, syndic, _ := strings.Cut(s.Text(), "\t")
			if salt.CheckID(minion) == nil && salt.CheckID(syndic) == nil && len(b.claims) < maxClaims {
				b.claims[minion] = siteOf{syndic, b.began}
			}
		}
		err = errors.Join(s.Err(), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("cannot read which minions are below which syndics", "path", b.path, "err", err)
	}
	var all strings.Builder
	for minion, c := range b.claims {
		fmt.Fprintf(&all, "%s\t%s\n", minion, c.syndic)
	}
	err = os.MkdirAll(filepath.Dir(b.path), 0o700)
	if err == nil {
		err = atomicfile.Write(b.path, []byte(all.String()), 0o600, false)
	}
	if err != nil {
		b.log.Warn(notRecorded, "path", b.path, "err", err)
	}
}

const notRecorded = "cannot record which minions are below which syndics; a restart of the master forgets it"

// record appends a claim to the file. It is lost if the machine stops before the next flush; then
// the syndic has to name the minion again.
func (b *below) record(minion, syndic string) {
	f, err := os.OpenFile(b.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s\t%s\n", minion, syndic)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		b.limited.Log(slog.LevelWarn, notRecorded, "path", b.path, "err", err)
	}
}

// isSyndic returns a *notBelow if syndic_minions does not name an id.
func (b *below) isSyndic(id string) error {
	if b == nil {
		return nil
	}
	if o := &b.settings.options().SyndicMinions; len(o.rules) > 0 && !o.names(id) {
		return &notBelow{text: "syndic_minions does not name this syndic"}
	}
	return nil
}

// may returns a *notBelow if a syndic may not return for a minion. Otherwise the minion is below it
// from now on.
func (b *below) may(syndic, minion string) error {
	if b == nil || syndic == minion { // a minion with the key of the syndic
		return nil
	}
	if o := &b.settings.options().SyndicMinions; len(o.rules) > 0 {
		if !o.allow(syndic, minion) {
			return &notBelow{text: "syndic_minions does not allow it"}
		}
		return nil
	}
	if b.accepted(minion) {
		return &notBelow{text: "the minion has an accepted key at this master: if it is below the syndic now, delete that key with: salt-key -d " + minion}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.heard[syndic] = now
	c, known := b.claims[minion]
	switch {
	case known && c.syndic == syndic:
		b.claims[minion] = siteOf{syndic, now}
		return nil
	case known && b.holds(c, now):
		return &notBelow{owner: c.syndic, text: fmt.Sprintf("the minion is below the syndic %s: if it may be below both, set syndic_minions", c.syndic)}
	case !known && len(b.claims) >= maxClaims:
		if !b.full {
			b.log.Warn("too many minions below syndics: any syndic may return for further ones; set syndic_minions", "limit", maxClaims)
		}
		b.full = true
		return nil
	}
	b.claims[minion] = siteOf{syndic, now}
	b.record(minion, syndic)
	return nil
}

// holds reports whether another syndic may not yet name the minion of a claim.
func (b *below) holds(c siteOf, now time.Time) bool {
	if now.Sub(c.at) >= claimHolds {
		return false
	}
	heard := b.heard[c.syndic]
	if heard.IsZero() {
		heard = b.began
	}
	return now.Sub(heard) < claimLeft || b.connected()[c.syndic]
}
