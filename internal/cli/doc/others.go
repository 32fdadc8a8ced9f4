package doc

import (
	"strings"

	"brine/internal/catalogue/beacons"
	"brine/internal/host"
	"brine/internal/store/returner"
)

// otherKinds returns the kinds of units that are not functions.
func otherKinds() []kind {
	return []kind{
		{name: "beacons", title: "Beacons", about: "What a minion watches and reports as events. Each also has the settings `interval` in seconds, " +
			"`disable_during_state_run` and `enabled`.", units: beaconUnits},
		{name: "returners", title: "Returners", about: "Servers that store jobs and returns. [Caches and returners](../caches.md) has their settings.",
			units: returnerUnits},
	}
}

func beaconUnits() ([]unit, error) {
	all := beacons.All(&host.Machine{})
	var out []unit
	for _, name := range beacons.Names() {
		b := all[name]
		out = append(out, unit{name: name, summary: firstSentence(b.Doc), write: func(w *page, level int) {
			w.heading(level, name)
			w.text(b.Doc)
			w.code("yaml", "beacons:\n  "+name+":\n    "+strings.ReplaceAll(strings.TrimSpace(b.Example), "\n", "\n    "))
		}})
	}
	return out, nil
}

func returnerUnits() ([]unit, error) {
	var out []unit
	for _, name := range returner.Names() {
		out = append(out, unit{name: name, summary: returner.Doc(name), write: func(w *page, level int) {
			w.heading(level, name)
			w.text(returner.Doc(name))
		}})
	}
	return out, nil
}
