package engine

import (
	"fmt"
	"math/rand/v2"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func random(n int64) int64 { return rand.Int64N(n) }

// pending is a state that runs in parallel.
type pending struct {
	done chan *value.Dict // receives the result
}

// start starts a state in parallel; its result is a placeholder until settle.
func (r *run) start(u *unit, f *state.Func, c *fn.Call, low *value.Dict, mask *int) *value.Dict {
	p := &pending{done: make(chan *value.Dict, 1)}
	r.pending[u.tag] = p
	low = low.Clone()
	go func() { p.done <- r.inParallel(f, c, low, mask) }()
	return value.DictOf("name", low.At("name"), "result", nil, "changes", value.NewDict(0), "comment", "Started in a separate process")
}

// inParallel runs a state, and repeats it for retry.
func (r *run) inParallel(f *state.Func, c *fn.Call, low *value.Dict, mask *int) *value.Dict {
	began := r.now()
	res := r.performer.perform(r.ctx, f, c, low, mask, r.opts.Test)
	res.Set("__parallel__", true)
	took := r.now().Sub(began)
	if low.Has("retry") {
		d := readRetry(low.At("retry"))
		if r.opts.Test {
			res.Set("comment", value.Str(res.At("comment"))+"  "+d.text())
		}
		for n := int64(1); !r.opts.Test && n <= d.attempts && !d.satisfied(res) && r.ctx.Err() == nil; n++ {
			r.pause(d)
			again := r.performer.perform(r.ctx, f, c, low, mask, false)
			comment := value.Str(res.At("comment")) + "\n"
			if text := value.Str(again.At("comment")); text != "" {
				comment += fmt.Sprintf("Attempt %d: Returned a result of \"%s\", with the following comment: \"%s\"",
					n, value.Str(again.At("result")), text)
			}
			again.Set("comment", comment)
			res, took = again, r.now().Sub(began)
		}
	}
	res.Set("start_time", clock(began))
	res.Set("duration", milliseconds(took))
	return res
}

// settle waits for the parallel units, or for all if units is nil, and replaces
// their placeholders by the results.
func (r *run) settle(units []*unit) {
	if len(r.pending) == 0 {
		return
	}
	finish := func(tag string) {
		p, ok := r.pending[tag]
		if !ok {
			return
		}
		res := r.results.Dict(tag).Clone()
		res.Update(<-p.done)
		r.set(tag, res)
		delete(r.pending, tag)
	}
	for _, u := range units {
		finish(u.tag)
	}
	if units == nil {
		for tag := range r.pending {
			finish(tag)
		}
	}
}
