package fileclient

import (
	"bytes"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"

	"brine/test/fuzztest"
)

// TestEndlessAnswersOfFTP checks that a server that replies without end, in one line
// or in many, ends the fetch with an error after some kilobytes.
func TestEndlessAnswersOfFTP(t *testing.T) {
	for name, text := range map[string]string{"one line": strings.Repeat("x", 1<<10), "many lines": "220-hello\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			sent := make(chan int, 1)
			go func() {
				n := 0
				defer func() { sent <- n }()
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				for n < 64<<20 {
					m, err := io.WriteString(conn, text)
					if n += m; err != nil {
						return
					}
				}
			}()
			u := &url.URL{Scheme: "ftp", Host: l.Addr().String(), Path: "/file"}
			if err := (webServers{}).ftp(t.Context(), u, io.Discard); err == nil {
				t.Error("an endless answer is no error")
			}
			select {
			case n := <-sent:
				if n > 32<<20 { // much more than the kernel's buffers hold
					t.Errorf("%d bytes of an answer were read", n)
				}
			case <-time.After(time.Minute):
				t.Error("the server is still sending")
			}
		})
	}
}

// FuzzFTP parses replies of a server.
func FuzzFTP(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{
		"220 hello\r\n331 password\r\n230 in\r\n200 binary\r\n229 Extended (|||12|)\r\n",
		"220-a\r\n b\r\n220 c\r\n230 in\r\n200 ok\r\n500 no EPSV\r\n227 Passive (127,0,0,1,0,12)\r\n",
		"220 x\r\n230 y\r\n200 z\r\n229 (|||99999|)\r\n", "227 (1,2,3,4,5)\r\n", "\r\n", "999",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &ftpSession{text: textproto.NewConn(answers{bytes.NewReader(b), nopCloser{io.Discard}})}
		if err := s.login(&url.URL{Scheme: "ftp", Host: "host", Path: "/f"}); err != nil {
			return
		}
		if port, err := s.passivePort(); err == nil && (port <= 0 || port > 65535) {
			t.Errorf("port %d", port)
		}
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
