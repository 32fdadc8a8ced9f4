package runner

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"brine/internal/base/trace"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// maxStates bounds the spans of states of a job; further states have none.
const maxStates = 500

// traceJob records the span of a job of a minion, and those of its states.
func traceJob(to *trace.Tracer, minion string, j *jobs.Job, ret *value.Dict, began time.Time) {
	link := trace.ParseLink(j.Pub.Trace)
	if j.First == nil {
		link = trace.Link{} // the minion has started it
	}
	root := cmp.Or(link.Root, j.JID)
	if !to.Wants(root) {
		return
	}
	var in wire.Return
	wire.View(ret, &in)
	code := value.Str(in.Retcode)
	failed := code != "0"
	if codes, many := in.Retcode.(*value.Dict); many {
		failed = slices.ContainsFunc(codes.Keys(), func(k any) bool { return codes.At(value.Str(k)) != int64(0) })
	}
	job := trace.Span{JID: j.JID, Trace: root, Name: trace.Job, Which: minion, Kind: trace.Consumer, Start: began, End: time.Now(), Failed: failed,
		Attributes: []string{"salt.function", value.Str(j.Fun), "salt.minion", minion, "salt.user", value.Str(j.Pub.User), "salt.retcode", code}}
	switch {
	case link.Root != "":
		job.Parent = link.Parent
	case j.First != nil:
		job.Parent = trace.OfPublish(j.JID)
	}
	to.Add(job)
	for _, s := range stateSpans(in.Return, began) {
		s.JID, s.Trace, s.Which, s.Parent = j.JID, root, minion+"\x00"+s.Which, trace.OfMinion(j.JID, minion)
		s.Attributes = append(s.Attributes, "salt.minion", minion)
		to.Add(s)
	}
}

// stateSpans returns the spans of the states in a return, which has the time of day at which each
// began. began is the start of the job.
func stateSpans(ret any, began time.Time) []trace.Span {
	all, ok := ret.(*value.Dict)
	if !ok {
		return nil
	}
	var spans []trace.Span
	for _, k := range all.Keys() {
		// The tag of a state is MODULE_|-ID_|-NAME_|-FUNCTION.
		parts := strings.Split(value.Str(k), "_|-")
		d, ok := all.At(value.Str(k)).(*value.Dict)
		if len(parts) != 4 || !ok || len(spans) == maxStates {
			continue
		}
		var state wire.StateResult
		wire.View(d, &state)
		clock, err := time.ParseInLocation("15:04:05.999999", state.StartTime, time.Local)
		took, isNumber := state.Duration.(float64)
		if err != nil || !isNumber {
			continue // it did not run
		}
		start := time.Date(began.Year(), began.Month(), began.Day(), clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), time.Local)
		if began.Sub(start) > 12*time.Hour {
			start = start.AddDate(0, 0, 1) // it began after midnight
		}
		result := value.Str(state.Result)
		spans = append(spans, trace.Span{Name: trace.State, Which: value.Str(k), Kind: trace.Internal, Start: start,
			End: start.Add(time.Duration(took * float64(time.Millisecond))), Failed: result == "False",
			Attributes: []string{"salt.state.function", parts[0] + "." + parts[3], "salt.state.id", parts[1], "salt.state.result", result,
				"salt.state.sls", cmp.Or(state.SLS, "none")}})
	}
	return spans
}
