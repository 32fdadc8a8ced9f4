package members

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"brine/internal/ha/roster"
	"brine/internal/net/crypt"
)

func TestMembers(t *testing.T) {
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := Config{ID: "w1", Transport: "zeromq", Path: filepath.Join(dir, "brine", "members"), KeyPath: filepath.Join(dir, "minion_master.pub"),
		Zone: func() string { return "east" }, Log: slog.New(slog.DiscardHandler)}
	signed := func(version int64) []byte {
		port := map[string]int{"zeromq": 4506}
		b, err := roster.List{Cluster: "c", Version: version, Members: []roster.Member{
			{ID: "m1", Host: "10.0.0.1", Ports: port, Zone: "west"}, {ID: "m2", Host: "10.0.0.2", Ports: port, Zone: "east", Draining: true},
			{ID: "m3", Host: "10.0.0.3", Ports: port, Zone: "east"},
		}}.Sign(key)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	s := New(c)
	s.Recall() // nothing was saved
	if _, err := s.Take(signed(1)); err == nil {
		t.Error("a list is taken although the key of the masters is not known")
	}
	if err := os.WriteFile(c.KeyPath, key.Public().PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if !s.Wants(2) {
		t.Error("news are not wanted")
	}
	if news, err := s.Take(signed(2)); !news || err != nil {
		t.Errorf("%v, %v", news, err)
	}
	if news, err := s.Take(signed(1)); news || err != nil {
		t.Errorf("an older one: %v, %v", news, err)
	}
	if _, err := s.Take([]byte("x")); err == nil {
		t.Error("an unsigned list is taken")
	}
	if s.Refuse(3); s.Wants(2) || s.Wants(3) || !s.Wants(4) {
		t.Error("what is wanted is not what is new and was not refused")
	}
	if err := s.Keep(signed(2)); err != nil {
		t.Fatal(err)
	}
	next := New(c)
	next.Recall()
	addrs, avoid := next.Preferred(nil)
	if len(addrs) != 3 || addrs[0] != "10.0.0.3:4506" || !slices.Equal(avoid, []string{"10.0.0.2:4506"}) {
		t.Errorf("preferred %v, avoided %v", addrs, avoid)
	}
	if err := os.WriteFile(c.Path, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := New(c)
	if broken.Recall(); !broken.Wants(1) {
		t.Error("a broken file is used")
	}
}
