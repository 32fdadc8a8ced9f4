package fileclient

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/py/value"
)

// patience is how long to wait for a master that has answered this client and is now unreachable. So a run of
// states survives a restart or failover of its master.
const patience = 2 * time.Minute

// receive writes a file to w from an offset on; h has hashed what is before. The error is a *changedError if
// the whole does not have the wanted hash. It waits for a broken connection to return.
func (c *Client) receive(ctx context.Context, at location, w io.Writer, h hash.Hash, from int64, want Hash, level int) error {
	if h == nil {
		return salt.Errorf(salt.Invalid, "the file server uses the hash %q, which is not known here", want.Type)
	}
	next := c.partsOf(at, want, level)
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

// patiently makes a request, and retries it if the master has answered before and is now unreachable. After
// an unsuccessful wait, requests do not wait until the master answers again.
func (c *Client) patiently(ctx context.Context, ask func() error) error {
	for until, pause := time.Now().Add(patience), 100*time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := ask()
		if err != nil && ctx.Err() != nil {
			return err
		}
		kind := salt.KindOf(err)
		if err == nil || kind != salt.Unavailable && kind != salt.Timeout {
			c.heard.Store(true)
			return err
		}
		if c.sharer == nil || !c.heard.Load() {
			return err
		}
		if time.Now().After(until) {
			c.heard.Store(false)
			return err
		}
		c.log.Debug("the master that files come from is waited for", "err", err)
		if !wait.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// requestShared makes a request to a Brine master.
func (c *Client) requestShared(ctx context.Context, load *value.Dict) (v any, shared []byte, free func(), err error) {
	err = c.patiently(ctx, func() (err error) {
		v, shared, free, err = c.sharer.RequestShared(ctx, load)
		return err
	})
	return v, shared, free, err
}

// partsOf returns a function that fetches the part of a file at an offset, and reports whether it is the last
// one. The caller calls free when it no longer uses the part.
func (c *Client) partsOf(at location, want Hash, level int) func(ctx context.Context, loc int64) (part []byte, end bool, free func(), err error) {
	shares := c.sharer != nil
	return func(ctx context.Context, loc int64) (part []byte, end bool, free func(), err error) {
		if shares {
			part, end, free, err := c.sharedPart(ctx, at, want, loc)
			if salt.KindOf(err) != salt.NotFound || isAbsent(err) {
				return part, end, free, err
			}
			shares = false // a stock master
		}
		part, end, err = c.servedPart(ctx, at, loc, level)
		return part, end, func() {}, err
	}
}

// sharedPart requests a part from a Brine master.
func (c *Client) sharedPart(ctx context.Context, at location, want Hash, loc int64) (part []byte, end bool, free func(), err error) {
	v, part, free, err := c.requestShared(ctx, value.DictOf("cmd", "_brine_part", "path", at.path, "saltenv", at.env, "hsum", want.Sum, "loc", loc))
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
		return nil, false, nil, &changedError{at} // it became shorter
	}
	return part, loc+int64(len(part)) == size, free, nil
}

// servedPart requests a part as Salt's minions do. An empty part is the end.
func (c *Client) servedPart(ctx context.Context, at location, loc int64, level int) ([]byte, bool, error) {
	pairs := []any{"path", at.path, "saltenv", at.env, "loc", loc}
	if level > 0 {
		pairs = append(pairs, "gzip", int64(level))
	}
	v, err := c.request(ctx, "_serve_file", pairs...)
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
