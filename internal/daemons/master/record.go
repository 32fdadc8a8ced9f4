package master

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/call/audit"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// Results of requests in the audit record.
const (
	resultDone    = "done"
	resultRefused = "refused" // the caller is not authenticated
	resultDenied  = "denied"  // no permission
	// resultUnapproved: a second user must approve it (approval_above).
	resultUnapproved = "needs approval"
	resultFailed     = "failed" // the reactor could not start it
)

// newRefusalLimit bounds the recorded refusals of unauthenticated callers: every
// user can cause them, and they must not displace other records.
func newRefusalLimit() *ratelimit.Window {
	return &ratelimit.Window{Most: 10, Every: 10 * time.Second}
}

// refusal returns the result for a caller without permission, or an
// unauthenticated one (nil).
func refusal(who *caller) string {
	if who == nil {
		return resultRefused
	}
	return resultDenied
}

// recorder writes audit records.
type recorder struct {
	audit           *audit.Log
	console         *consoleStore // nil without console_store
	log             *slog.Logger
	unauthenticated *ratelimit.Window
}

// record writes who requested what. It skips the find_job queries that programs
// send automatically.
func (r *recorder) record(c *channel.Call, who *caller, result, jid string) {
	var in wire.Clear
	wire.View(c.Load, &in)
	fun := value.Str(in.Fun)
	if fun == "saltutil.find_job" && result == resultDone {
		return
	}
	var skipped int
	if who == nil && result == resultRefused {
		var ok bool
		if skipped, ok = r.unauthenticated.Admit(time.Now()); !ok {
			return
		}
	}
	user := in.User
	if d := external(c.Load); d != nil {
		user = credentials(d).Name
	}
	if who != nil {
		user = who.name
	}
	d := entry(user, howOf(c.Load), c.Load)
	d.Set("from", fmt.Sprint(c.Peer()))
	d.Set("cmd", c.Cmd)
	d.Set("result", result)
	if who != nil && who.approver != "" {
		d.Set("approved_by", fmt.Sprintf("%.100s", who.approver))
	}
	if jid != "" {
		d.Set("jid", jid)
	}
	if skipped > 0 {
		d.Set("skipped", int64(skipped))
	}
	r.keep(d)
}

// recordOf writes who read data of a minion.
func (r *recorder) recordOf(c *channel.Call, who *caller, result, minion string) {
	d := entry(who.name, howOf(c.Load), c.Load)
	d.Set("tgt", fmt.Sprintf("%.500s", minion))
	d.Set("from", fmt.Sprint(c.Peer()))
	d.Set("cmd", c.Cmd)
	d.Set("result", result)
	r.keep(d)
}

// recordApproval writes that a user asked for approval of a job, or decided on it. of describes the job.
func (r *recorder) recordApproval(c *channel.Call, who *caller, of *value.Dict) {
	d := entry(who.name, howOf(c.Load), c.Load)
	var in wire.ApprovalShown
	wire.View(of, &in)
	d.Set("tgt", fmt.Sprintf("%.500s", value.Str(in.Tgt)))
	d.Set("asked_by", fmt.Sprintf("%.100s", in.User))
	d.Set("asked_fun", fmt.Sprintf("%.500s", value.Str(in.Fun)))
	if jid, ok := in.JID.(string); ok && jid != "" {
		d.Set("jid", jid)
	}
	d.Set("from", fmt.Sprint(c.Peer()))
	d.Set("cmd", c.Cmd)
	d.Set("result", resultDone)
	r.keep(d)
}

// entry starts a record of a request.
func entry(user, auth string, load *value.Dict) *value.Dict {
	d := value.DictOf("time", event.Stamp(time.Now()), "user", fmt.Sprintf("%.100s", user), "auth", auth)
	for _, k := range []string{"fun", "tgt"} {
		if v := load.At(k); v != nil {
			d.Set(k, fmt.Sprintf("%.500s", value.Str(v)))
		}
	}
	return d
}

func (r *recorder) keep(d *value.Dict) {
	end, err := r.audit.Add(d)
	r.console.add(d, end)
	if err == nil {
		return
	}
	text, e := json.Dump(d, json.Format{ASCII: true})
	r.log.Error("cannot write an audit record", "record", text, "err", errors.Join(err, e))
}
