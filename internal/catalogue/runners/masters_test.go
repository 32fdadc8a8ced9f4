package runners

import (
	"testing"
	"time"

	"brine/internal/py/value"
)

func TestManageMasters(t *testing.T) {
	h := newHouse(t)
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	h.standing = map[string]Standing{
		"alpha": {Mode: "failover", At: at, Masters: []StandingMaster{
			{Master: "one", State: "connected", Since: at, Here: true}, {Master: "two", State: "standby", Since: at}, {Master: "three", State: "off"}}},
		"gamma": {Mode: "failover", At: at, Masters: []StandingMaster{
			{Master: "one", State: "standby", Since: at, Here: true}, {Master: "two", State: "connected", Since: at},
			{Master: "three", State: "refused", Since: at}},
			Last: &StandingChange{From: "one", To: "two", Reason: "closed", Seconds: 0.25, At: at}},
	}
	for line, want := range map[string]string{
		"manage.masters": `{'alpha': {'here': True, 'mode': 'failover', 'active': {'one': '2026-11-21T10:00:00Z'}, 'standby': {'two': ` +
			`'2026-11-21T10:00:00Z'}, 'as_of': '2026-11-21T10:00:00Z'}, ` +
			`'beta': {'here': True, 'mode': 'unknown'}, ` +
			`'gamma': {'here': False, 'mode': 'failover', 'active': {'two': '2026-11-21T10:00:00Z'}, 'standby': {'one': '2026-11-21T10:00:00Z'}, ` +
			`'away': {'three': {'since': '2026-11-21T10:00:00Z', 'reason': 'refused'}}, ` +
			`'changed': {'from': 'one', 'to': 'two', 'reason': 'closed', 'seconds': 0.25, 'at': '2026-11-21T10:00:00Z'}, 'as_of': '2026-11-21T10:00:00Z'}}`,
		"manage.masters tgt=beta": `{'beta': {'here': True, 'mode': 'unknown'}}`,
		"manage.status":           `{'up': ['alpha', 'beta'], 'down': ['gamma'], 'elsewhere': {'gamma': {'master': 'two', 'since': '2026-11-21T10:00:00Z'}}}`,
	} {
		if got := value.Repr(h.call(line).Return); got != want {
			t.Errorf("%s\n%s, want\n%s", line, got, want)
		}
	}
	const table = "minion  here  mode      masters: active (standby) -away\nalpha   yes   failover  one (two)\nbeta    yes   unknown   \n" +
		"gamma   no    failover  two (one) -three\n"
	if got := h.call("manage.masters table=True").Return; got != table {
		t.Errorf("%q, want %q", got, table)
	}
	// A minion that left without another report is not shown as commanded by this master.
	h.standing = map[string]Standing{"gamma": {Mode: "hot", At: at, Masters: []StandingMaster{{Master: "one", State: "connected", Since: at, Here: true}}}}
	if got, want := value.Repr(h.call("manage.masters tgt=gamma").Return), `{'gamma': {'here': False, 'mode': 'hot', 'active': {}, 'standby': {}, `+
		`'away': {'one': {'since': None, 'reason': "not connected now; connected at the minion's last report"}}, 'as_of': '2026-11-21T10:00:00Z'}}`; got != want {
		t.Errorf("a minion that left: %s, want %s", got, want)
	}
	h.standing = nil
	if got, want := value.Repr(h.call("manage.status").Return), `{'up': ['alpha', 'beta'], 'down': ['gamma']}`; got != want {
		t.Errorf("no minion on other masters: %s, want %s", got, want)
	}
}
