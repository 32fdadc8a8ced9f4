package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"path"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/store/cache"
)

// Values is a store of the cache; cache.Driver is one.
type Values interface {
	Store(ctx context.Context, bank, key string, data []byte) error
	Fetch(ctx context.Context, bank, key string) ([]byte, error)
	Written(ctx context.Context, bank, key string) (time.Time, error)
	List(ctx context.Context, bank string) ([]string, error)
}

var _ Values = cache.Driver(nil)

// maxDepth bounds the nesting of banks.
const maxDepth = 16

// place locates one value.
type place struct{ bank, key string }

func (p place) String() string { return p.bank + "/" + p.key }

// Cache copies the values of banks and of the banks below them. It fails only if a store is unreachable.
func Cache(ctx context.Context, from, to Values, banks []string, o Options) (Report, error) {
	c := &valueCopy{from: from, to: to, o: o, expect: map[place]expected{}}
	var all []place
	for _, b := range banks {
		found, err := c.find(ctx, b, 0)
		if err != nil {
			return c.r, err
		}
		all = append(all, found...)
	}
	for i, p := range all {
		if err := c.one(ctx, p); err != nil {
			return c.r, err
		}
		o.progress("cache", i+1, len(all))
	}
	if o.DryRun {
		return c.r, nil
	}
	return c.r, c.verify(ctx, all)
}

type valueCopy struct {
	from, to Values
	o        Options
	r        Report
	// expect is the expected content of the target afterwards.
	expect map[place]expected
}

// expected is a value, and when it was seen at the target.
type expected struct {
	sum [sha256.Size]byte
	at  time.Time
}

func (c *valueCopy) expects(p place, data []byte) {
	c.expect[p] = expected{sha256.Sum256(data), time.Now()}
}

// find returns the values in a bank and below it. A name may be both a value and a bank.
func (c *valueCopy) find(ctx context.Context, bank string, depth int) (out []place, err error) {
	names, err := c.from.List(ctx, bank)
	if err != nil || depth > maxDepth {
		return nil, err
	}
	for _, n := range names {
		data, err := c.from.Fetch(ctx, bank, n)
		switch {
		case err != nil && salt.KindOf(err) == salt.Unavailable:
			return nil, err
		case err != nil:
			c.r.Found++
			c.r.fail("%s: %v", path.Join(bank, n), err)
		case data != nil:
			out = append(out, place{bank, n})
		}
		below, err := c.find(ctx, bank+"/"+n, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, below...)
		c.o.progress("cache", 0, 0)
		if err := ended(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// one copies a value. It returns an error only if a store is unreachable.
func (c *valueCopy) one(ctx context.Context, p place) error {
	if err := ended(ctx); err != nil {
		return err
	}
	// Read the time first: a value written in between is newer than this time.
	at, err := c.from.Written(ctx, p.bank, p.key)
	if err != nil {
		return err
	}
	data, err := c.from.Fetch(ctx, p.bank, p.key)
	if err != nil || data == nil { // removed meanwhile
		return err
	}
	c.r.Found++
	if _, err := msgpack.UnmarshalTyped(data); err != nil {
		c.r.fail("%s is damaged at the source and not copied: %v", p, err)
		return nil
	}
	there, err := c.to.Fetch(ctx, p.bank, p.key)
	if err != nil {
		return err
	}
	if bytes.Equal(there, data) {
		c.r.Same++
		c.expects(p, data)
		return nil
	}
	if there != nil {
		thereAt, err := c.to.Written(ctx, p.bank, p.key)
		if err != nil {
			return err
		}
		if at.IsZero() || thereAt.IsZero() || !at.After(thereAt) {
			c.expects(p, there)
			c.r.keep("%s: the target has another value, of %s, and keeps it; the source has it of %s", p, moment(thereAt), moment(at))
			return nil
		}
	}
	if !c.o.DryRun {
		if err := c.to.Store(ctx, p.bank, p.key, data); salt.KindOf(err) == salt.Invalid && err != nil {
			c.r.fail("%s: the target rejected it: %v", p, err)
			return nil
		} else if err != nil {
			return err
		}
	}
	c.expects(p, data)
	c.r.Copied++
	return nil
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "unknown time"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// verify reads everything again at the target.
func (c *valueCopy) verify(ctx context.Context, all []place) error {
	for i, p := range all {
		if err := ended(ctx); err != nil {
			return err
		}
		want, ok := c.expect[p]
		if !ok {
			continue // already failed, or removed meanwhile
		}
		good, err := c.good(ctx, p, want)
		if err != nil {
			return err
		}
		if good {
			c.r.Verified++
		} else {
			c.r.fail("%s differs at the target from what was written", p)
		}
		c.o.progress("cache: compared", i+1, len(all))
	}
	return nil
}

// good reports whether the target has the expected value, or whether a master has written or
// removed it since.
func (c *valueCopy) good(ctx context.Context, p place, want expected) (bool, error) {
	there, err := c.to.Fetch(ctx, p.bank, p.key)
	if err != nil || there != nil && sha256.Sum256(there) == want.sum {
		return err == nil, err
	}
	here, err := c.from.Fetch(ctx, p.bank, p.key)
	if err != nil || bytes.Equal(here, there) { // also if it is removed at both
		return err == nil, err
	}
	at, err := c.to.Written(ctx, p.bank, p.key)
	if there == nil || err != nil {
		return false, err
	}
	_, damaged := msgpack.UnmarshalTyped(there)
	return damaged == nil && at.After(want.at), nil
}
