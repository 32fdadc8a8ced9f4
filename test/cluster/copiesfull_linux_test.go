package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"brine/internal/ha/copies"
	"brine/internal/store/job"
	"brine/internal/store/oplog"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// states returns the state of each member in brine cluster status, and its exit code.
func states(m *node) (map[string]string, int, error) {
	out, errs, code := m.Run(brine, "cluster", "status", "--out=json")
	var rows []struct{ ID, State string }
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return nil, code, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	all := map[string]string{}
	for _, r := range rows {
		all[r.ID] = r.State
	}
	return all, code, nil
}

// TestCopiesFullDisk: of four masters that store each return twice, one has a full disk. The others show all returns. The status and the
// doctor of all masters, this one included, name it, and returns that have fewer copies. It still answers, and when there is space it gets
// what it has to store: then the two others that had all returns may be lost.
func TestCopiesFullDisk(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	a := newApart(t, 4, "auto_accept: true\ncluster_return_copies: 2\n")
	one, two, full := a.masters[0], a.masters[1], a.masters[3]
	disk := smallDisk(t, full, full.Path("var/cache/salt/master"), "64m")
	a.start()
	daemontest.NewMinion(t, brine, "m0", []string{one.Host}, "").Start()
	awaitCopies(t, one, 4, "2 of 4")
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	var members []copies.Member
	for _, m := range a.masters {
		members = append(members, copies.Member{ID: m.Name, Known: true, Copies: 2, Up: true})
	}
	rule := copies.Agree(members, time.Now())
	before := newWords(t, 1)
	if err := before.publish(one); err != nil {
		t.Fatal(err)
	}
	before.all(a.masters...)
	if all, code, err := states(full); err != nil || code != 0 || all[full.Name] != "here" {
		t.Errorf("%v, exit code %d, %v", all, code, err)
	}

	if err := disk(`dd if=/dev/zero of="$1/filler" bs=4k 2>/dev/null; dd if=/dev/zero of="$1/filler2" bs=1 2>/dev/null; test "$(df --output=avail ` +
		`"$1" | tail -n 1)" -eq 0`); err != nil {
		t.Fatal(err)
	}
	// The first job is stored by no rule of time: from its failure on the others know that the disk is full.
	w := newWords(t, 1)
	if err := w.publish(one); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*node{two, full} {
		eventually.Nil(t, soon, "the status at "+m.Name+" shows it", func() error {
			all, code, err := states(m)
			if !strings.Contains(all[full.Name], "cannot store changes of other masters: jobs: ") || code != 1 {
				return fmt.Errorf("%v, exit code %d, %w", all, code, err)
			}
			return nil
		})
		finds(t, m, "disk", full.Name, "it cannot store changes of other masters: jobs: ")
	}
	assigned := 0
	for range 60 {
		if assigned > 0 {
			break
		}
		if err := w.publish(one); err != nil {
			t.Fatal(err)
		}
		assigned = 0
		for _, jid := range w.ids() {
			if rule.Holds(full.Name, job.Place{JID: jid, ID: "m0", Receiver: oplog.Mark(one.Name), Issuer: one.Name}) {
				assigned++
			}
		}
	}
	if assigned == 0 {
		t.Fatal("the master has to store no return")
	}
	w.all(two)
	before.all(full)
	finds(t, two, "copies", "", "have fewer copies on reachable masters than cluster_return_copies, the oldest of job ")
	if !full.Alive() {
		t.Error("the master whose disk is full has ended")
	}

	if err := disk(`rm "$1/filler" "$1/filler2"`); err != nil {
		t.Fatal(err)
	}
	w.all(full)
	awaitCopies(t, two, 4, "2 of 4")
	for _, m := range []*node{two, full} {
		eventually.Nil(t, soon, "all is well at "+m.Name, func() error {
			all, code, err := states(m)
			if code != 0 {
				err = errors.Join(err, fmt.Errorf("%v, exit code %d", all, code))
			}
			return err
		})
	}
	a.equal(two, 4, map[string]int{"return": len(w.ids()) + len(before.ids())})
	one.Kill()
	w.all(two, full)
}
