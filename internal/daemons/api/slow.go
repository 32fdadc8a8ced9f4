package api

import (
	"net/http"
	"time"
)

// pieceSize is the part of a response that the client must read within writeTime.
const pieceSize = 32 << 10

// bounded writes to a client that may be slow. Each piece of a response has its own
// timeout, so that large responses may take as long as they need, while a client that does
// not read occupies its connection only for the time of one piece.
type bounded struct {
	http.ResponseWriter
	conn *http.ResponseController
	time time.Duration
}

// bound sets a timeout for the request body, and one for each piece of the response.
func bound(w http.ResponseWriter, r *http.Request, s *Settings) *bounded {
	b := &bounded{w, http.NewResponseController(w), s.writeTime}
	b.more()
	// Without a body the server is already reading, to detect that the client disconnects.
	if r.ContentLength != 0 {
		b.conn.SetReadDeadline(time.Now().Add(s.bodyTime))
	}
	return b
}

// more restarts the timeout for the next piece.
func (b *bounded) more() { b.conn.SetWriteDeadline(time.Now().Add(b.time)) }

// Write implements http.ResponseWriter.
func (b *bounded) Write(p []byte) (n int, err error) {
	for err == nil && len(p) > 0 {
		var written int
		b.more()
		written, err = b.ResponseWriter.Write(p[:min(len(p), pieceSize)])
		n, p = n+written, p[written:]
	}
	return n, err
}

// Unwrap supports http.ResponseController.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }
