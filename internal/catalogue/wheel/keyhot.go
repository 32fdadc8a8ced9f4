package wheel

import (
	"context"
	"fmt"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// HotKeys are the keys at other masters that share this one's key and are no cluster with it (the option hot_masters).
// Its functions may be nil.
type HotKeys struct {
	// List returns {own, masters: {ID: {problem, keys: [[id, list, fingerprint]]}}}.
	List func() (*value.Dict, error)
	// Decide accepts, rejects or deletes keys there for a user: [[id, fingerprint, public key]]. It returns for each master
	// {problem, keys: {ID: why nothing was done, or ""}}.
	Decide func(ctx context.Context, user, action string, keys *value.List) *value.Dict
}

type userOf struct{}

// As returns a context of functions that are called by a user.
func As(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userOf{}, user)
}

// elsewhere returns the keys at hot masters.
func (k key) elsewhere(context.Context, *fn.Call, none) (*value.Dict, error) {
	if k.Hot.List == nil {
		return value.DictOf("masters", value.NewDict(0)), nil
	}
	return k.Hot.List()
}

type decideArgs struct {
	Action string `salt:"action" doc:"accept, reject or delete"`
	Keys   any    `salt:"keys" doc:"a list of [id, fingerprint]; a key with another fingerprint stays as it is"`
}

// decide decides on keys at hot masters.
func (k key) decide(ctx context.Context, _ *fn.Call, a decideArgs) (*value.Dict, error) {
	list, ok := a.Keys.(*value.List)
	if a.Action != "accept" && a.Action != "reject" && a.Action != "delete" || !ok {
		return nil, fn.Errorf("action must be accept, reject or delete, and keys a list of [id, fingerprint]")
	}
	if k.Hot.Decide == nil {
		return value.NewDict(0), nil
	}
	user, _ := ctx.Value(userOf{}).(string)
	return k.Hot.Decide(ctx, fmt.Sprintf("%.100s", user), a.Action, list), nil
}
