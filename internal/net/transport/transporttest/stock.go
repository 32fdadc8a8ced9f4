package transporttest

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"brine/test/tools"
)

//go:embed stock.py
var stockScript []byte

// Stock is a process that runs one end of Salt's own transport classes.
type Stock struct {
	t     *testing.T
	lines chan map[string]any
}

// StartStock runs the script stock.py beside this file with args. The test is skipped unless
// BRINE_STOCK_SALT names a directory with Salt's sources.
func StartStock(t *testing.T, args ...string) *Stock {
	t.Helper()
	src, python := tools.StockSalt(t)
	script := filepath.Join(t.TempDir(), "stock.py")
	if err := os.WriteFile(script, stockScript, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, append([]string{"-W", "ignore", script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+src)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &Stock{t: t, lines: make(chan map[string]any, 10_000)}
	go func() {
		defer close(s.lines)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			var v map[string]any
			if json.Unmarshal(in.Bytes(), &v) == nil {
				s.lines <- v
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		for range s.lines {
		}
		cmd.Wait()
		if t.Failed() {
			t.Logf("stock.py said on stderr:\n%s", stderr.Bytes())
		}
	})
	return s
}

// Next returns the next value that the process prints, nil after its end. Warnings and errors in
// Salt's log fail the test.
func (s *Stock) Next() map[string]any {
	s.t.Helper()
	for {
		select {
		case v, ok := <-s.lines:
			if !ok {
				return nil
			}
			if text, isLog := v["log"]; isLog {
				s.t.Errorf("Salt logs: %v", text)
				continue
			}
			return v
		case <-time.After(3 * Timeout):
			s.t.Fatal("stock.py says nothing")
		}
	}
}

// Pending returns Salt's log so far without waiting, and drops its other output.
func (s *Stock) Pending() (logs []string) {
	for {
		select {
		case v, ok := <-s.lines:
			if !ok {
				return logs
			}
			if text, isLog := v["log"].(string); isLog {
				logs = append(logs, text)
			}
		default:
			return logs
		}
	}
}

// UnusedPort returns a free port on 127.0.0.1.
func UnusedPort(t *testing.T) string {
	t.Helper()
	addr := unusedAddr(t)
	return addr[len("127.0.0.1:"):]
}
