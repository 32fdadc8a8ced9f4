package minion

import (
	"context"
	"errors"

	"brine/internal/py/value"
)

// Ask sends one request to the master that the caller is signed in to.
func (c *Caller) Ask(ctx context.Context, load *value.Dict) (any, error) {
	if c.conn == nil {
		return nil, errors.New("the caller has no master")
	}
	load.Set("id", c.m.cfg.ID)
	return c.conn.Client.Request(ctx, load)
}

// Pillar returns the pillar that this master gave, or nil.
func (c *Caller) Pillar() *value.Dict {
	if c.conn == nil {
		return nil
	}
	return c.conn.Pillar()
}
