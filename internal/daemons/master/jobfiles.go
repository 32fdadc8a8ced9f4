package master

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// Bounds of what waits to be written for Salt's programs. More is not written:
// it is in the job store, and minions are not kept waiting for these files.
const (
	maxReturnFiles     = 16 << 10
	maxReturnFileBytes = 64 << 20
)

// jobFiles writes returns, in the background, where Salt's Python programs look
// for them (option job_cache_files).
type jobFiles struct {
	cache *job.LocalCache
	// on says whether to write; it may change while the master runs.
	on      func() bool
	log     *ratelimit.Log
	queue   chan returnFile
	waiting atomic.Int64 // bytes
}

type returnFile struct {
	jid, id string
	ret     *value.Dict
	size    int64
}

func newJobFiles(cache *job.LocalCache, on func() bool, log *slog.Logger) *jobFiles {
	return &jobFiles{cache: cache, on: on, log: ratelimit.NewLog(log, 1, time.Minute), queue: make(chan returnFile, maxReturnFiles)}
}

// put has a return written. ret must not change any more.
func (f *jobFiles) put(jid, id string, ret *value.Dict) {
	if !f.on() || strings.HasSuffix(jid, "nocache") {
		return
	}
	r := returnFile{jid, id, ret, int64(value.Weight(ret.At("return"), maxReturnFileBytes))}
	if f.waiting.Add(r.size) <= maxReturnFileBytes {
		select {
		case f.queue <- r:
			return
		default:
		}
	}
	f.waiting.Add(-r.size)
	f.report(salt.Errorf(salt.Unavailable, "the disk cannot keep up with the returns"), jid, id)
}

// run writes until ctx ends, and then what is waiting.
func (f *jobFiles) run(ctx context.Context) {
	for {
		select {
		case r := <-f.queue:
			f.write(r)
		case <-ctx.Done():
			for len(f.queue) > 0 {
				f.write(<-f.queue)
			}
			return
		}
	}
}

func (f *jobFiles) write(r returnFile) {
	defer f.waiting.Add(-r.size)
	if err := f.cache.WriteReturn(r.jid, r.id, r.ret); err != nil {
		f.report(err, r.jid, r.id)
	}
}

func (f *jobFiles) report(err error, jid, id string) {
	f.log.Log(slog.LevelWarn, "cannot write a return for Salt's own programs (job_cache_files); salt-run shows it", "jid", jid, "minion", id, "err", err)
}
