package proc

import (
	"context"
	"maps"
	"slices"
	"sync"
	"syscall"
)

// Group tracks the programs of one job, so that they can be signalled. The zero
// Group is ready to use, and safe for concurrent use.
type Group struct {
	// Started, if set before the first program starts, is called for each
	// program. It must not block.
	Started func(pid int)

	mu   sync.Mutex
	pids map[int]struct{}
}

type groupKey struct{}

// WithGroup returns a context whose programs are tracked by g while they run.
func WithGroup(ctx context.Context, g *Group) context.Context {
	return context.WithValue(ctx, groupKey{}, g)
}

// tracked starts a program and adds it to the group of ctx, if there is one. A
// signal to the group waits for the start, so that it never misses a running
// program. untrack removes the program from the group.
func tracked(ctx context.Context, start func() (pid int, err error)) (untrack func(), err error) {
	g, ok := ctx.Value(groupKey{}).(*Group)
	if !ok {
		_, err := start()
		return func() {}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	pid, err := start()
	if err != nil {
		return nil, err
	}
	if g.pids == nil {
		g.pids = map[int]struct{}{}
	}
	g.pids[pid] = struct{}{}
	if g.Started != nil {
		g.Started(pid)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.pids, pid)
	}, nil
}

// PIDs returns the process ids of the running programs, sorted. Each is the
// leader of its process group.
func (g *Group) PIDs() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.pids))
}

// Signal sends sig to the process groups of all running programs, and returns
// their number.
func (g *Group) Signal(sig syscall.Signal) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for pid := range g.pids {
		if syscall.Kill(-pid, sig) == nil {
			n++
		}
	}
	return n
}
