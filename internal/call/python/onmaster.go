package python

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// Bus is the event bus of a master or of a minion.
type Bus interface {
	Fire(tag string, data *value.Dict) error
	Subscribe(size int, prefixes ...string) *event.Subscription
}

// Commander sends jobs to the minions of a master. *client.Client implements it.
type Commander interface {
	Call(ctx context.Context, j client.Job) (client.Published, []client.Result, error)
	Publish(ctx context.Context, j client.Job) (client.Published, error)
	Start(ctx context.Context, j client.Job) (*client.Running, error)
}

// maxQueued bounds the events that a module has not read yet.
const maxQueued = 1 << 12

// subscriptions are those of a call, by number.
type subscriptions struct {
	mu   sync.Mutex
	last int64
	all  map[int64]subscription
}

type subscription struct {
	*event.Subscription
	// forget makes the end of the call close it no longer.
	forget func() bool
}

// add adds a subscription that ends with ctx.
func (s *subscriptions) add(ctx context.Context, sub *event.Subscription) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[int64]subscription{}
	}
	s.last++
	s.all[s.last] = subscription{sub, context.AfterFunc(ctx, sub.Close)}
	return s.last
}

// get returns a subscription, or nil.
func (s *subscriptions) get(n int64) *event.Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[n].Subscription
}

// end ends a subscription.
func (s *subscriptions) end(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub, ok := s.all[n]; ok {
		sub.forget()
		sub.Close()
		delete(s.all, n)
	}
}

// bus fires an event (tag, data), subscribes to tags (prefixes) until the call ends, ends a
// subscription (number), or waits for the next event of one (number, seconds or nil).
func (e *Env) bus(ctx context.Context, name string, a arguments) (any, error) {
	if e.Bus == nil {
		return nil, fn.Errorf("there is no event bus here")
	}
	switch name {
	case "fire":
		data, ok := a.at(1).(*value.Dict)
		if !ok {
			return nil, &fn.ExceptionError{Class: "ValueError", Text: "Dict object expected, not '" + value.Repr(a.at(1)) + "'."}
		}
		return true, e.Bus.Fire(a.text(0), data)
	case "subscribe":
		return e.subscribed.add(ctx, e.Bus.Subscribe(maxQueued, value.Texts(a.at(0))...)), nil
	}
	number, _ := a.at(0).(int64)
	if name == "unsubscribe" {
		e.subscribed.end(number)
		return nil, nil
	}
	sub := e.subscribed.get(number)
	if sub == nil {
		return nil, errMalformed
	}
	var limit <-chan time.Time
	if wait, ok := duration(a.at(1)); ok {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		limit = timer.C
	}
	select {
	case got, ok := <-sub.C:
		if !ok {
			return nil, context.Cause(ctx)
		}
		return value.Tuple{got.Tag, got.Data}, nil
	default:
	}
	select {
	case got, ok := <-sub.C:
		if !ok {
			return nil, context.Cause(ctx)
		}
		return value.Tuple{got.Tag, got.Data}, nil
	case <-limit:
		return nil, nil
	case <-e.Stop:
		return nil, errEnds
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// duration reads seconds.
func duration(v any) (time.Duration, bool) {
	switch x := v.(type) {
	case int64:
		return time.Duration(x) * time.Second, true
	case float64:
		return time.Duration(x * float64(time.Second)), true
	}
	return 0, false
}

// command sends a job to minions: a dict of its parts. It returns the job id, the ids of the minions
// that were meant, and unless wait is false what they returned.
func (e *Env) command(ctx context.Context, a arguments) (any, error) {
	commander, j, err := e.job(a)
	if err != nil {
		return nil, err
	}
	if d, _ := a.at(0).(*value.Dict); d.At("wait") == false {
		sent, err := commander.Publish(ctx, j)
		if errors.Is(err, client.ErrNoMatch) {
			err = nil
		}
		return value.Tuple{sent.JID, value.Strings(sent.Minions), nil}, ClientError(err)
	}
	sent, results, err := commander.Call(ctx, j)
	if errors.Is(err, client.ErrNoMatch) {
		return value.Tuple{"", &value.List{}, nil}, nil
	}
	if err != nil {
		return nil, ClientError(err)
	}
	returned := value.NewDict(len(results))
	for _, r := range results {
		if r.Absent {
			continue
		}
		returned.Set(r.ID, r.Fields(sent.JID))
	}
	return value.Tuple{sent.JID, value.Strings(sent.Minions), returned}, nil
}

// ClientError returns the exception of salt.client for an error of a request to a master.
func ClientError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	class := "SaltClientError"
	var r *client.Refused
	if errors.As(err, &r) && slices.Contains(refusals, r.Name) {
		class = r.Name
	}
	return &fn.ExceptionError{Class: "salt.exceptions." + class, Text: err.Error()}
}

// refusals are the exceptions of salt.exceptions by which masters refuse.
var refusals = []string{"AuthenticationError", "AuthorizationError", "EauthAuthenticationError"}

// match reports whether a target matches: its type, the target, the delimiter, the id, and dicts of
// grains, pillar and nodegroups, or nil for those of the call. As in Salt an invalid target matches
// nothing.
func (e *Env) match(a arguments) (any, error) {
	c := e.Call
	groups := target.Nodegroups{}
	named, ok := a.at(6).(*value.Dict)
	if !ok {
		named, _ = c.Config.Get("nodegroups").(*value.Dict)
	}
	for name, words := range named.All() {
		groups[value.Str(name)] = words
	}
	m, err := groups.Parse(a.text(0), a.at(1), a.text(2))
	if err != nil {
		c.Log.Error("cannot match a target", "target", value.Str(a.at(1)), "err", err)
		return false, nil
	}
	who := target.Data{MinionID: a.text(3)}
	if who.GrainData, ok = a.at(4).(*value.Dict); !ok {
		who.GrainData = c.Grains.All()
	}
	if who.PillarData, ok = a.at(5).(*value.Dict); !ok {
		who.PillarData = c.Pillar.All()
	}
	return m.Match(who), nil
}
