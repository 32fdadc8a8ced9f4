package sinks

import (
	"brine/internal/base/ratelimit"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// Limits of the queue of files for stock programs. Returns beyond them are dropped:
// the job store has the data, and minions must not wait for these files.
const (
	maxReturnFiles     = 16 << 10
	maxReturnFileBytes = 64 << 20
)

// StockFiles writes jobs and returns to the files that stock programs read. It
// writes returns in the background (option job_cache_files).
type StockFiles struct {
	cache *job.LocalCache
	// loads and returns report whether to write the loads and the returns of jobs; this
	// may change while the master runs.
	loads, returns func() bool
	log            *slog.Logger
	rateLimitedLog *ratelimit.Log
	queue          chan returnFile
	waiting        atomic.Int64 // bytes in queue
}

type returnFile struct {
	jid, id string
	ret     *value.Dict
	size    int64
}

// NewStockFiles returns a writer to the job cache of stock masters. The caller must
// call Run.
func NewStockFiles(cache *job.LocalCache, loads, returns func() bool, log *slog.Logger) *StockFiles {
	return &StockFiles{cache: cache, loads: loads, returns: returns, log: log, rateLimitedLog: ratelimit.NewLog(log, 1, time.Minute),
		queue: make(chan returnFile, maxReturnFiles)}
}

// PutLoad writes the load of a job at once.
func (f *StockFiles) PutLoad(load *value.Dict, jid string, minions []string) {
	if !f.loads() {
		return
	}
	if err := f.cache.WriteLoad(jid, load, minions); err != nil {
		f.log.Warn("cannot write job files for the stock command line", "jid", jid, "err", err)
	}
}

// PutReturn queues a return for writing. The caller must not modify ret afterwards.
func (f *StockFiles) PutReturn(jid, id string, ret *value.Dict) {
	if !f.returns() || strings.HasSuffix(jid, "nocache") {
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

// Run writes queued returns until ctx ends, and then flushes the queue.
func (f *StockFiles) Run(ctx context.Context) error {
	for {
		select {
		case r := <-f.queue:
			f.write(r)
		case <-ctx.Done():
			for len(f.queue) > 0 {
				f.write(<-f.queue)
			}
			return nil
		}
	}
}

func (f *StockFiles) write(r returnFile) {
	defer f.waiting.Add(-r.size)
	if err := f.cache.WriteReturn(r.jid, r.id, r.ret); err != nil {
		f.report(err, r.jid, r.id)
	}
}

func (f *StockFiles) report(err error, jid, id string) {
	f.rateLimitedLog.Log(slog.LevelWarn, "cannot write return files for stock programs (job_cache_files); salt-run shows the return", "jid", jid, "minion", id,
		"err", err)
}
