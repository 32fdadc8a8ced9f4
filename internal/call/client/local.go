package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"brine/internal/base/salt"
	"brine/internal/net/event"
	"brine/internal/net/transport"
	"brine/internal/net/transport/named"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Place locates a master on this machine, by options of its configuration.
type Place struct {
	Interface string // interface
	RetPort   uint16 // ret_port
	Transport string // transport; "" means zeromq
	TLS       *tls.Config
	Sockets   event.Sockets
	CacheDir  string // cachedir, with the users' key files
	User      string // user: the user the master runs as, "" for root
}

// Local is the Master and the Bus of a master on this machine.
type Local struct {
	place Place
	user  string // name sent to the master
	log   *slog.Logger
	req   transport.Requester
	// logins sends requests with a password: the master delays its answer to a wrong one, which
	// must not block other requests.
	logins transport.Requester

	mu  sync.Mutex
	key string
	hub *hub // nil before the first subscription
}

var (
	_ Master = (*Local)(nil)
	_ Bus    = (*Local)(nil)
)

// NewLocal returns the connection to the master at a place, for the user named caller (see Caller).
// It does not connect yet; Close must be called.
func NewLocal(p Place, caller string, log *slog.Logger) (*Local, error) {
	t, err := named.New(p.Transport, log)
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort(reachable(p.Interface), strconv.Itoa(int(p.RetPort)))
	return &Local{
		place: p, user: caller, log: log, req: t.NewRequester(addr, transport.DialOptions{TLS: p.TLS}),
		logins: t.NewRequester(addr, transport.DialOptions{TLS: p.TLS, Requests: maxLogins}),
	}, nil
}

// maxLogins bounds concurrent requests with a password.
const maxLogins = 512

// showsPassword reports whether a request contains a password.
func showsPassword(load *value.Dict) bool {
	return load.Has("eauth") || load.Dict("kwargs").Has("eauth")
}

// reachable returns the address to dial for a listening address.
func reachable(host string) string {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case host == "":
		return "127.0.0.1"
	case err != nil || !a.IsUnspecified():
		return strings.Trim(host, "[]")
	case a.Is4():
		return "127.0.0.1"
	}
	return "::1"
}

// Caller returns the name by which the master knows the user of this process: the account name, or
// sudo_NAME for root via sudo.
func Caller(getenv func(string) string) string {
	name := "root"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	} else if n := getenv("USER"); n != "" {
		name = n
	}
	if name == "root" {
		if s := getenv("SUDO_USER"); s != "" {
			return "sudo_" + s
		}
	}
	return name
}

// KeyFile returns the file with the key of a caller, written by the master.
func (p Place) KeyFile(caller string) string {
	master := p.User
	if master == "" {
		master = "root"
	}
	if caller == "root" || strings.HasPrefix(caller, "sudo_") {
		caller = master
	}
	return filepath.Join(p.CacheDir, "."+strings.NewReplacer("/", "_", "\\", "_").Replace(caller)+"_key")
}

// maxKey bounds a key file in bytes.
const maxKey = 4096

// keyError means that the caller's key file exists but cannot be read.
type keyError struct{ cause error }

func (e keyError) Error() string {
	return fmt.Sprintf("cannot read the key file for authentication at the master: %v; is cachedir on an unmounted share?", e.cause)
}

func (e keyError) Unwrap() error { return e.cause }

// readKey returns the caller's key. If the file is missing or the caller may not read it, the
// request has an empty key, which the master refuses. Other read errors are returned.
func (l *Local) readKey() (string, error) {
	path := l.place.KeyFile(l.user)
	b, err := os.ReadFile(path)
	if err == nil && len(b) <= maxKey {
		return string(b), nil
	}
	l.log.Debug("cannot read the key file for authentication at the master", "path", path, "err", err)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	return "", &salt.Error{Kind: salt.Unavailable, Err: keyError{err}}
}

func (l *Local) currentKey(renew bool) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.key == "" || renew {
		l.key, err = l.readKey()
	}
	return l.key, err
}

// Request implements Master. It repeats a request with an empty reply if the key has changed in the
// meantime, as after a restart of the master.
func (l *Local) Request(ctx context.Context, load *value.Dict) (any, error) {
	key, err := l.currentKey(false)
	if err != nil && load.Has("key") {
		return nil, err
	}
	reply, err := l.send(ctx, load, key)
	if err != nil || value.Truth(reply) {
		return reply, err
	}
	again, err := l.currentKey(true)
	if err != nil && load.Has("key") {
		return nil, err
	}
	if again != key {
		return l.send(ctx, load, again)
	}
	return reply, nil
}

func (l *Local) send(ctx context.Context, load *value.Dict, key string) (any, error) {
	if load.Has("key") {
		load = load.Clone()
		load.Set("key", key)
		load.Set("user", l.user)
	}
	body, err := msgpack.Marshal(value.DictOf("enc", "clear", "load", load, "version", 3), msgpack.Wire)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the request: %w", err)
	}
	req := l.req
	if showsPassword(load) {
		req = l.logins
	}
	raw, err := req.Request(ctx, body)
	if err != nil {
		return nil, err
	}
	reply, err := msgpack.Unmarshal(raw)
	if err != nil {
		return nil, fmt.Errorf("cannot read the master's answer: %w", err)
	}
	return reply, nil
}

// Subscribe implements Bus. All subscriptions share one connection, which stays open: a master may
// fire the first events of a job before it has accepted a new connection. A subscription must be
// read or closed, or the others block.
func (l *Local) Subscribe(ctx context.Context, prefixes ...string) (Events, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hub == nil || l.hub.ended() {
		alive, stop := context.WithCancel(context.Background())
		r, err := event.Dial(alive, l.place.Sockets)
		if err != nil {
			stop()
			if errors.Is(err, fs.ErrPermission) {
				return nil, l.noAccess(err)
			}
			l.log.Error("Unable to connect to the salt master publisher at " + filepath.Dir(l.place.Sockets.Pub))
			return nil, err
		}
		if ownOnly(prefixes) {
			r.OwnOnly(true) // reduces work only
		}
		if err := event.Settle(ctx, l.place.Sockets); err != nil {
			l.log.Debug("the master is slow to accept event subscribers", "err", err)
		}
		l.hub = newHub(r, stop)
	} else if !ownOnly(prefixes) {
		l.hub.reader.OwnOnly(false)
	}
	return l.hub.subscribe(prefixes), nil
}

// noAccess explains why a socket cannot be opened.
func (l *Local) noAccess(err error) error {
	e := &NoAccess{User: l.user, Path: l.place.Sockets.Pub, Err: err}
	if st, err := os.Stat(e.Path); err == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			e.Group = strconv.Itoa(int(sys.Gid))
			if g, err := user.LookupGroupId(e.Group); err == nil {
				e.Group = g.Name
			}
		}
	}
	return e
}

// ownOnly reports whether the subscribed events are only those of jobs, runners and wheel
// functions, which the client started on this master.
func ownOnly(prefixes []string) bool {
	return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p string) bool {
		return !strings.HasPrefix(p, "salt/job/") && !strings.HasPrefix(p, "salt/run/") && !strings.HasPrefix(p, "salt/wheel/")
	})
}

// Fire puts an event on the master's bus.
func (l *Local) Fire(ctx context.Context, tag string, data *value.Dict) error {
	return event.Push(ctx, l.place.Sockets, tag, data)
}

// Close closes the connections. No subscription may be in use.
func (l *Local) Close() error {
	l.mu.Lock()
	h := l.hub
	l.hub = nil
	l.mu.Unlock()
	if h != nil {
		h.close()
	}
	return errors.Join(l.req.Close(), l.logins.Close())
}
