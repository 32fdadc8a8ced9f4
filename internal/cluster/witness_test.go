package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/event"
	"brine/internal/lease"
	"brine/internal/value"
)

const witnessSecret = "a secret of the tests"

func runWitness(t *testing.T, dir string) (w *Witness, stop func()) {
	t.Helper()
	voters := []string{"a", "b", "w"}
	// An address of this process alone, where nobody else's connections begin.
	host := fmt.Sprintf("127.77.%d.%d", os.Getpid()>>8&0xff, os.Getpid()&0xff)
	w, err := NewWitness(WitnessOptions{ID: "w", Interface: host, Cluster: "test", Secret: witnessSecret, Voters: voters, Port: 24529, Folder: dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return w, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestWitness: it answers who knows the secret, also after it was started anew;
// nonsense, silence and frames that come twice end a connection, and no more.
func TestWitness(t *testing.T) {
	dir := t.TempDir()
	w, stop := runWitness(t, dir)
	link := func(cluster, secret string) *witnessLink {
		return &witnessLink{address: w.Addr().String(), from: "a", cluster: cluster, secret: func() (string, error) { return secret, nil }}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	about := requestDict(lease.Request{Holder: "a", Voters: lease.Fingerprint([]string{"w", "b", "a"})})
	good := link("test", witnessSecret)
	if d, err := good.ask(ctx, about); err != nil || d.Str("why") != "" || !d.Has("granted") {
		t.Fatalf("%v %v", d, err)
	}
	for what, l := range map[string]*witnessLink{"does not know cluster_secret": link("test", witnessSecret+"s"), "cluster_id is": link("other", witnessSecret)} {
		if _, err := l.ask(ctx, about); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("it does not say %q: %v", what, err)
		}
	}
	hello, err := say(tagWitness, value.DictOf("cluster", "test", "id", "a", "nonce", nonce()))
	if err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string][]byte{
		"noise":         bytes.Repeat([]byte{0xc1}, 100),
		"a large frame": event.Frame(make([]byte, 2*maxWitnessFrame)),
		"another word":  event.Frame(event.Body(tagHello, []byte{0x80})),
		"no proof":      append(event.Frame(hello), event.Frame(hello)...),
	} {
		conn, err := net.Dial("tcp", w.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		conn.Write(b)
		buf := make([]byte, 4096)
		for err == nil {
			_, err = conn.Read(buf)
		}
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("%s: the connection stays", what)
		}
		conn.Close()
	}
	// What was said before counts no more.
	good.mu.Lock()
	good.t.sent--
	good.mu.Unlock()
	if d, err := good.try(ctx, about); err == nil {
		t.Errorf("a frame with a number that was used is answered: %v", d)
	}
	if _, err := good.ask(ctx, about); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	stop()
	_, stop = runWitness(t, dir)
	defer stop()
	if _, err := good.ask(ctx, about); err != nil {
		t.Errorf("after it was started anew: %v", err)
	}
}
