package master

import (
	"brine/internal/call/auth"
	"brine/internal/net/channel"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"context"
	"log/slog"
)

// logins gives out tokens and tells of them.
type logins struct {
	ctx      func() context.Context
	settings *settings
	tokens   *auth.Tokens
	recorder *recorder
	log      *slog.Logger
}

// make gives out a token for {eauth, username, password, [token_expire]}; the
// answer to wrong ones is "".
func (l *logins) make(c *channel.Call) {
	var in wire.Login
	wire.View(c.Load, &in)
	expire := 0.0
	switch x := in.TokenExpire.(type) {
	case int64:
		expire = float64(x)
	case float64:
		expire = x
	}
	t, err := l.settings.auth().NewToken(l.ctx(), credentials(c.Load), expire)
	if err != nil {
		l.recorder.record(c, nil, resultRefused, "")
		c.Reply("")
		return
	}
	l.recorder.record(c, nil, resultDone, "")
	// It tells what the user may do, which programs show; Salt's tell it by
	// reading the configuration themselves.
	if in.Perms {
		l.tellPerms(t)
	}
	c.Reply(t)
}

// tellPerms adds to a token what its user may do.
func (l *logins) tellPerms(t *value.Dict) {
	var in wire.Token
	wire.View(t, &in)
	if u, err := l.settings.auth().ByToken(in.Token); err == nil {
		t.Set("perms", &value.List{Items: l.settings.auth().Rights(u)})
	}
}

// get tells what a token is: who has it may know, and if asked what its user
// may do. A token that is not good is an empty map.
func (l *logins) get(c *channel.Call) {
	if !c.Load.Has("token") {
		c.Reply(false)
		return
	}
	var in wire.TokenRequest
	wire.View(c.Load, &in)
	if t := l.settings.auth().Token(in.Token); t != nil {
		if in.Perms {
			l.tellPerms(t)
		}
		c.Reply(t)
		return
	}
	c.Reply(value.NewDict(0))
}

// remove takes back a token, which its bearer can ask for.
func (l *logins) remove(c *channel.Call) {
	var in wire.TokenRequest
	wire.View(c.Load, &in)
	if err := l.tokens.Remove(in.Token); err != nil {
		l.log.Error("cannot remove a token", "err", err)
	}
	c.Reply(value.NewDict(0))
}
