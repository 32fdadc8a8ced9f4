package salt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/call/client"
	"brine/internal/py/value"
)

// lostContact is the state of a minion that had a job and does not answer the
// question whether it runs it.
const lostContact = "lost contact"

// parseExpire reads a time as users write it: seconds, or with the letter s,
// m, h or d.
func parseExpire(text string) (time.Duration, bool) {
	unit := time.Second
	if n := len(text); n > 0 {
		if u, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[text[n-1]]; ok {
			unit, text = u, text[:n-1]
		}
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return time.Duration(n) * unit, err == nil && n <= 1e8
}

// expire is for how many seconds the master is to keep the job for minions
// that are away: what was asked for, or as long as we wait. ok is false when
// the master's own answer to that is as good.
func (p *program) expire() (seconds int64, ok bool) {
	switch o := &p.opts; {
	case o.Expire != "":
		d, _ := parseExpire(o.Expire)
		return int64(d / time.Second), true
	case o.Timeout > 0:
		return int64(o.Timeout) + int64(p.Client.Options().GatherJobTimeout/time.Second), true
	}
	return 0, false
}

// wantsStates says whether the states of minions are to be told.
func (p *program) wantsStates() bool { return p.opts.Verbose || p.opts.Summary || p.opts.Progress }

// told shows what a minion's state has become, on stderr.
func (p *program) told(jid, id, state, more string) {
	if p.asJSON() {
		line := map[string]string{"jid": jid, "minion": id, "state": state}
		if more != "" {
			line["detail"] = more
		}
		b, err := json.Marshal(line)
		if err == nil {
			p.Env.Errorf("%s", b)
		}
		return
	}
	if more != "" {
		more = ": " + more
	}
	p.Env.Errorf("%s is %s%s", id, state, more)
}

// asJSON says whether a program reads the output.
func (p *program) asJSON() bool { return strings.HasPrefix(p.Show.Wanted(), "json") }

// tellStates shows the states of the minions that did not return, and how many
// are in each. A master that knows none (Salt's) is not mentioned.
func (p *program) tellStates(ctx context.Context, jid string, absent []string, returned int) {
	if !p.wantsStates() || len(absent) == 0 {
		return
	}
	known, err := p.Client.States(ctx, jid)
	if err != nil || known == nil {
		return
	}
	counts := map[string]int{client.Returned: returned}
	for _, id := range absent {
		state := known.Minions[id]
		more := ""
		switch state {
		case client.Returned: // since we looked
		case client.Queued:
			more = "nothing was heard of it yet; it gets the job if it comes by " + known.Expires.Format("15:04:05")
		case client.Expired:
			more = "it did not come before " + known.Expires.Format("15:04:05") + ", and does not get the job any more"
		case client.Delivered, client.Started:
			more = "the job was " + state + ", but the minion does not answer any more; its result is shown by salt-run jobs.lookup_jid " + jid + " when it comes"
			state = lostContact
		case client.Sent:
			more = "the job was published; this minion does not say what it got"
		default:
			continue
		}
		counts[state]++
		p.told(jid, id, state, more)
	}
	if p.opts.Summary {
		p.tellCounts(jid, counts)
	}
}

// tellCounts shows how many minions are in each state.
func (p *program) tellCounts(jid string, counts map[string]int) {
	if p.asJSON() {
		if b, err := json.Marshal(map[string]any{"jid": jid, "states": counts}); err == nil {
			p.Env.Errorf("%s", b)
		}
		return
	}
	var parts []string
	for state, n := range counts {
		parts = append(parts, fmt.Sprintf("%s: %d", state, n))
	}
	slices.Sort(parts)
	p.Env.Errorf("States of the minions: %s", strings.Join(parts, ", "))
}

// setExpire puts into what is told beside the job for how long it is kept.
func (p *program) setExpire(kw *value.Dict) {
	if p.Session == nil {
		return
	}
	if n, ok := p.expire(); ok {
		kw.Set("expire", n)
	}
}
