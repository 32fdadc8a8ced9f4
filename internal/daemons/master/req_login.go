package master

import (
	"brine/internal/call/auth"
	"brine/internal/net/channel"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"context"
	"log/slog"
)

// logins issues tokens and answers queries about them.
type logins struct {
	ctx      func() context.Context
	settings *settings
	tokens   *auth.Tokens
	recorder *recorder
	log      *slog.Logger
}

// make issues a token for {eauth, username, password, [token_expire]}; wrong
// credentials are answered with "".
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
	// The answer includes the user's permissions, which programs show; stock
	// programs read them from the configuration.
	if in.Perms {
		l.tellPerms(t)
	}
	c.Reply(t)
}

// tellPerms adds the permissions of its user to a token.
func (l *logins) tellPerms(t *value.Dict) {
	var in wire.Token
	wire.View(t, &in)
	if u, err := l.settings.auth().ByToken(in.Token); err == nil {
		t.Set("perms", &value.List{Items: l.settings.auth().Rights(u)})
	}
}

// get returns a token to its bearer, with the permissions of its user on
// request. An invalid token is answered with an empty map.
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

// remove deletes a token at its bearer's request.
func (l *logins) remove(c *channel.Call) {
	var in wire.TokenRequest
	wire.View(c.Load, &in)
	if err := l.tokens.Remove(in.Token); err != nil {
		l.log.Error("cannot remove token", "err", err)
	}
	c.Reply(value.NewDict(0))
}
