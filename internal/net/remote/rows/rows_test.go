package rows

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/test/servertest"
)

// servers are stores on real servers.
var servers = map[string]func(t *testing.T) Store{
	"etcd": func(t *testing.T) Store {
		s := servertest.Etcd(t)
		t.Cleanup(s.Remove)
		return open(t, "etcd", value.DictOf("etcd.host", s.Host, "etcd.port", int64(s.Port)), "/here/")
	},
	"postgres": func(t *testing.T) Store {
		s := servertest.Postgres(t)
		t.Cleanup(s.Remove)
		return open(t, "postgres", value.DictOf("cache.postgres.host", s.Host, "cache.postgres.port", int64(s.Port), "cache.postgres.user", s.User,
			"cache.postgres.password", s.Password, "cache.postgres.database", s.Database), "/here/")
	},
}

func open(t *testing.T, engine string, opts *value.Dict, under string) Store {
	t.Helper()
	s, err := Open(engine, remote.Options(opts), under, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestRows: rows are written at once or not at all, and listed in order.
func TestRows(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := start(t), context.Background()
			commit := func(want bool, conditions []Condition, changes ...Change) {
				t.Helper()
				if ok, err := s.Commit(ctx, conditions, changes); err != nil || ok != want {
					t.Fatalf("%v, %v", ok, err)
				}
			}
			big := bytes.Repeat([]byte{0, 1, 0xff, 'x'}, MaxBytes/4)
			commit(true, []Condition{{Name: "v/a"}}, Change{"v/a", []byte{1}}, Change{"big", big})
			commit(false, []Condition{{Name: "v/a"}}, Change{"v/a", []byte{2}}, Change{"other", []byte("x")})
			commit(false, []Condition{{"v/a", []byte{2}}}, Change{"v/a", []byte{3}})
			commit(true, []Condition{{"v/a", []byte{1}}, {Name: "nothing"}}, Change{"v/a", []byte{3}}, Change{Name: "big"}, Change{Name: "absent"})
			got, err := s.Get(ctx, "v/a", "big", "other")
			if err != nil || len(got) != 1 || !bytes.Equal(got["v/a"], []byte{3}) {
				t.Fatalf("%v, %v", got, err)
			}
			var many []Change
			for i := range MaxChanges {
				many = append(many, Change{fmt.Sprintf("e/%03d", i), []byte{byte(i)}})
			}
			commit(true, nil, many...)
			for _, values := range []bool{false, true} {
				seen := 0
				for after := ""; ; {
					page, err := s.Scan(ctx, "e/", after, 50, values)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range page {
						if r.Name != fmt.Sprintf("e/%03d", seen) || values && !bytes.Equal(r.Value, []byte{byte(seen)}) {
							t.Fatalf("%d: %+v", seen, r)
						}
						after = r.Name
						seen++
					}
					if len(page) < 50 {
						break
					}
				}
				if seen != MaxChanges {
					t.Fatalf("%d rows", seen)
				}
			}
		})
	}
}

// TestRowsAtOnce: of transactions with the same condition one succeeds, whether the row exists or not.
func TestRowsAtOnce(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := start(t), context.Background()
			var now []byte
			for turn := range 10 {
				var wg sync.WaitGroup
				var mu sync.Mutex
				won := 0
				for i := range 8 {
					wg.Go(func() {
						for {
							ok, err := s.Commit(ctx, []Condition{{"v", now}}, []Change{{"v", []byte{byte(turn), byte(i)}}, {"g", []byte{byte(i)}}})
							if err != nil {
								continue // a conflict that may be retried
							}
							if ok {
								mu.Lock()
								won++
								mu.Unlock()
							}
							return
						}
					})
				}
				wg.Wait()
				if won != 1 {
					t.Fatalf("turn %d: %d have won", turn, won)
				}
				got, err := s.Get(ctx, "v")
				if err != nil {
					t.Fatal(err)
				}
				now = got["v"]
			}
		})
	}
}
