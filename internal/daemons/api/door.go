package api

import (
	"context"
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"
	"time"

	"brine/internal/call/client"
	"brine/internal/py/value"
)

// Trusted is a Master that also knows the user of this process. *client.Client implements it.
type Trusted interface {
	Master
	// LowTrusted runs a chunk of low data as the user of this process.
	LowTrusted(ctx context.Context, chunk *value.Dict) ([]any, error)
	// LookTrusted calls a function of the runner fleet as the user of this process.
	LookTrusted(ctx context.Context, fun string, kwargs *value.Dict) (any, error)
}

var _ Trusted = (*client.Client)(nil)

// Door lets browsers in as the user of this process, who may do everything on the master. A browser
// proves that it is that user's by a link with a secret, which works once.
type Door struct {
	// User is the user's name, for the pages.
	User string
	// Opened, if set, is called after a browser was let in, with the address of its client. By then
	// Link returns the next one.
	Opened func(from string)

	token string // of the sessions; it does not leave this process

	mu     sync.Mutex
	secret string
}

// NewDoor returns a Door for a user.
func NewDoor(user string) *Door { return &Door{User: user, token: newID(), secret: newID()} }

// doorTime is how long a session of a Door lasts at most.
const doorTime = 12 * time.Hour

// Link returns the path of the next link, below the address of the server.
func (d *Door) Link() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "/console/enter?link=" + d.secret
}

// take reports whether a secret is that of the link, and makes a new one if it is.
func (d *Door) take(secret string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(secret), []byte(d.secret)) != 1 {
		return false
	}
	d.secret = newID()
	return true
}

// Master returns m, where the sessions of the Door have the rights of the process' user. Other
// tokens keep theirs.
func (d *Door) Master(m Trusted) Master { return &behindDoor{m, d} }

type behindDoor struct {
	Trusted
	door *Door
}

func (b *behindDoor) own(token any) bool { return token == b.door.token }

// allRights are the permissions of the process' user. The master checks them by its key.
func allRights() []any { return []any{".*", "@jobs", "@runner", "@wheel"} }

// Token implements Master.
func (b *behindDoor) Token(ctx context.Context, token string) (*value.Dict, error) {
	if !b.own(token) {
		return b.Trusted.Token(ctx, token)
	}
	now := float64(time.Now().UnixNano()) / 1e9
	return value.DictOf("token", token, "name", b.door.User, "eauth", "key", "start", now, "expire", now+doorTime.Seconds(),
		"perms", value.ListOf(allRights()...)), nil
}

// Low implements Master.
func (b *behindDoor) Low(ctx context.Context, chunk *value.Dict) ([]any, error) {
	if !b.own(chunk.At("token")) {
		return b.Trusted.Low(ctx, chunk)
	}
	chunk = chunk.Clone()
	chunk.Delete("token")
	return b.LowTrusted(ctx, chunk)
}

// Look implements Master.
func (b *behindDoor) Look(ctx context.Context, token, fun string, kwargs *value.Dict) (any, error) {
	if !b.own(token) {
		return b.Trusted.Look(ctx, token, fun, kwargs)
	}
	return b.LookTrusted(ctx, fun, kwargs)
}

// DropToken implements Master. The master does not know the Door's token.
func (b *behindDoor) DropToken(ctx context.Context, token string) error {
	if b.own(token) {
		return nil
	}
	return b.Trusted.DropToken(ctx, token)
}

// enter starts the session of a browser that has the link, and sends it to the start page.
func (o *consoles) enter(c *call) error {
	d := o.s.Door
	if d == nil {
		return &failure{http.StatusNotFound, notFound(c.r)}
	}
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("Referrer-Policy", "no-referrer") // the link is in the address
	if c.r.Method != http.MethodGet || !d.take(c.r.URL.Query().Get("link")) {
		o.log.Warn("audit", "from", c.address(), "login", "refused", "reason", "the link is not valid, or was used before")
		return &failure{http.StatusForbidden, "This link is not valid, or was used before: use the one that brine console has printed last"}
	}
	now := time.Now()
	of := &session{Token: d.token, User: d.User, From: c.address(), Forgery: newID(), Start: float64(now.Unix()), Expire: float64(now.Add(doorTime).Unix())}
	id, err := o.sessions.add(of)
	if err != nil {
		return err
	}
	c.id, c.of, c.cookie = id, of, true
	o.log.Info("audit", "user", d.User, "from", of.From, "login", "done")
	if d.Opened != nil {
		d.Opened(of.From)
	}
	c.w.Header().Set("Location", c.s.Prefix+"/console/")
	c.status = http.StatusSeeOther
	c.write(nil, typeHTML)
	return nil
}

// ForDoor are settings that serve only the console, on an address of this machine without TLS.
// port 0 chooses a free one; dir is a directory for the sessions.
func ForDoor(d *Door, port int, dir string, timeout time.Duration) (*Settings, error) {
	o := Options{Timeout: timeout, Enable: value.Strings(slices.DeleteFunc(slices.Clone(client.LowClients), func(n string) bool { return n == "ssh" })),
		REST: value.DictOf("host", "127.0.0.1", "port", int64(port), "disable_ssl", true)}
	s, err := o.Read(dir)
	if err != nil {
		return nil, err
	}
	s.Door = d
	return s, nil
}
