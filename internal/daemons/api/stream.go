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
	"brine/internal/py/value"
)

// message is an event as it is sent to clients, made once for all of them.
type message struct {
	tag  string
	json string // {"data": {...}, "tag": "..."}
	data *value.Dict
}

// oneLine replaces what ends a line of server-sent events.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

// appendSSE adds the message to text as a server-sent event. Line breaks in the tag, which minions and senders of hooks choose, are
// replaced: they could begin another event. The JSON has the tag as it is.
func (m *message) appendSSE(text []byte) []byte {
	text = append(append(text, "tag: "...), oneLine.Replace(m.tag)...)
	text = append(append(text, "\ndata: "...), m.json...)
	return append(text, "\n\n"...)
}

// feed gives the events of the bus to any number of readers. One that does not
// keep up is disconnected, so that it delays no other.
type feed struct {
	bus Bus
	log *slog.Logger

	mu      sync.Mutex
	readers map[*reader]bool
	wake    wait.Wakeup
}

// reader is one client of the feed.
type reader struct {
	c chan *message // closed when the reader is cut off
	// waiting counts the bytes of the events in c.
	waiting atomic.Int64
}

// took must be called for each message from c.
func (r *reader) took(m *message) { r.waiting.Add(-int64(len(m.json))) }

const (
	// readerQueue is how many events wait for a client, readerBytes how many
	// bytes of them if they are several.
	readerQueue = 4096
	readerBytes = 16 << 20
	// feedPause is the time between attempts to reach the bus.
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
				f.log.Warn("the event bus of the master cannot be read; trying again", "err", err)
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
			f.log.Debug("an event cannot be written as JSON", "tag", e.Tag, "err", err)
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
		for range r.c { // a client that does not read must not hold the events
		}
	}
}

// view decides which events a user sees.
type view struct {
	all  bool
	user string
	jobs map[string]bool // of the user, by jid
}

// maxViewed bounds the jobs that a stream remembers as its user's.
const maxViewed = 100000

// sees reports whether an event is for this user: who does not see all sees
// what his own jobs, runners and wheel functions fire.
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

// streamToken finds the token that a stream is opened with.
func (c *call) streamToken(id string) string {
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
	if s := c.sessions.get(id); s != nil {
		return s.Token
	}
	return ""
}

// admit finds out what a stream may show.
func (c *call) admit(token string) (*view, error) {
	if !isHex(token) {
		return nil, &failure{http.StatusUnauthorized, textNoPermission}
	}
	t, err := c.master.Token(c.r.Context(), token)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, &failure{http.StatusUnauthorized, textNoPermission}
	}
	proven(c.r)
	return &view{all: c.seesAll(t), user: t.Str("name"), jobs: map[string]bool{}}, nil
}

// seesAll reports whether the user of a token is shown the events of all. Salt
// shows them to everybody who has a token, also to one without any rights. As
// events hold what minions return, that is for those who may read the bus by
// other means here: by the runner state.event.
func (c *call) seesAll(token *value.Dict) bool {
	if own := c.s.OwnEvents; own != nil {
		return !*own
	}
	return acl.OnMaster(token.List("perms"), acl.Runner, acl.Call{Fun: "state.event"})
}

const (
	// checkTime is how often an open stream's token is looked at again, and
	// at least how often something is sent.
	checkTime = 30 * time.Second
	// writeTime bounds one write to a client.
	writeTime = 30 * time.Second
	// maxPiece is about how many bytes of events are written at once.
	maxPiece = 16 << 10
)

// events sends the event bus as server-sent events.
func (c *call) events() (any, error) {
	token := c.streamToken("")
	v, err := c.admit(token)
	if err != nil {
		return nil, err
	}
	r := c.feed.open()
	defer c.feed.close(r)
	h := c.w.Header()
	c.setCookie()
	h.Set("Content-Type", "text/event-stream;charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back in a buffer
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
	check := time.NewTicker(c.s.checkTime)
	defer check.Stop()
	for {
		select {
		case <-c.r.Context().Done():
			return nil, nil
		case <-check.C:
			if c.recheck(token, v) || !send([]byte(": still here\n\n")) {
				return nil, nil
			}
		case m, ok := <-r.c:
			if !ok {
				return nil, nil
			}
			// What waits goes out in one piece: under load that saves most of
			// the system calls.
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

// recheck reports whether a token is good no more, and takes over new rights.
// While the master cannot be asked, nothing changes.
func (c *call) recheck(token string, v *view) (over bool) {
	t, err := c.master.Token(c.r.Context(), token)
	if err == nil && t != nil {
		v.all = c.seesAll(t)
	}
	return err == nil && t == nil
}

// ready is what a client sends when it wants events.
const ready = "websocket client ready"

// untilReady reads until the client wants events, and reports whether it does.
func untilReady(ctx context.Context, conn *websocket.Conn) bool {
	for {
		_, text, err := conn.Read(ctx)
		if err != nil || string(text) == ready {
			return err == nil
		}
	}
}

// socket sends the event bus over a WebSocket.
func (c *call) socket() (any, error) {
	token := c.streamToken(c.part())
	v, err := c.admit(token)
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return nil, &failure{http.StatusInternalServerError, "The server encountered an unexpected condition which prevented it from fulfilling the request."}
	}
	o := &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled}
	// Who knows a token may come from anywhere; a cookie comes with every page,
	// and was not looked at if the page is not trusted.
	o.OriginPatterns = []string{"*"}
	c.setCookie()
	c.status = http.StatusSwitchingProtocols
	conn, err := websocket.Accept(c.w, c.r, o)
	if err != nil {
		return nil, nil // it has been answered
	}
	c.count()
	defer conn.CloseNow()
	conn.SetReadLimit(4 << 10)
	ctx := c.r.Context()
	ping := func() bool {
		limited, cancel := context.WithTimeout(ctx, c.s.writeTime)
		defer cancel()
		return conn.Ping(limited) == nil
	}
	check := time.NewTicker(c.s.checkTime)
	defer check.Stop()
	begun := make(chan bool, 1)
	go func() { begun <- untilReady(ctx, conn) }() // ends with the connection at the latest
	for waiting := true; waiting; {
		select {
		case ok := <-begun:
			if !ok {
				return nil, nil
			}
			waiting = false
		case <-check.C:
			if c.recheck(token, v) || !ping() {
				return nil, nil
			}
		}
	}
	r := c.feed.open()
	defer c.feed.close(r)
	if c.recheck(token, v) { // the client may have waited for long
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
			if c.recheck(token, v) || !ping() {
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
				limited, cancel := context.WithTimeout(ctx, c.s.writeTime)
				err := conn.Write(limited, websocket.MessageText, []byte("data: "+text+"\n\n"))
				cancel()
				if err != nil {
					return nil, nil
				}
			}
		}
	}
}
