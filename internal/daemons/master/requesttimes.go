package master

import (
	"time"

	"brine/internal/base/metrics"
)

var (
	requestTimes = metrics.Family{Name: "brine_master_request_duration_seconds", Kind: metrics.Duration,
		Help: "Time from a request of a minion or a program to its answer.", Labels: []string{"kind"}}
	slowRequests = metrics.Family{Name: "brine_master_slow_requests_total", Kind: metrics.Counter,
		Help: "Requests that took longer than a second.", Labels: []string{"kind"}}
	busyRequests = metrics.Family{Name: "brine_master_requests_in_progress", Help: "Slow requests in progress, by who asks.", Labels: []string{"by"}}
	mostRequests = metrics.Family{Name: "brine_master_requests_limit", Help: "Limit of slow requests in progress, by who asks.", Labels: []string{"by"}}
)

func requestFamilies() []*metrics.Family {
	return []*metrics.Family{&requestTimes, &slowRequests, &busyRequests, &mostRequests}
}

// timed measures the duration of requests by kind.
type timed struct{ returns, pillars, files, events, others metrics.Times }

// slowTime is the duration above which a request counts as slow.
const slowTime = time.Second

// all returns the durations of all kinds.
func (t *timed) all(signIns *metrics.Times) metrics.Counts {
	sum := signIns.Counts()
	for _, times := range []*metrics.Times{&t.returns, &t.pillars, &t.files, &t.events, &t.others} {
		sum = sum.Plus(times.Counts())
	}
	return sum
}

func (t *timed) metrics(p *metrics.Page, signIns *metrics.Times) {
	for _, k := range []struct {
		name  string
		times *metrics.Times
	}{{"sign_in", signIns}, {"return", &t.returns}, {"pillar", &t.pillars}, {"file", &t.files}, {"event", &t.events}, {"other", &t.others}} {
		p.Times(&requestTimes, k.times, k.name)
		p.Count(&slowRequests, k.times.Longer(slowTime), k.name)
	}
}
