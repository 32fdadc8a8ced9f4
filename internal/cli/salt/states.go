package salt

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"brine/internal/call/client"
	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

// lostContact is the state of a minion that received a job but does not answer whether it is
// running it.
const lostContact = "lost contact"

// parseExpire parses a time: seconds, or a number with s, m, h or d.
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

// expire returns the number of seconds for which the master stores the job for unreachable minions:
// as requested, or as long as this program waits. ok is false if the master's default is
// equivalent.
func (p *program) expire() (seconds int64, ok bool) {
	switch o := &p.opts; {
	case o.Expire != "":
		d, _ := parseExpire(o.Expire)
		return int64(d / time.Second), true
	case o.Timeout > 0:
		return int64(o.Timeout) + int64(p.session.Client.Options().GatherJobTimeout/time.Second), true
	}
	return 0, false
}

// wantsStates reports whether to show the states of minions.
func (p *program) wantsStates() bool { return p.opts.Verbose || p.opts.Summary || p.opts.Progress }

// stateReport shows on stderr the states of the minions of a job that have not returned.
type stateReport struct {
	client interface {
		States(ctx context.Context, jid string) (*client.States, error)
	}
	env *frame.Env
	// json selects one JSON object a line. counts adds the number of minions in each state.
	json, counts bool
}

// states returns the report on a job's minions in the form that the options select.
func (p *program) states() stateReport {
	return stateReport{
		client: p.session.Client, env: p.session.Env, json: strings.HasPrefix(p.session.Show.Wanted(), "json"), counts: p.opts.Summary,
	}
}

// change shows a changed state of a minion on stderr.
func (r stateReport) change(jid, id, state, more string) {
	if r.json {
		line := map[string]string{"jid": jid, "minion": id, "state": state}
		if more != "" {
			line["detail"] = more
		}
		b, err := json.Marshal(line)
		if err == nil {
			r.env.Errorf("%s", b)
		}
		return
	}
	if more != "" {
		more = ": " + more
	}
	r.env.Errorf("%s is %s%s", id, state, more)
}

// absent shows the state of each minion that did not return, and the number of minions in each
// state. It shows nothing if the master does not track states, as stock masters.
func (r stateReport) absent(ctx context.Context, jid string, ids []string, returned int) {
	if len(ids) == 0 {
		return
	}
	known, err := r.client.States(ctx, jid)
	if err != nil || known == nil {
		return
	}
	counts := map[string]int{client.Returned: returned}
	for _, id := range ids {
		state := known.Minions[id]
		more := ""
		switch state {
		case client.Returned: // meanwhile
		case client.Queued:
			more = "no contact yet; it gets the job if it connects before " + known.Expires.Format("15:04:05")
		case client.Expired:
			more = "it did not connect before " + known.Expires.Format("15:04:05") + "; the job has expired"
		case client.Delivered, client.Started:
			more = "the job was " + state + ", but the minion no longer answers; look up a later result with salt-run jobs.lookup_jid " + jid
			state = lostContact
		case client.Sent:
			more = "the job was published; this minion does not report whether it received it"
		default:
			continue
		}
		counts[state]++
		r.change(jid, id, state, more)
	}
	if r.counts {
		r.total(jid, counts)
	}
}

// total shows the number of minions in each state.
func (r stateReport) total(jid string, counts map[string]int) {
	if r.json {
		if b, err := json.Marshal(map[string]any{"jid": jid, "states": counts}); err == nil {
			r.env.Errorf("%s", b)
		}
		return
	}
	var parts []string
	for state, n := range counts {
		parts = append(parts, fmt.Sprintf("%s: %d", state, n))
	}
	slices.Sort(parts)
	r.env.Errorf("States of the minions: %s", strings.Join(parts, ", "))
}

// setExpire adds the expiry to the additional keys of the job.
func (p *program) setExpire(kw *value.Dict) {
	if p.session == nil {
		return
	}
	if n, ok := p.expire(); ok {
		kw.Set("expire", n)
	}
}

// maxNamed bounds the number of minions named in a message.
const maxNamed = 5

// printable returns a name reported by a minion, quoted if it has characters that a terminal could
// interpret.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) || !utf8.ValidString(name) {
		return strconv.Quote(name)
	}
	return name
}

// tellElsewhere prints the minions that another master commands. This program does not wait for
// their returns.
func (p *program) tellElsewhere(elsewhere map[string]string) {
	p.elsewhere = make(map[string]string, len(elsewhere))
	for id, master := range elsewhere {
		p.elsewhere[id] = printable(master)
	}
	elsewhere = p.elsewhere
	byMaster := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(elsewhere)) {
		byMaster[elsewhere[id]] = append(byMaster[elsewhere[id]], id)
	}
	for _, master := range slices.Sorted(maps.Keys(byMaster)) {
		ids := byMaster[master]
		more, are := "", "is"
		if len(ids) > maxNamed {
			more = fmt.Sprintf(" and %d more", len(ids)-maxNamed)
		}
		if len(ids) > 1 {
			are = "are"
		}
		p.session.Env.Errorf("%s%s %s commanded by the master %s: run the command there, or join the masters to a cluster",
			strings.Join(ids[:min(len(ids), maxNamed)], ", "), more, are, master)
	}
}
