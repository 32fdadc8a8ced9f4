package master

import (
	"testing"
	"time"

	"brine/internal/base/metrics"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// TestLoads: the load of this master is that of the time between two samples, and that of another one is taken only if it tells its own.
func TestLoads(t *testing.T) {
	var times metrics.Times
	at := time.Now()
	l := newLoads(&loads{id: "a", began: at, requests: times.Counts})
	l.sample(at)
	first := l.all()["a"]
	if first.CPU != 0 || first.Requests != 0 || first.Memory <= 0 || first.RAM < first.Memory || first.Cores <= 0 || !first.Seen.Equal(at) {
		t.Errorf("%+v", first)
	}
	times.Observe(100 * time.Second) // before
	l.sample(at)
	for range 99 {
		times.Observe(2 * time.Millisecond)
	}
	times.Observe(102 * time.Millisecond)
	l.sample(at.Add(10 * time.Second))
	own := l.all()["a"]
	if own.Requests != 10_000 || own.Mean != 3000 || own.Most != 2500 || own.CPU < 0 || own.Machine < 0 || own.Machine > 100 {
		t.Errorf("%+v", own)
	}
	l.take("b", l.answer(nil))
	l.take("old", value.NewDict(0))
	l.take("bad", value.DictOf("version", 5))
	all := l.all()
	if b := all["b"]; len(all) != 2 || b.Requests != 10_000 || b.Version == "" || b.Began.Sub(at).Abs() > time.Millisecond || b.Seen.IsZero() {
		t.Errorf("%+v", all)
	}
	var w wire.MasterLoad
	if err := wire.Decode(l.answer(nil), &w); err != nil {
		t.Error(err)
	}
}
