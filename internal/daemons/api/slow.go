package api

import (
	"net/http"
	"time"
)

// pieceSize is how much of an answer must be taken within writeTime.
const pieceSize = 32 << 10

// bounded is the way to a client that may be slow: each piece of an answer has a time of its own, so that large answers may take as long
// as they need, and a client that does not read holds its connection for one piece.
type bounded struct {
	http.ResponseWriter
	conn *http.ResponseController
	time time.Duration
}

// bound gives a body of the request, and then each piece of the answer, a time.
func bound(w http.ResponseWriter, r *http.Request, s *Settings) *bounded {
	b := &bounded{w, http.NewResponseController(w), s.writeTime}
	b.more()
	// Without a body the server reads already, to find out whether the client has gone.
	if r.ContentLength != 0 {
		b.conn.SetReadDeadline(time.Now().Add(s.bodyTime))
	}
	return b
}

// more begins the time of a piece.
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

// Unwrap is for http.ResponseController.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }
