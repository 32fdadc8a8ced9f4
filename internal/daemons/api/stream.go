package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"brine/internal/base/wait"
	"brine/internal/call/acl"
	"brine/internal/daemons/console"
	"brine/internal/py/value"
)

// message is an event in the form that is sent to clients, encoded once for all of them.
type message struct {
	tag  string
	json string // {"data": {...}, "tag": "..."}
	data *value.Dict

	once  sync.Once
	brief *console.Event
}

// short returns the event in the form for the console, or nil if it cannot be encoded.
func (m *message) short() *console.Event {
	m.once.Do(func() { m.brief, _ = console.NewEvent(m.tag, m.data) })
	return m.brief
}

// oneLine replaces line ends of server-sent events.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

// appendSSE appends the message as a server-sent event. It replaces line breaks in the tag,
// which minions and senders of hooks choose, because they could start another event. The
// JSON has the original tag.
func (m *message) appendSSE(text []byte) []byte {
	text = append(append(text, "tag: "...), oneLine.Replace(m.tag)...)
	text = append(append(text, "\ndata: "...), m.json...)
	return append(text, "\n\n"...)
}

// feed distributes the events of the bus to readers. It disconnects a reader that is too
// slow, so that it delays no other.
type feed struct {
	bus Bus
	log *slog.Logger

	mu      sync.Mutex
	readers map[*reader]bool
	wake    wait.Wakeup
}

// reader is one client of the feed.
type reader struct {
	c chan *message // closed when the reader is disconnected
	// waiting counts the bytes of the events in c.
	waiting atomic.Int64
}

// took must be called for each message received from c.
func (r *reader) took(m *message) { r.waiting.Add(-int64(len(m.json))) }

const (
	// readerQueue limits the number of events queued for a client. readerBytes limits their
	// bytes if there are several.
	readerQueue = 4096
	readerBytes = 16 << 20
	// feedPause is the time between attempts to connect to the bus.
	feedPause = time.Second
)

func newFeed(b Bus, log *slog.Logger) *feed {
	return &feed{bus: b, log: log, readers: map[*reader]bool{}, wake: wait.NewWakeup()}
}

func (f *feed) open() *reader {
	r := &reader{c: make(chan *message, readerQueue)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers[r] = true
	f.wake.Wake()
	return r
}

func (f *feed) close(r *reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, r)
}

func (f *feed) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.readers) == 0
}

// run reads the bus until ctx ends. It starts with the first reader.
func (f *feed) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake.C():
		}
		for !f.idle() && ctx.Err() == nil {
			if err := f.read(ctx); err != nil && ctx.Err() == nil {
				f.log.Warn("cannot read the master's event bus; retrying", "err", err)
				wait.Sleep(ctx, feedPause)
			}
		}
	}
}

func (f *feed) read(ctx context.Context) error {
	events, err := f.bus.Subscribe(ctx, "")
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return err
		}
		b, err := encode(value.DictOf("data", e.Data, "tag", e.Tag), typeJSON)
		if err != nil {
			f.log.Debug("cannot encode event as JSON", "tag", e.Tag, "err", err)
			continue
		}
		f.give(&message{tag: e.Tag, json: string(b), data: e.Data})
	}
}

func (f *feed) give(m *message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		if n := r.waiting.Add(int64(len(m.json))); n <= readerBytes || n == int64(len(m.json)) {
			select {
			case r.c <- m:
				continue
			default:
			}
		}
		close(r.c)
		delete(f.readers, r)
		for range r.c { // a client that does not read must not keep the events in memory
		}
	}
}

// view decides which events a user sees.
type view struct {
	all  bool
	user string
	// rights are the user's permissions.
	rights []any
	jobs   map[string]bool // the user's jobs, by jid
}

// maxViewed bounds the number of the user's jobs that a stream remembers.
const maxViewed = 100000

// sees reports whether the user may see an event. Without permission for all events, a user
// sees those of its own jobs, runners and wheel functions.
func (v *view) sees(m *message) bool {
	if v.all {
		return true
	}
	parts := strings.Split(m.tag, "/")
	if len(parts) < 3 || parts[0] != "salt" || parts[1] != "job" && parts[1] != "run" && parts[1] != "wheel" {
		return false
	}
	jid := parts[2]
	if len(parts) == 4 && parts[3] == "new" && m.data.Str("user") == v.user && len(v.jobs) < maxViewed {
		v.jobs[jid] = true
	}
	return v.jobs[jid]
}

// streams sends the event bus to clients.
type streams struct {
	s        *Settings
	master   Master
	sessions *sessions
	feed     *feed
}

// streamToken returns the token with which a client opens a stream.
func (e *streams) streamToken(c *call, id string) string {
	q := c.r.URL.Query()
	switch {
	case id != "":
	case q.Get("token") != "":
		id = q.Get("token")
	case q.Get("salt_token") != "":
		return q.Get("salt_token")
	default:
		if c.of != nil {
			return c.of.Token
		}
		return ""
	}
	if s := e.sessions.get(id); s != nil {
		return s.Token
	}
	return ""
}

// admit checks the token of a stream, and determines which events the stream has.
func (e *streams) admit(c *call, token string) (*view, error) {
	if !isHex(token) {
		return nil, &failure{http.StatusUnauthorized, textNoPermission}
	}
	t, err := e.master.Token(c.r.Context(), token)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, &failure{http.StatusUnauthorized, textNoPermission}
	}
	proven(c.r)
	return &view{all: e.seesAll(t), user: t.Str("name"), rights: t.List("perms"), jobs: map[string]bool{}}, nil
}

// seesAll reports whether the user of a token sees all events. In Salt every user with a
// token does, even without permissions. Events contain the returns of minions, so Brine
// requires the permission for the runner state.event.
func (e *streams) seesAll(token *value.Dict) bool {
	if own := e.s.OwnEvents; own != nil {
		return !*own
	}
	return acl.OnMaster(token.List("perms"), acl.Runner, acl.Call{Fun: "state.event"})
}

const (
	// checkTime is the interval of checking an open stream's token, and the longest time
	// without output.
	checkTime = 30 * time.Second
	// writeTime is the timeout of one write to a client.
	writeTime = 30 * time.Second
	// maxPiece is the approximate number of bytes of events per write.
	maxPiece = 16 << 10
)

// events sends the event bus as server-sent events.
func (e *streams) events(c *call) (any, error) {
	token := e.streamToken(c, "")
	v, err := e.admit(c, token)
	if err != nil {
		return nil, err
	}
	r := e.feed.open()
	defer e.feed.close(r)
	h := c.w.Header()
	c.setCookie()
	h.Set("Content-Type", "text/event-stream;charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // keeps nginx from buffering events
	c.count()
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil, nil
	}
	ctl := http.NewResponseController(c.w)
	send := func(text []byte) bool {
		_, err := c.w.Write(text)
		return err == nil && ctl.Flush() == nil
	}
	if !send([]byte("retry: 400\n")) {
		return nil, nil
	}
	var text []byte
	check := time.NewTicker(e.s.checkTime)
	defer check.Stop()
	for {
		select {
		case <-c.r.Context().Done():
			return nil, nil
		case <-check.C:
			if e.recheck(c.r.Context(), token, v) || !send([]byte(": still here\n\n")) {
				return nil, nil
			}
		case m, ok := <-r.c:
			if !ok {
				return nil, nil
			}
			// Write all waiting events at once: under load that saves most of the system
			// calls.
			text = text[:0]
			for more := true; more; {
				r.took(m)
				if v.sees(m) {
					text = m.appendSSE(text)
				}
				if more = len(text) < maxPiece; !more {
					break
				}
				select {
				case m, ok = <-r.c:
					more = ok
				default:
					more = false
				}
			}
			if len(text) > 0 && !send(text) || !ok {
				return nil, nil
			}
			if cap(text) > 4*maxPiece { // after a large event
				text = nil
			}
		}
	}
}

// recheck reports whether a token has become invalid, and applies changed permissions.
// While the master is unreachable, nothing changes.
func (e *streams) recheck(ctx context.Context, token string, v *view) (over bool) {
	t, err := e.master.Token(ctx, token)
	if err == nil && t != nil {
		v.all = e.seesAll(t)
	}
	return err == nil && t == nil
}

// ready is the message with which a client requests events.
const ready = "websocket client ready"

// untilReady reads until the client requests events. It reports false if the connection
// ends before.
func untilReady(ctx context.Context, conn *websocket.Conn) bool {
	for {
		_, text, err := conn.Read(ctx)
		if err != nil || string(text) == ready {
			return err == nil
		}
	}
}

// socket sends the event bus over a WebSocket.
func (e *streams) socket(c *call) (any, error) {
	token := e.streamToken(c, c.part())
	v, err := e.admit(c, token)
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return nil, &failure{http.StatusInternalServerError, "The server encountered an unexpected condition which prevented it from fulfilling the request."}
	}
	o := &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled}
	// A client with a token may come from any origin. A browser sends the cookie with every
	// page, but identify ignores it if the page is not trusted.
	o.OriginPatterns = []string{"*"}
	c.setCookie()
	c.status = http.StatusSwitchingProtocols
	conn, err := websocket.Accept(c.w, c.r, o)
	if err != nil {
		return nil, nil // Accept has sent the response
	}
	c.count()
	defer conn.CloseNow()
	conn.SetReadLimit(4 << 10)
	ctx := c.r.Context()
	ping := func() bool {
		limited, cancel := context.WithTimeout(ctx, e.s.writeTime)
		defer cancel()
		return conn.Ping(limited) == nil
	}
	check := time.NewTicker(e.s.checkTime)
	defer check.Stop()
	begun := make(chan bool, 1)
	go func() { begun <- untilReady(ctx, conn) }() // ends at the latest with the connection
	for waiting := true; waiting; {
		select {
		case ok := <-begun:
			if !ok {
				return nil, nil
			}
			waiting = false
		case <-check.C:
			if e.recheck(c.r.Context(), token, v) || !ping() {
				return nil, nil
			}
		}
	}
	r := e.feed.open()
	defer e.feed.close(r)
	if e.recheck(c.r.Context(), token, v) { // the client may have waited long before it requested events
		return nil, nil
	}
	ctx = conn.CloseRead(ctx)
	var state *formatted
	if c.r.URL.Query().Has("format_events") {
		state = newFormatted()
	}
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-check.C:
			if e.recheck(c.r.Context(), token, v) || !ping() {
				return nil, nil
			}
		case m, ok := <-r.c:
			if !ok {
				conn.Close(websocket.StatusPolicyViolation, "events came faster than they were read")
				return nil, nil
			}
			r.took(m)
			if !v.sees(m) {
				continue
			}
			texts := []string{m.json}
			if state != nil {
				texts = state.take(m)
			}
			for _, text := range texts {
				limited, cancel := context.WithTimeout(ctx, e.s.writeTime)
				err := conn.Write(limited, websocket.MessageText, []byte("data: "+text+"\n\n"))
				cancel()
				if err != nil {
					return nil, nil
				}
			}
		}
	}
}
