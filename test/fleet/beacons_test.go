package fleet

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/daemons/minion"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// TestOneBeaconSetForAllMasters: each of three hot masters gets each beacon event of a minion once,
// whichever of them added the beacon.
func TestOneBeaconSetForAllMasters(t *testing.T) {
	one := startMaster(t, "one", "zeromq", nil)
	masters := []*theMaster{one, startMaster(t, "two", "zeromq", sameKey(one)), startMaster(t, "three", "zeromq", sameKey(one))}
	var heard []<-chan *event.Event
	var starts []<-chan *event.Event
	for _, m := range masters {
		heard = append(heard, m.events("salt/beacon/"))
		starts = append(starts, m.events("salt/minion/"))
	}
	w := startMinion(t, "w1", "zeromq", masters, func(cfg *minion.Config) {
		cfg.Options.Beacons = value.DictOf(
			"gone", value.ListOf(value.DictOf("processes", value.DictOf("no such program", "stopped")), value.DictOf("beacon_module", "ps"),
				value.DictOf("run_once", true), value.DictOf("interval", 1)),
			"nonsense", value.ListOf(), "watchdog", value.ListOf())
	})
	for _, m := range masters {
		m.accept("w1")
	}
	for i, m := range masters {
		m.awaitStart(starts[i], "w1")
	}
	seen := func(tag string) {
		t.Helper()
		for i, c := range heard {
			select {
			case e := <-c:
				if e.Tag != tag || e.Data.Str("id") != "w1" {
					t.Errorf("%s heard %s %s, want %s", masters[i].cfg.ID, e.Tag, value.Repr(e.Data), tag)
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s heard nothing of %s", masters[i].cfg.ID, tag)
			}
		}
	}
	seen("salt/beacon/w1/gone/")
	data := value.ListOf(value.DictOf("percent", 0), value.DictOf("run_once", true))
	for i, name := range []string{"mem1", "mem2", "mem3"} {
		settings := data.Items
		settings = append(settings[:len(settings):len(settings)], value.DictOf("beacon_module", "memusage"))
		ret := masters[i].command("list", "w1", "beacons.add", 1, name, &value.List{Items: settings})["w1"]
		if !ret.Dict("return").Bool("result") {
			t.Fatalf("beacons.add: %s", value.Repr(ret.At("return")))
		}
		// Earlier events would arrive first.
		seen("salt/beacon/w1/" + name + "/")
	}
	call := func(fun string, args ...any) any {
		return masters[0].command("list", "w1", fun, 1, args...)["w1"].At("return")
	}
	list, _ := call("beacons.list").(string)
	if !strings.Contains(list, "mem2:") || !strings.Contains(list, "enabled: false") {
		t.Errorf("beacons.list: %s", list)
	}
	for _, c := range []struct {
		fun, comment string
		args         []any
	}{
		{"beacons.add", "Beacon mem1 is already configured.", []any{"mem1", data}},
		{"beacons.add", "Beacon \"nothing\" is not available.", []any{"nothing", data}},
		{"beacons.add", "Beacon load configuration invalid, not adding.\nit requires averages, a map", []any{"load", data}},
		{"beacons.modify", "Modified beacon: mem1.", []any{"mem1", value.ListOf(value.DictOf("percent", 101), value.DictOf("beacon_module", "memusage"))}},
		{"beacons.enable_beacon", "Enabled beacon gone on minion.", []any{"gone"}},
		{"beacons.disable", "Disabled beacons on minion.", nil},
		{"beacons.delete", "Deleted beacon: mem2.", []any{"mem2"}},
		{"beacons.reset", "Beacon configuration reset.", nil},
	} {
		d, _ := call(c.fun, c.args...).(*value.Dict)
		if got := d.Str("comment"); got != c.comment {
			t.Errorf("%s %s: %q, want %q", c.fun, value.Repr(&value.List{Items: c.args}), got, c.comment)
		}
	}
	if !strings.Contains(w.log.String(), "there is no beacon \\\"nonsense\\\"") {
		t.Error("an unknown beacon is not told of")
	}
	if !strings.Contains(w.log.String(), "there is no beacon \\\"watchdog\\\", which only Salt has: use inotify") {
		t.Error("a beacon that only Salt has is not told of")
	}
}

// TestInotifyBeacon: a master gets events of files that appear on a minion.
func TestInotifyBeacon(t *testing.T) {
	dir := t.TempDir()
	m := startMaster(t, "one", "zeromq", nil)
	heard, starts := m.events("salt/beacon/"), m.events("salt/minion/")
	startMinion(t, "w1", "zeromq", []*theMaster{m}, func(cfg *minion.Config) {
		cfg.Options.Beacons = value.DictOf("inotify", value.ListOf(value.DictOf("files", value.DictOf(dir, value.DictOf("mask", value.ListOf("create"))))))
	})
	m.accept("w1")
	m.awaitStart(starts, "w1")
	// It is not visible when the beacon begins to watch, so create files until an event arrives.
	for i := 0; ; i++ {
		path := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-heard:
			if e.Tag != "salt/beacon/w1/inotify/"+dir || e.Data.Str("id") != "w1" ||
				e.Data.Dict("data").Str("change") != "IN_CREATE" || filepath.Dir(e.Data.Dict("data").Str("path")) != dir {
				t.Errorf("heard %s %s", e.Tag, value.Repr(e.Data))
			}
			return
		case <-time.After(250 * time.Millisecond):
			if i > 240 {
				t.Fatal("nothing is heard of new files")
			}
		}
	}
}
