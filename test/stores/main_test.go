// Package stores tests caches and job caches with real servers, and with stock Salt's own drivers
// if Salt is available.
package stores

import (
	"log/slog"
	"os"
	"sync"
	"testing"

	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/test/servertest"
)

// TestMain removes the servers at the end.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range []*shared{redisServer, etcdServer, mysqlServer, postgresServer} {
		if s.s != nil {
			s.s.Remove()
		}
	}
	os.Exit(code)
}

// shared is one server for all tests of the package.
type shared struct {
	once sync.Once
	open func(testing.TB) *servertest.Server
	s    *servertest.Server
}

var (
	redisServer    = &shared{open: servertest.Redis}
	etcdServer     = &shared{open: servertest.Etcd}
	mysqlServer    = &shared{open: servertest.MySQL}
	postgresServer = &shared{open: servertest.Postgres}
)

func (s *shared) get(t testing.TB) *servertest.Server {
	t.Helper()
	s.once.Do(func() { s.s = s.open(t) })
	if s.s == nil {
		t.Skip("the server could not be started for another test")
	}
	return s.s
}

var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1}))

func options(pairs ...any) remote.Source { return remote.Options(value.DictOf(pairs...)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
