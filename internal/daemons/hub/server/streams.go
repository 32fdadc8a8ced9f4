package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

// streams starts the streams again when they have failed, as on a full disk: NATS refuses every later
// write to such a stream, or stops all streams, until the process restarts.
type streams struct {
	s     *Server
	due   time.Time
	pause time.Duration
}

const (
	mendFirst = 5 * time.Second
	mendMost  = 5 * time.Minute
)

// tend looks at the streams if that is due, and starts them again if they have failed and the disk has
// space.
func (t *streams) tend(now time.Time) {
	if now.Before(t.due) {
		return
	}
	why := t.failed()
	if why == "" {
		t.due, t.pause = now.Add(mendFirst), 0
		return
	}
	t.pause = min(max(2*t.pause, mendFirst), mendMost)
	if err := t.writable(); err != nil {
		t.pause = mendFirst
		t.s.limited.Log(slog.LevelError, "the streams have failed and need space on the disk; until then nothing is kept for sites that are unreachable",
			"err", err, "reason", why)
	} else {
		t.s.limited.Log(slog.LevelWarn, "the streams have failed; starting them again", "reason", why)
		if err := t.restart(); err != nil {
			t.s.limited.Log(slog.LevelError, "cannot start the streams again; retrying", "err", err)
		}
	}
	t.due = time.Now().Add(t.pause)
}

// failed returns why messages cannot be stored, "" if they can.
func (t *streams) failed() string {
	if !t.s.nats.JetStreamEnabled() {
		return "they were stopped"
	}
	if t.s.o.ClusterListen != "" {
		return "" // a node that cannot write stops its streams, and others have copies
	}
	page := answer{header: http.Header{}}
	t.s.nats.HandleHealthz(&page, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/healthz", RawQuery: "details=true"}})
	var health natsserver.HealthStatus
	if err := json.Unmarshal(page.Bytes(), &health); err != nil {
		return "" // another version of NATS
	}
	i := slices.IndexFunc(health.Errors, func(e natsserver.HealthzError) bool { return e.Type == natsserver.HealthzErrorStream })
	if i < 0 {
		return ""
	}
	return health.Errors[i].Error
}

// writable returns why the disk takes no data.
func (t *streams) writable() error {
	path := filepath.Join(t.s.o.DataDir, "space")
	err := os.WriteFile(path, make([]byte, 1<<20), 0o600)
	return errors.Join(err, os.Remove(path))
}

func (t *streams) restart() error {
	if err := t.s.nats.ShutdownJetStream(); err != nil {
		return fmt.Errorf("cannot stop them: %w", err)
	}
	return t.s.nats.EnableJetStream(&natsserver.JetStreamConfig{
		StoreDir: t.s.o.DataDir, MaxStore: t.s.o.MaxData, MaxMemory: streamMemory, SyncInterval: streamSync, Strict: true,
	})
}

// answer is a page of the NATS server.
type answer struct {
	bytes.Buffer
	header http.Header
}

func (a *answer) Header() http.Header { return a.header }

func (*answer) WriteHeader(int) {}
