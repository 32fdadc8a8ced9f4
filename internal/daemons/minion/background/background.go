// Package background runs the background work of a minion: jobs, beacons, refreshes.
// The process waits for it when it ends.
package background

import (
	"context"
	"sync"
)

// Group tracks the goroutines of one minion, and provides the context in which jobs run.
// Call Use before concurrent calls of Context.
type Group struct {
	sync.WaitGroup
	ctx context.Context
}

// New returns a group whose work is cancelled when ctx ends.
func New(ctx context.Context) *Group { return &Group{ctx: ctx} }

// Use makes work that starts from now on end with another context.
func (g *Group) Use(ctx context.Context) { g.ctx = ctx }

// Context returns the context in which jobs run.
func (g *Group) Context() context.Context { return g.ctx }
