package channel

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/test/tools"
)

// stockMinion is a process with the request channel of Salt's minion.
type stockMinion struct {
	t   *testing.T
	in  *json.Encoder
	out *json.Decoder
}

func startStockMinion(t *testing.T, tr transport.Transport, addr string) *stockMinion {
	t.Helper()
	src, python := tools.StockSalt(t)
	pki := t.TempDir()
	for _, ext := range []string{".pem", ".pub"} {
		b, err := os.ReadFile(filepath.Join(vectors, "keys", "minion_other"+ext))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(pki, "minion"+ext), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-W", "ignore", filepath.Join("testdata", "stock_minion.py"), pki, port, tr.Name())
	cmd.Env = append(os.Environ(), "PYTHONPATH="+src)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		end.Stop()
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("Salt says:\n%s", stderr.Bytes())
		}
	})
	return &stockMinion{t: t, in: json.NewEncoder(in), out: json.NewDecoder(bufio.NewReader(out))}
}

// asks sends a load and checks the stock minion's reading of the reply.
func (m *stockMinion) asks(kind string, load map[string]any, want string) {
	m.t.Helper()
	if err := m.in.Encode([]any{kind, load}); err != nil {
		m.t.Fatal(err)
	}
	var got json.RawMessage
	if err := m.out.Decode(&got); err != nil {
		m.t.Fatal(err)
	}
	if string(got) != want {
		m.t.Errorf("%v got %s, want %s", load, got, want)
	}
}

// TestStockMinion: a stock minion signs in, sends requests, recovers from the
// loss of its session and repeats a request without an answer.
func TestStockMinion(t *testing.T) {
	overTransports(t, func(t *testing.T, tr transport.Transport) {
		var mu sync.Mutex
		unanswered := 0
		var late []*Call
		s := newServer(t, func(c *Call) {
			mu.Lock()
			defer mu.Unlock()
			if c.Cmd == "_pillar" && unanswered > 0 {
				unanswered--
				late = append(late, c)
				return
			}
			echo(c)
		})
		s.book.auto = true
		req, err := tr.ListenRequests("127.0.0.1:0", transport.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = req.Serve(ctx, s.Handle) })
		t.Cleanup(func() { cancel(); wg.Wait() })

		m := startStockMinion(t, tr, req.Addr().String())
		echoed := `{"ok": {"you": "stock", "sent": "hello"}}`
		m.asks("send", map[string]any{"cmd": "echo", "x": "hello"}, echoed)
		m.asks("private", map[string]any{"cmd": "_pillar"}, `{"ok": {"secret": "stock"}}`)
		s.Forget("stock")
		m.asks("send", map[string]any{"cmd": "echo", "x": "hello"}, echoed)
		s.Forget("stock")
		m.asks("private", map[string]any{"cmd": "_pillar"}, `{"ok": {"secret": "stock"}}`)

		mu.Lock()
		unanswered = 2
		mu.Unlock()
		m.asks("private", map[string]any{"cmd": "_pillar"}, `{"ok": {"secret": "stock"}}`)
		mu.Lock()
		defer mu.Unlock()
		if len(late) != 2 || late[0].nonce != late[1].nonce {
			t.Errorf("%d questions were left open", len(late))
		}
		for _, c := range late {
			c.Reply(value.NewDict(0)) // the minion no longer listens
		}
	})
}
