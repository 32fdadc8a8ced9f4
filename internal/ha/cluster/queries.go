package cluster

import (
	"context"
	"log/slog"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// queries sends queries to other masters, and answers theirs.
type queries struct {
	log     *slog.Logger
	peers   *peerSet
	answers map[string]func(peer string, arg *value.Dict) *value.Dict
}

// Answer sets the function that answers queries (Ask) of that name. It must be called before Run.
func (q *queries) Answer(name string, fn func() *value.Dict) {
	q.AnswerWith(name, func(*value.Dict) *value.Dict { return fn() })
}

// AnswerWith is Answer for queries with an argument. arg is nil if it is missing.
func (q *queries) AnswerWith(name string, fn func(arg *value.Dict) *value.Dict) {
	q.AnswerPeer(name, func(_ string, arg *value.Dict) *value.Dict { return fn(arg) })
}

// AnswerPeer is AnswerWith for answers that depend on the asking peer.
func (q *queries) AnswerPeer(name string, fn func(peer string, arg *value.Dict) *value.Dict) {
	q.answers[name] = fn
}

// AskOne queries one master. The error is of kind Unavailable if it is unreachable.
func (q *queries) AskOne(ctx context.Context, id, name string, arg *value.Dict) (*value.Dict, error) {
	p := q.peers.all()[id]
	if p == nil {
		return nil, salt.Errorf(salt.NotFound, "there is no master %s in the cluster", id)
	}
	return p.ask(ctx, name, arg)
}

// Ask queries all reachable masters, and returns their answers.
func (q *queries) Ask(ctx context.Context, name string) map[string]*value.Dict {
	return q.AskAbout(ctx, name, nil)
}

// AskAbout is Ask with an argument.
func (q *queries) AskAbout(ctx context.Context, name string, arg *value.Dict) map[string]*value.Dict {
	out := map[string]*value.Dict{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range q.peers.all() {
		wg.Go(func() {
			d, err := p.ask(ctx, name, arg)
			if err != nil {
				q.log.Debug("a peer does not answer", "peer", p.id, "about", name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[p.id] = d
		})
	}
	wg.Wait()
	return out
}
