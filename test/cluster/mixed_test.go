package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// previous returns the command that runs the previous release instead of the usual program (Node.Within). The environment specifies it,
// since the source of only one release is here.
func previous(t *testing.T) []string {
	if os.Getenv("BRINE_PREVIOUS") == "" {
		t.Skip("BRINE_PREVIOUS names neither the program of the previous release nor its revision")
	}
	return running(otherVersion(t))
}

// running returns the command that runs another program instead of the usual one.
func running(path string) []string {
	return []string{"sh", "-c", `shift; exec "` + path + `" "$@"`, "sh"}
}

// releases calls do for clusters of three whose first master, which creates the cluster, runs the previous release or this one.
func releases(t *testing.T, do func(t *testing.T, a *apart)) {
	old := previous(t)
	for name, olds := range map[string][]int{"created by the previous release": {0, 2}, "created by this release": {1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApart(t, 3, "auto_accept: true\n")
			for _, i := range olds {
				a.masters[i].Within = old
			}
			do(t, a)
		})
	}
}

// TestMixedReleases: masters of the previous release and of this one join each other, cooperate, and refuse a removed one. This
// version sends a code as the reason, the previous one a text.
func TestMixedReleases(t *testing.T) {
	t.Parallel()
	releases(t, func(t *testing.T, a *apart) {
		a.start()
		one, two, late := a.masters[0], a.masters[1], a.masters[2]
		a.equal(one, 3, map[string]int{"peer": 3})
		a.minion("m0", one)
		a.minion("m1", two)
		for _, m := range a.masters {
			eventually.Nil(t, soon, "both minions answer to "+m.Name, func() error { return m.PingAll(brine, "m0", "m1") })
		}
		if out, errs, code := one.Run(brine, "cluster", "remove", late.Name); code != 0 {
			t.Fatal(out, errs)
		}
		for _, m := range a.masters[:2] {
			refused(t, m, `a peer was removed from the cluster: its key was deleted.*`+late.Name)
		}
		eventually.Nil(t, soon, "the removed master is refused", func() error {
			if text := late.Log(); !strings.Contains(text, "is no member of the cluster (any more) in the eyes") {
				return fmt.Errorf("it says %s", text)
			}
			return nil
		})
		late.Kill()
		// It starts with its old data: both refuse it, and it reports that and exits.
		late.Launch()
		if code := late.Wait(60 * time.Second); code == 0 {
			t.Errorf("the removed master ends with %d", code)
		}
		refused(t, late, `this master cannot be a member of the cluster: .*is no member of the cluster`)
		// It tries to join again with an empty disk.
		for _, dir := range []string{"cluster", "var/cache", "etc/salt/pki"} {
			must(t, os.RemoveAll(late.Path(dir)))
		}
		late.Launch()
		if code := late.Wait(60 * time.Second); code == 0 {
			t.Errorf("the removed master joins: %d", code)
		}
		refused(t, late, `cannot join the cluster at .*: it refuses: `)
		for _, m := range a.masters[:2] {
			eventually.Nil(t, soon, "both minions answer to "+m.Name, func() error { return m.PingAll(brine, "m0", "m1") })
		}
	})
}

// TestMixedClocks: a master of the previous release and one of this release, whose clock is ahead, both report that, and continue
// separately. It runs only if BRINE_CLOCK is set (daemontest.Ahead).
func TestMixedClocks(t *testing.T) {
	old := previous(t)
	ahead := daemontest.Ahead(t)
	for name, right := range map[string]int{"created by the previous release": 0, "created by this release": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApart(t, 2, "auto_accept: true\n")
			a.masters[right].Within = old
			a.start()
			a.equal(a.masters[0], 2, map[string]int{"peer": 2})
			late := a.masters[1-right]
			late.Kill()
			late.Within = ahead
			late.Launch().Await()
			refused(t, late, `continuing without a peer until the clocks agree.*the clock of `+a.masters[right].Name+` is`)
			for _, m := range a.masters {
				refused(t, m, `this master does not work with a peer: .*the clock of .*at most 5s are allowed`)
			}
		})
	}
}
