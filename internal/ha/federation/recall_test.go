package federation

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// restorer is a HubHost that records which jobs are stored again.
type restorer struct {
	HubHost
	jids []string
}

func (r *restorer) Restore(c *wire.SiteCommand) error { r.jids = append(r.jids, c.JID); return nil }

// TestRecall: a hub learns a forgotten command again from its own sealed message alone, and for the site alone that got it.
func TestRecall(t *testing.T) {
	key := func() func() *crypt.PrivateKey {
		k, err := crypt.GenerateKey(2048)
		if err != nil {
			t.Fatal(err)
		}
		return func() *crypt.PrivateKey { return k }
	}
	mine := key()
	host := &restorer{}
	log := slog.New(slog.DiscardHandler)
	h, err := NewHub(HubConfig{Path: filepath.Join(t.TempDir(), "x.db"), KeyDir: t.TempDir(), Key: sealed.NewSealer("above", sealed.Hub, mine),
		Keep: time.Hour, Host: host, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer h.book.close()
	command := wire.SiteCommand{JID: "20260101000000000001", Tgt: "*", TgtType: "glob", Fun: "test.ping", Arg: &value.List{}, User: "root",
		Expires: time.Now().Add(time.Minute).UnixMilli()}
	seal := func(s *sealed.Sealer, kind, to string, c wire.SiteCommand) []byte {
		b, err := s.Seal(kind, to, c)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	passing, unnamed := command, command
	passing.Passing, unnamed.JID = true, "../x"
	old := sealed.NewSealer("above", sealed.Hub, mine)
	old.Follow(func() time.Time { return time.Now().Add(-2 * time.Hour) })
	for what, b := range map[string][]byte{
		"of another master":         seal(sealed.NewSealer("above", sealed.Hub, key()), kindCommand, "eu", command),
		"of the site itself":        seal(sealed.NewSealer("eu", sealed.Site, mine), kindCommand, "eu", command),
		"for another site":          seal(h.cfg.Key, kindCommand, "us", command),
		"for no site":               seal(h.cfg.Key, kindCommand, "", command),
		"of another kind":           seal(h.cfg.Key, kindAsk, "eu", command),
		"that is not kept":          seal(h.cfg.Key, kindCommand, "eu", passing),
		"with an invalid job id":    seal(h.cfg.Key, kindCommand, "eu", unnamed),
		"older than jobs are kept":  seal(old, kindCommand, "eu", command),
		"that is no sealed message": []byte("x"),
		"that is empty":             nil,
	} {
		if err := h.recalls.take("eu", &wire.SiteRecall{Command: b}); err == nil || len(host.jids)+len(h.jobs) > 0 {
			t.Errorf("a command %s: %v, %v", what, err, host.jids)
		}
	}
	for range 2 {
		if err := h.recalls.take("eu", &wire.SiteRecall{Command: seal(h.cfg.Key, kindCommand, "eu", command)}); err != nil {
			t.Error(err)
		}
	}
	if j := h.jobs[command.JID]; len(host.jids) != 1 || j == nil || j.sites["eu"] == nil || len(j.sites) != 1 {
		t.Errorf("%v, %+v", host.jids, j)
	}
}

// TestSealedIsKept: a site has the message of a command also after a restart.
func TestSealedIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	log := slog.New(slog.DiscardHandler)
	b, err := openBook(path, log)
	if err != nil {
		t.Fatal(err)
	}
	const jid = "20260101000000000001"
	j := &siteJob{cmd: wire.SiteCommand{JID: jid, Expires: 1}, stage: stagePublished, sealed: []byte{0xff, 0, 1}}
	if err := b.put(jobsBucket, jid, j.record()); err != nil {
		t.Fatal(err)
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	s := &Site{jobs: map[string]*siteJob{}, done: map[string]int64{}}
	if s.book, err = openBook(path, log); err != nil {
		t.Fatal(err)
	}
	defer s.book.close()
	if err := s.load(); err != nil {
		t.Fatal(err)
	}
	if got := s.jobs[jid]; got == nil || !bytes.Equal(got.sealed, j.sealed) {
		t.Errorf("%+v", got)
	}
}
