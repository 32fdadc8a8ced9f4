package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestApartClockAtEpoch: a member of a cluster starts with its clock at 1970, as a machine without a battery before it has asked for the
// time. Beside the others it does not start. Alone it does, and commands and decides; when its clock is right and the others are there, all
// have everything, also what was on its disk before. It runs only if BRINE_CLOCK is set.
func TestApartClockAtEpoch(t *testing.T) {
	t.Parallel()
	within, set := daemontest.NewClocks(t).One(t)
	a := newApart(t, 3, "keep_jobs_seconds: 86400\n")
	wrong, others := a.masters[2], a.masters[:2]
	wrong.Within = within
	a.start()
	a.minion("m0", wrong, others[0])
	wrong.Accept("m0")
	a.pend(others[0], "k0", "k1", "k2", "k3")
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
		isState(t, m, "k3", "minions_pre")
	}
	decide := func(m *node, args ...string) {
		t.Helper()
		if out, errs, code := m.Run(brine, "salt-key", append([]string{"-y"}, args...)...); code != 0 {
			t.Fatal(out, errs)
		}
	}
	w := newWords(t, 1)
	publish := func(m *node) {
		t.Helper()
		eventually.Nil(t, soon, "a job of "+m.Name, func() error { return w.publish(m) })
	}
	publish(wrong)
	publish(others[0])
	w.all(wrong)
	a.equal(wrong, 3, nil)
	wrong.Kill()

	set(time.Hour - time.Since(time.Unix(0, 0)))
	wrong.Launch()
	ends(t, wrong, `this master cannot be a member of the cluster: the certificate that .* begins at .*, and here it is 1970-01-01.*correct the clock`)
	for _, m := range others {
		m.Kill()
	}
	wrong.Launch().Await()
	decide(wrong, "-a", "k0")
	decide(wrong, "-r", "k1")
	decide(wrong, "-d", "k2")
	eventually.Nil(t, soon, "it answers at 1970", func() error { return wrong.PingAll(brine, "m0") })
	publish(wrong)
	w.all(wrong)
	others[0].Launch().Await() // a wrong clock elsewhere does not prevent its start
	refused(t, others[0], `correct the clock that is wrong`)
	set(0)
	others[1].Launch().Await()
	for _, m := range a.masters {
		for id, want := range map[string]string{"k0": "minions", "k1": "minions_rejected", "k2": "", "k3": "minions_pre"} {
			isState(t, m, id, want)
		}
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	w.all(a.masters...)
	decide(others[0], "--include-accepted", "-r", "k0")
	for _, m := range a.masters {
		isState(t, m, "k0", "minions_rejected")
	}
	a.equal(others[0], 3, nil)
	eventually.Nil(t, soon, "the doctor finds nothing", func() error {
		out, errs, code := others[0].Run(brine, "ha", "doctor", "--out=json")
		if code != 0 && !strings.Contains(out, `"disk"`) {
			return errors.New(out + errs)
		}
		return nil
	})
}
