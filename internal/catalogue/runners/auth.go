package runners

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Tokens creates and deletes tokens of external_auth.
type Tokens interface {
	// NewToken returns nil if the credentials are wrong.
	NewToken(ctx context.Context, creds *value.Dict) (*value.Dict, error)
	// DropToken deletes a token and reports whether it existed.
	DropToken(token string) (bool, error)
}

type tokens struct{ made Tokens }

func init() { runners.Register("auth", authModule) }

func authModule(d Deps) fn.Module {
	t := tokens{d.Tokens}
	return fn.Module{Name: "auth", Doc: `Tokens of external_auth.`, Funcs: []fn.Func{
		fn.Of("mk_token", t.make, `Create a token for username, password and eauth and return it; an empty map if they are wrong.
			token_expire is its lifetime in seconds, if token_expire_user_override allows it.`,
			fn.Example("salt-run auth.mk_token username=saltdev password=saltdev eauth=auto")),
		fn.Of("del_token", t.remove, `Delete a token and return whether it existed.`, fn.Example("salt-run auth.del_token 6556760736e4077daa601baec2b67c24")),
	}}
}

type tokenArgs struct {
	Load fn.Kwargs `salt:"load"`
}

func (t tokens) make(ctx context.Context, _ *fn.Call, a tokenArgs) (*value.Dict, error) {
	d, err := t.made.NewToken(ctx, a.Load.Clean())
	if d == nil {
		d = value.NewDict(0)
	}
	return d, err
}

type delTokenArgs struct {
	Token string `salt:"token" doc:"the token"`
}

func (t tokens) remove(_ context.Context, _ *fn.Call, a delTokenArgs) (bool, error) {
	return t.made.DropToken(a.Token)
}
