// Package background runs what a minion does aside: jobs, looks of beacons, refreshes.
// The process waits for it at its end.
package background

import (
	"context"
	"sync"
)

// Group has the goroutines of one minion, and the context in which jobs run. Use has
// to be called before others call Context at the same time.
type Group struct {
	sync.WaitGroup
	ctx context.Context
}

// New returns a group whose work ends with ctx.
func New(ctx context.Context) *Group { return &Group{ctx: ctx} }

// Use has what is started from now on end with another context.
func (g *Group) Use(ctx context.Context) { g.ctx = ctx }

// Context returns the context in which jobs run.
func (g *Group) Context() context.Context { return g.ctx }
