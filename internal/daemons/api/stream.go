package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"brine/internal/base/target"
	"brine/internal/base/wait"
	"brine/internal/call/acl"
	"brine/internal/daemons/console"
	"brine/internal/py/value"
)

// message is an event in the form that is sent to clients, encoded once for all of them.
type message struct {
	// epoch and seq are the id: the run of the feed, and the number in it from 1.
	epoch string
	seq   uint64
	tag   string
	json  string // {"data": {...}, "tag": "..."}
	data  *value.Dict

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
	// epoch identifies a run of numbers without a gap. It changes when the connection to the bus was
	// lost, because events may be missing then.
	epoch string
	seq   uint64 // number of the last event
	// recent are the last events, for clients that reconnect.
	recent      []*message
	recentBytes int
}

// maxRecent and maxRecentBytes bound the events for clients that reconnect: their number and the size
// of their JSON.
const (
	maxRecent      = 4096
	maxRecentBytes = 2 << 20
)

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
	return &feed{bus: b, log: log, readers: map[*reader]bool{}, wake: wait.NewWakeup(), epoch: newEpoch()}
}

func newEpoch() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (f *feed) open() *reader {
	r, _, _, _ := f.resume("")
	return r
}

// resume opens a reader after the event with the id last. missed are the events since then that the
// feed still has. whole reports whether these are all; it is true for last "". epoch is the current
// run of the feed.
func (f *feed) resume(last string) (r *reader, missed []*message, epoch string, whole bool) {
	r = &reader{c: make(chan *message, readerQueue)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers[r] = true
	f.wake.Wake()
	if last == "" {
		return r, nil, f.epoch, true
	}
	of, number, _ := strings.Cut(last, "-")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || of != f.epoch || seq > f.seq {
		return r, slices.Clone(f.recent), f.epoch, false
	}
	whole = seq+uint64(len(f.recent)) >= f.seq
	from, _ := slices.BinarySearchFunc(f.recent, seq+1, func(m *message, n uint64) int { return cmp.Compare(m.seq, n) })
	return r, slices.Clone(f.recent[from:]), f.epoch, whole
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
			err := f.read(ctx)
			f.mu.Lock()
			f.epoch, f.seq, f.recent, f.recentBytes = newEpoch(), 0, nil, 0
			f.mu.Unlock()
			if err != nil && ctx.Err() == nil {
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
	f.seq++
	m.epoch, m.seq = f.epoch, f.seq
	f.recent = append(f.recent, m)
	f.recentBytes += len(m.json)
	drop := 0
	for len(f.recent)-drop > maxRecent || f.recentBytes > maxRecentBytes && drop < len(f.recent)-1 {
		f.recentBytes -= len(f.recent[drop].json)
		f.recent[drop] = nil
		drop++
	}
	f.recent = f.recent[drop:]
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

// events sends the event bus as server-sent events, in Salt's form.
func (e *streams) events(c *call) (any, error) {
	token := e.streamToken(c, "")
	v, err := e.admit(c, token)
	if err != nil {
		return nil, err
	}
	r := e.feed.open()
	defer e.feed.close(r)
	e.pump(c, &pumped{token: token, view: v, reader: r, start: "retry: 400\n", form: (*message).appendSSE})
	return nil, nil
}

// resumable sends the event bus as server-sent events with ids. A client that sends the id of its
// last event as Last-Event-ID gets those since; the event "gap" reports that some are missing. The
// parameter tag, which may be repeated, is a glob for the tags.
func (e *streams) resumable(c *call) (any, error) {
	q := c.r.URL.Query()
	var tags []target.Glob
	for name, values := range q {
		switch name {
		case "tag":
			for _, text := range values[:min(len(values), maxTagGlobs)] {
				tags = append(tags, target.ParseGlob(text))
			}
		case "last_event_id":
		default:
			return nil, &failure{http.StatusBadRequest, fmt.Sprintf("unknown parameter %.40q: this path has tag and last_event_id", name)}
		}
	}
	v, err := e.admit(c, c.of.Token)
	if err != nil {
		return nil, err
	}
	r, missed, epoch, whole := e.feed.resume(cmp.Or(c.r.Header.Get("Last-Event-Id"), q.Get("last_event_id")))
	defer e.feed.close(r)
	start := "retry: 400\n\n"
	if !whole {
		start += gap
	}
	e.pump(c, &pumped{token: c.of.Token, view: v, reader: r, missed: missed, start: start,
		form: func(m *message, text []byte) []byte {
			if m.epoch != epoch {
				epoch = m.epoch
				text = append(text, gap...)
			}
			if len(tags) > 0 && !slices.ContainsFunc(tags, func(g target.Glob) bool { return g.Match(m.tag) }) {
				return text
			}
			text = append(append(append(text, "id: "...), m.epoch...), '-')
			text = append(strconv.AppendUint(text, m.seq, 10), "\ndata: "...)
			return append(append(text, m.json...), "\n\n"...)
		}})
	return nil, nil
}

const (
	// maxTagGlobs bounds the tags of a stream.
	maxTagGlobs = 32
	// gap reports that events are missing.
	gap = "event: gap\ndata: {\"reason\": \"events are missing here: read again what they changed\"}\n\n"
)

// pumped is a stream of server-sent events.
type pumped struct {
	token  string
	view   *view
	reader *reader
	// missed are sent before the events of reader.
	missed []*message
	// start is sent first.
	start string
	// form appends an event to text.
	form func(m *message, text []byte) []byte
}

// pump sends events until the client disconnects, falls behind or loses its token.
func (e *streams) pump(c *call, p *pumped) {
	h := c.w.Header()
	c.setCookie()
	h.Set("Content-Type", "text/event-stream;charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // keeps nginx from buffering events
	c.count()
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return
	}
	ctl := http.NewResponseController(c.w)
	send := func(text []byte) bool {
		_, err := c.w.Write(text)
		return err == nil && ctl.Flush() == nil
	}
	if !send([]byte(p.start)) {
		return
	}
	var text []byte
	for _, m := range p.missed {
		if p.view.sees(m) {
			text = p.form(m, text)
		}
		if len(text) > maxPiece {
			if !send(text) {
				return
			}
			text = text[:0]
		}
	}
	if len(text) > 0 && !send(text) {
		return
	}
	p.missed = nil // frees the events
	check := time.NewTicker(e.s.checkTime)
	defer check.Stop()
	for {
		select {
		case <-c.r.Context().Done():
			return
		case <-check.C:
			if e.recheck(c.r.Context(), p.token, p.view) || !send([]byte(": still here\n\n")) {
				return
			}
		case m, ok := <-p.reader.c:
			if !ok {
				return
			}
			// Write all waiting events at once: under load that saves most of the system
			// calls.
			text = text[:0]
			for more := true; more; {
				p.reader.took(m)
				if p.view.sees(m) {
					text = p.form(m, text)
				}
				if more = len(text) < maxPiece; !more {
					break
				}
				select {
				case m, ok = <-p.reader.c:
					more = ok
				default:
					more = false
				}
			}
			if len(text) > 0 && !send(text) || !ok {
				return
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
