package cache

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/py/value"
)

// slowStore is a store of one value whose reads and writes wait for the test.
type slowStore struct {
	Driver
	write, reading, reply chan struct{}

	mu   sync.Mutex
	data map[string][]byte
}

func (s *slowStore) Store(_ context.Context, bank, key string, data []byte) error {
	<-s.write
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data[bank+"/"+key] = data
	return nil
}

func (s *slowStore) Each(_ context.Context, banks []string, key string, _ []string) ([]Value, error) {
	s.mu.Lock()
	out := make([]Value, len(banks))
	for i, b := range banks {
		out[i].Data = s.data[b+"/"+key]
	}
	s.mu.Unlock()
	s.reading <- struct{}{}
	<-s.reply
	return out, nil
}

func (s *slowStore) List(context.Context, string) ([]string, error) { return nil, nil }
func (s *slowStore) Close() error                                   { return nil }

// TestReadDuringWrite checks that a value that was queued when a read of the store began, and was
// written before the read ended, stays cached.
func TestReadDuringWrite(t *testing.T) {
	dir := t.TempDir()
	s := &slowStore{write: make(chan struct{}), reading: make(chan struct{}), reply: make(chan struct{}), data: map[string][]byte{}}
	var o Options
	must(t, field.Defaults(&o))
	o.Driver, o.Timeout = "slow", time.Minute
	c, err := Open(dir, filepath.Join(dir, "brine"), o, s, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.StoreMinion("m1", Minion{Grains: value.DictOf("os", "Debian")}); err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() { got <- c.MinionData("m1").Grains.Str("os") }()
	<-s.reading           // the store has answered that it has no value
	s.write <- struct{}{} // now it is written
	for deadline := time.Now().Add(time.Minute); c.Status().Waiting > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the value was not written")
		}
	}
	s.reply <- struct{}{}
	if os := <-got; os != "Debian" {
		t.Errorf("os is %q", os)
	}
}
