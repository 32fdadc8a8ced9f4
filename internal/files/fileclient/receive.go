package fileclient

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/py/value"
)

// waitLimit is how long to wait for a master that has answered this client before and is now unreachable, so
// that a run of states survives a restart or failover of its master.
const waitLimit = 2 * time.Minute

// origin sends requests to the source of files.
type origin struct {
	src    Source
	sharer Sharer // src if it supports shared answers; then files are stored by content
	log    *slog.Logger
	// heard is set while src answers.
	heard atomic.Bool
}

func newOrigin(src Source, log *slog.Logger) *origin {
	o := &origin{src: src, log: log}
	o.sharer, _ = src.(Sharer)
	return o
}

// request sends a request, and waits for a master that has answered before.
func (o *origin) request(ctx context.Context, cmd string, pairs ...any) (any, error) {
	if o.src == nil {
		return nil, salt.Errorf(salt.Unavailable, "there is no master to fetch files from; set file_client: local to use the file_roots of this machine")
	}
	load := value.DictOf(pairs...)
	load.Set("cmd", cmd)
	var v any
	ask := func() (err error) {
		v, err = o.src.Request(ctx, load)
		return err
	}
	var err error
	if cmd == "_file_recv" { // no retry: the data could be appended twice
		err = ask()
	} else {
		err = o.patiently(ctx, ask)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask the file server: %w", err)
	}
	return v, nil
}

// dict sends a request whose reply must be a dict.
func (o *origin) dict(ctx context.Context, cmd string, pairs ...any) (*value.Dict, error) {
	v, err := o.request(ctx, cmd, pairs...)
	if err != nil {
		return nil, err
	}
	if d, ok := v.(*value.Dict); ok {
		return d, nil
	}
	return value.NewDict(0), nil
}

// receive writes a file to w, starting at an offset; h has hashed the part before it. The error is a
// *changedError if the whole file does not have the wanted hash. It waits until a broken connection is
// restored.
func (o *origin) receive(ctx context.Context, at location, w io.Writer, h hash.Hash, from int64, want Hash, level int) error {
	if h == nil {
		return salt.Errorf(salt.Invalid, "the file server uses the hash %q, which is not known here", want.Type)
	}
	next := o.partsOf(at, want, level)
	for loc := from; ; {
		part, end, free, err := next(ctx, loc)
		if err != nil {
			return err
		}
		h.Write(part)
		if _, err := w.Write(part); err != nil {
			return err
		}
		loc += int64(len(part))
		free()
		if end {
			break
		}
	}
	if hex.EncodeToString(h.Sum(nil)) != want.Sum {
		return &changedError{at}
	}
	return nil
}

// patiently sends a request, and retries it if the master has answered before and is now unreachable. After an
// unsuccessful wait, requests do not wait until the master has answered again.
func (o *origin) patiently(ctx context.Context, ask func() error) error {
	for until, pause := time.Now().Add(waitLimit), 100*time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := ask()
		if err != nil && ctx.Err() != nil {
			return err
		}
		kind := salt.KindOf(err)
		if err == nil || kind != salt.Unavailable && kind != salt.Timeout {
			o.heard.Store(true)
			return err
		}
		if o.sharer == nil || !o.heard.Load() {
			return err
		}
		if time.Now().After(until) {
			o.heard.Store(false)
			return err
		}
		o.log.Debug("waiting for the master that serves files", "err", err)
		if !wait.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// requestShared sends a request to a Brine master.
func (o *origin) requestShared(ctx context.Context, load *value.Dict) (v any, shared []byte, free func(), err error) {
	err = o.patiently(ctx, func() (err error) {
		v, shared, free, err = o.sharer.RequestShared(ctx, load)
		return err
	})
	return v, shared, free, err
}

// partsOf returns a function that fetches the part of a file at an offset, and reports whether it is the last
// one. The caller calls free when it no longer uses the part.
func (o *origin) partsOf(at location, want Hash, level int) func(ctx context.Context, loc int64) (part []byte, end bool, free func(), err error) {
	shares := o.sharer != nil
	return func(ctx context.Context, loc int64) (part []byte, end bool, free func(), err error) {
		if shares {
			part, end, free, err := o.sharedPart(ctx, at, want, loc)
			if salt.KindOf(err) != salt.NotFound || isAbsent(err) {
				return part, end, free, err
			}
			shares = false // a stock master
		}
		part, end, err = o.servedPart(ctx, at, loc, level)
		return part, end, func() {}, err
	}
}

// sharedPart requests a part from a Brine master.
func (o *origin) sharedPart(ctx context.Context, at location, want Hash, loc int64) (part []byte, end bool, free func(), err error) {
	v, part, free, err := o.requestShared(ctx, value.DictOf("cmd", "_brine_part", "path", at.path, "saltenv", at.env, "hsum", want.Sum, "loc", loc))
	if err != nil {
		return nil, false, nil, err
	}
	d, _ := v.(*value.Dict)
	size := d.Int("size")
	switch {
	case d.Bool("changed"):
		return nil, false, nil, &changedError{at}
	case !d.Has("size"):
		return nil, false, nil, notFound(at.path, at.env)
	case len(part) == 0 && loc < size, loc+int64(len(part)) > size:
		return nil, false, nil, &changedError{at} // the file became shorter
	}
	return part, loc+int64(len(part)) == size, free, nil
}

// servedPart requests a part as Salt's minions do. An empty part is the end.
func (o *origin) servedPart(ctx context.Context, at location, loc int64, level int) ([]byte, bool, error) {
	pairs := []any{"path", at.path, "saltenv", at.env, "loc", loc}
	if level > 0 {
		pairs = append(pairs, "gzip", int64(level))
	}
	v, err := o.request(ctx, "_serve_file", pairs...)
	if err != nil {
		return nil, false, err
	}
	d, ok := v.(*value.Dict)
	if !ok || !d.Has("data") {
		return nil, false, fmt.Errorf("the file server answered with a %s in place of a part of a file", value.TypeName(v))
	}
	part := d.Bytes("data")
	if d.Bool("gzip") && len(part) > 0 {
		part, err = inflate(part)
	}
	return part, len(part) == 0, err
}
