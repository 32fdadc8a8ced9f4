package console

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"brine/bench/simulate"
	"brine/internal/net/transport/zeromq"
	"brine/test/browsertest"
	"brine/test/daemontest"
)

// TestManyMinions: a job on 200 minions, one of which is dead. The page shows the returns of the
// others, equal ones together, and which one is missing, and does not wait for it.
func TestManyMinions(t *testing.T) {
	const many = 200
	b := browsertest.Start(t)
	host := daemontest.Host()
	m := daemontest.NewMaster(t, daemontest.Brine, "m1", host, configure(t, host))
	keys, err := simulate.NewKeys(4)
	if err != nil {
		t.Fatal(err)
	}
	if err := simulate.Accept(m.Path("etc/salt/pki/master"), keys, many); err != nil {
		t.Fatal(err)
	}
	m.Start()
	f := simulate.New(simulate.Config{Transport: zeromq.New(slog.New(slog.DiscardHandler)), Publish: m.Publications(), Request: m.Requests(),
		MasterKey: m.Read("etc/salt/pki/master/master.pub"), Keys: keys, Count: many - 1, Timeout: time.Minute})
	defer f.Close()
	if err := f.SignIn(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	var failed atomic.Pointer[error]
	answer := simulate.Answer(t.Context(), func(err error) { failed.Store(&err) })
	ctx := t.Context()
	if err := f.Subscribe(ctx, 8, func(m *simulate.Minion, p *simulate.Publication) {
		if p.Fun != "pkg.upgrade" || !p.For(m.ID) {
			answer(m, p)
			return
		}
		v := "the same"
		if m.ID == "minion-00007" {
			v = "the other"
		}
		if err := m.ReturnValue(ctx, p.JID, p.Fun, v); err != nil {
			failed.Store(&err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	s := &stage{b, t, m, daemontest.NewAPI(m).Launch(), fmt.Sprintf("http://%s:%d", host, port)}
	s.await()
	s.Open(s.url + "/console/")
	s.enter()
	s.held("m1", many-1)
	s.sees("1 not connected")
	s.page("#/run")
	s.sees(fmt.Sprintf("%d minions match", many))
	s.set("#fun", "pkg.upgrade")
	s.click("#start")
	s.set("dialog[open] #number", fmt.Sprint(many))
	s.click("dialog .confirm")
	s.until("the page of the job", `location.hash.startsWith("#/jobs/2")`)
	s.sees(fmt.Sprintf("%d of %d minions returned", many-1, many))
	s.sees("Equal answers: 198, 1")
	s.set("#f-only", "waiting")
	s.until("the dead one alone has no return", `[...document.querySelectorAll("#results tr[data-id]")].map((r) => r.dataset.id + (r.innerText.includes("no return yet") ? "" : "?"))
		.join() === args[0]`, fmt.Sprintf("minion-%05d", many-1))
	if err := failed.Load(); err != nil {
		t.Error(*err)
	}
	s.clean("401")
}
