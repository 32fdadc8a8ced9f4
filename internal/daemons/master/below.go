package master

import (
	"log/slog"
	"slices"
	"sync"

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
		if !ok || id == "" || len(globs) != len(value.Items(v)) || slices.Contains(globs, "") {
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

// maxNamed bounds the minions whose syndic is remembered.
const maxNamed = 1 << 18

// below decides for which minions a syndic may return: those that syndic_minions allows, or without
// that option all but those with an accepted key at this master. A nil *below refuses nothing.
type below struct {
	settings *settings
	accepted func(id string) bool
	limited  *ratelimit.Log

	mu    sync.Mutex
	named map[string]string // the syndic that returned last, by minion
}

// notBelow is the error of a syndic that returns for a minion which is not below it.
type notBelow struct{ text string }

func (e *notBelow) Error() string { return e.text }

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

// may returns a *notBelow if a syndic may not return for a minion.
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
	b.note(syndic, minion)
	return nil
}

// note logs that two syndics return for one minion. They may: a minion can have masters at several
// sites, and each of these returns what the other could not.
func (b *below) note(syndic, minion string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, known := b.named[minion]
	if before == syndic || !known && len(b.named) >= maxNamed {
		return
	}
	if b.named == nil {
		b.named = map[string]string{}
	}
	b.named[minion] = syndic
	if known {
		b.limited.Log(slog.LevelWarn, "two syndics return for one minion: if it is not below both, set syndic_minions", "minion", minion,
			"syndic", syndic, "other", before)
	}
}
