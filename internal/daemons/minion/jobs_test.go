package minion

import (
	"fmt"
	"testing"
	"time"

	"brine/internal/daemons/minion/link"
	"brine/internal/py/value"
)

func load(jid string) *value.Dict {
	return value.DictOf("jid", jid, "fun", "test.ping", "arg", []any{}, "tgt", "*")
}

func TestJobFromTwoMastersRunsOnce(t *testing.T) {
	tab := newJobTable(0)
	a, b := &link.Link{}, &link.Link{}
	j, ready := tab.admit(load("1"), a, time.Now())
	if j == nil || ready != nil {
		t.Fatal("the first master's job was not admitted")
	}
	if again, ready := tab.admit(load("1"), a, time.Now()); again != nil || ready != nil {
		t.Error("a job that one master sent twice was admitted twice")
	}
	if other, ready := tab.admit(load("1"), b, time.Now()); other != nil || ready != nil {
		t.Error("a job that another master sent too was admitted again")
	}
	ret := value.DictOf("return", true)
	if to := tab.finish(j, ret); len(to) != 2 || to[0] != a || to[1] != b {
		t.Errorf("the return goes to %v, want both masters", to)
	}
	c := &link.Link{}
	if again, ready := tab.admit(load("1"), c, time.Now()); again != nil || ready != ret {
		t.Error("a master that publishes a finished job must get its return")
	}
	if again, ready := tab.admit(load("1"), a, time.Now()); again != nil || ready != nil {
		t.Error("a replay by the same master must do nothing")
	}
}

func TestJobTableForgetsOldJobsButNoneThatRuns(t *testing.T) {
	tab := newJobTable(100)
	running, _ := tab.admit(load("running"), &link.Link{}, time.Now())
	for i := range 500 {
		j, _ := tab.admit(load(fmt.Sprint(i)), &link.Link{}, time.Now())
		tab.finish(j, value.NewDict(0))
	}
	if n := len(tab.jobs); n != 101 {
		t.Errorf("%d jobs are remembered, want 100 and the running one", n)
	}
	if tab.find("running") == nil {
		t.Error("the running job is forgotten")
	}
	if got := tab.list("running"); len(got) != 0 {
		t.Errorf("running besides itself: %v", got)
	}
	tab.finish(running, value.NewDict(0))
	if tab.find("running") != nil {
		t.Error("a finished job is listed as running")
	}
}
