package profile

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"brine/internal/base/salt"
)

func TestServesOnLoopback(t *testing.T) {
	s, err := New(Options{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	get := func(host string) (int, string) {
		req, _ := http.NewRequest("GET", "http://"+s.Addr().String()+"/debug/pprof/goroutine?debug=1", nil)
		if host != "" {
			req.Host = host
		}
		rep, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer rep.Body.Close()
		b, _ := io.ReadAll(rep.Body)
		return rep.StatusCode, string(b)
	}
	if code, body := get(""); code != 200 || !strings.Contains(body, "goroutine profile: total") {
		t.Errorf("answered %d: %.100s", code, body)
	}
	if code, _ := get("evil.example:6060"); code != 403 {
		t.Errorf("a request with the name of another host got %d", code)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestRefusesOtherAddresses(t *testing.T) {
	for _, a := range []string{"0.0.0.0:6060", ":6060", "192.0.2.1:6060", "127.0.0.1", "localhost:6060"} {
		if _, err := New(Options{Address: a}, slog.New(slog.DiscardHandler)); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%q: %v", a, err)
		}
	}
	if s, err := New(Options{}, slog.New(slog.DiscardHandler)); s != nil || err != nil {
		t.Errorf("without an address: %v, %v", s, err)
	}
}
