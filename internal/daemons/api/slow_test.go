package api

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"brine/internal/py/value"
	"brine/test/eventually"
)

// dial opens a connection for requests written by hand.
func (r *running) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// rested waits until no request is in progress.
func (r *running) rested(what string) {
	r.t.Helper()
	eventually.Nil(r.t, time.Minute, what, func() error {
		if n := r.stats.active.Load(); n != 0 {
			return fmt.Errorf("%d requests are at work", n)
		}
		return nil
	})
}

// TestBodiesThatDoNotCome: a body that does not arrive occupies a connection for a bounded
// time, whether a handler reads it or not.
func TestBodiesThatDoNotCome(t *testing.T) {
	s := settings(t, "webhook_disable_auth: true")
	s.bodyTime = 100 * time.Millisecond
	r := serve(t, s)
	var wg sync.WaitGroup
	for _, line := range []string{"POST /nosuch", "POST /", "POST /logout", "POST /login", "POST /hook/a", "GET /health", "GET /events", "PUT /login",
		"OPTIONS /login"} {
		c := r.dial()
		wg.Go(func() {
			if _, err := io.WriteString(c, line+" HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
				t.Error(line, err)
			}
			c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection is still open", line)
			}
		})
	}
	wg.Wait()
}

// TestAnswersThatAreNotRead: a response that a client does not read occupies a connection
// for a bounded time.
func TestAnswersThatAreNotRead(t *testing.T) {
	const size = 256 << 20 // more than socket buffers can store
	icon := filepath.Join(t.TempDir(), "favicon.ico")
	if err := os.WriteFile(icon, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(icon, size); err != nil {
		t.Fatal(err)
	}
	s := settings(t, "favicon: "+icon)
	s.writeTime = 100 * time.Millisecond
	r := serve(t, s)
	large := strings.Repeat("x", size/8)
	r.master.low = func(*value.Dict) ([]any, error) { return []any{large}, nil }
	token := strings.Repeat("00", 32)
	body := `{"client":"local","tgt":"a","fun":"test.ping","token":"` + token + `"}`
	for _, request := range []string{
		"GET /favicon.ico HTTP/1.1\r\nHost: a\r\n\r\n",
		fmt.Sprintf("POST /run HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
	} {
		c := r.dial()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(c, make([]byte, 1)) // the response has started or was aborted
		r.rested(request)
	}
}

// deadlines is a response writer that records the read deadline of its
// connection.
type deadlines struct {
	*httptest.ResponseRecorder
	read time.Time
}

// SetReadDeadline is called by http.ResponseController.
func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = at
	return nil
}

// TestBodyTimeEndsWithTheBody: the read timeout ends with the body. Functions may take
// longer, and a deadline that expires meanwhile would cancel them.
func TestBodyTimeEndsWithTheBody(t *testing.T) {
	r := serve(t, settings(t, ""))
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	ran := false
	r.master.low = func(*value.Dict) ([]any, error) {
		if ran = true; !w.read.IsZero() {
			t.Errorf("a chunk runs until %v", w.read)
		}
		return []any{"done"}, nil
	}
	req := httptest.NewRequest("POST", "/run", strings.NewReader(`{"client":"local","tgt":"a","fun":"test.ping","token":"00"}`))
	req.Header.Set("Content-Type", typeJSON)
	if r.ServeHTTP(w, req); !ran {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, method := range []string{"GET", "POST"} {
		if r.ServeHTTP(w, httptest.NewRequest(method, "/nosuch", strings.NewReader("x"))); w.read.IsZero() {
			t.Errorf("%s: a body that is not read has any time", method)
		}
		w.read = time.Time{}
		if r.ServeHTTP(w, httptest.NewRequest(method, "/nosuch", http.NoBody)); !w.read.IsZero() {
			t.Errorf("%s: a request without a body has a deadline", method)
		}
	}
}

// TestSocketsThatAreOver: a WebSocket is closed when its token is deleted, even before its
// client requests events, and when the client does not answer pings.
func TestSocketsThatAreOver(t *testing.T) {
	s := settings(t, "")
	s.checkTime = 20 * time.Millisecond
	for _, c := range []struct {
		what         string
		ready, reads bool
		write        time.Duration
	}{
		{"logged out before it wanted events", false, true, time.Minute},
		{"logged out", true, true, time.Minute},
		{"does not answer", true, false, 100 * time.Millisecond},
		{"does not answer, and wants nothing", false, false, 100 * time.Millisecond},
	} {
		s.writeTime = c.write
		r := serve(t, s)
		id := r.login()
		conn, _, err := websocket.Dial(t.Context(), strings.Replace(r.url, "http", "ws", 1)+"/ws/"+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.CloseNow() })
		if c.ready {
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(ready)); err != nil {
				t.Fatal(err)
			}
		}
		if c.reads {
			conn.CloseRead(t.Context()) // answers pings
			if resp, b := r.do("POST", "/logout", "", "X-Auth-Token", id); resp.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", resp.StatusCode, b)
			}
		}
		r.rested(c.what)
	}
}
