package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/eventually"
)

// sealed returns a request of the minion in its encoded form.
func (l *loot) sealed(cmd string, pairs ...any) []byte {
	l.t.Helper()
	// Present session keys are computed from the last secret.
	c, err := crypt.NewCrypticle(crypt.DeriveKey(l.secrets[len(l.secrets)-1], fmt.Sprintf("%s\x00%d\x00%s", l.id, 1, l.pub)))
	must(l.t, err)
	var nonce [16]byte
	rand.Read(nonce[:])
	load := value.DictOf(pairs...)
	load.Update(value.DictOf("cmd", cmd, "id", l.id, "nonce", hex.EncodeToString(nonce[:]), "ts", time.Now().Unix(), "tok", l.tok))
	plain, err := msgpack.Marshal(load, msgpack.Wire)
	must(l.t, err)
	body, err := msgpack.Marshal(value.DictOf("enc", "aes", "load", c.Seal(plain, ""), "version", 3, "id", l.id), msgpack.NewSpec)
	must(l.t, err)
	return body
}

// serves sends an encoded request and reports whether the master serves it.
func (l *loot) serves(at *node, body []byte) bool {
	l.t.Helper()
	r := zeromq.New(slog.New(slog.DiscardHandler)).NewRequester(at.Requests(), transport.DialOptions{})
	defer r.Close()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	raw, err := r.Request(ctx, body)
	must(l.t, err)
	text, ok := msgpack.Text(raw)
	return !ok || string(text) != "bad load"
}

// TestReplayAtAnotherMember: a request recorded at one master is refused by the others, and by the
// same one after a restart, as soon as the masters have reported to each other what they served.
func TestReplayAtAnotherMember(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\npublish_session: 0\n").start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	v := a.minion("v", one)
	eventually.Nil(t, soon, "it answers", func() error { return one.PingAll(brine, "v") })
	a.equal(three, 3, map[string]int{"key": 1})
	l := steal(t, one, v)
	store := func(at *node, x string) []byte {
		t.Helper()
		body := l.sealed("_mine", "data", value.DictOf("x", x), "clear", true)
		if !l.serves(at, body) {
			t.Fatalf("%s does not serve a minion", at.Name)
		}
		return body
	}
	// told waits until one master knows what another one serves. Each attempt uses a new request,
	// since a replay that is served is known from then on.
	told := func(from, to *node) {
		t.Helper()
		eventually.Nil(t, soon, to.Name+" is told what "+from.Name+" serves", func() error {
			probe := store(from, "probe")
			time.Sleep(100 * time.Millisecond)
			if l.serves(to, probe) {
				return errors.New("it serves a replay")
			}
			return nil
		})
	}
	refused := func(at *node, when string, body []byte) {
		t.Helper()
		if l.serves(at, body) {
			t.Errorf("%s serves a replay %s", at.Name, when)
		}
		out, errs, code := at.Run(brine, "salt-run", "--out=json", "mine.get", "v", "x")
		// Records stored at several masters are merged in any order, but "old" is the first.
		if code != 0 || strings.Contains(out, "old") {
			t.Errorf("mine at %s %s: %d %s%s", at.Name, when, code, out, errs)
		}
	}
	recorded := store(one, "old")
	told(one, two)
	told(one, three)
	store(two, "new")
	store(three, "new")
	store(one, "new")
	for _, m := range a.masters {
		refused(m, "of what another one has served", recorded)
	}

	// Those that two has served until now are in one list with the recorded one, so a
	// restarted master that knows one of them knows all. None of them may be left
	// among the news that two still has to report: that message would tell the
	// restarted master of it alone. two sends its next message when the previous one
	// was answered, so one that reports the second probe shows that all before were.
	var before [][]byte
	for range 100 {
		before = append(before, store(two, "before"))
	}
	told(two, one)
	told(two, one)
	one.Kill()
	one.Start()
	eventually.Nil(t, soon, "one is told what was served before its restart", func() error {
		if len(before) == 0 {
			t.Fatal("one has served each request that two has served")
		}
		probe := before[0]
		before = before[1:]
		if l.serves(one, probe) {
			return errors.New("it serves a replay")
		}
		return nil
	})
	store(one, "new")
	refused(one, "after its restart", recorded)
	eventually.Nil(t, soon, "the minion is served", func() error { return one.PingAll(brine, "v") })
}
