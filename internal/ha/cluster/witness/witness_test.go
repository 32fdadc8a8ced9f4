package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/wire"
	"brine/internal/ha/lease"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/eventually"
	"brine/test/fuzztest"
)

const witnessSecret = "7ef7697a5ec2e70f7e5755ecd0123456"

func runWitness(t testing.TB, dir, secret string) (w *Server, stop func()) {
	t.Helper()
	voters := []string{"a", "b", "w"}
	// An address that only this process uses, and from which no other connection starts.
	host := fmt.Sprintf("127.77.%d.%d", os.Getpid()>>8&0xff, os.Getpid()&0xff)
	w, err := New(Options{ID: "w", Interface: host, Cluster: "test", Secret: secret, Voters: voters, Port: 24529, Dir: dir}, slog.New(slog.DiscardHandler))
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

// teller is a master that queries a witness, with the update that it sends.
type teller struct {
	link *Link
	now  Update
}

func newTeller(t testing.TB, address, id, cluster, secret string, key int) *teller {
	t.Helper()
	pairs, err := clustertest.Keys()
	if err != nil {
		t.Fatal(err)
	}
	a := &teller{now: Update{Secret: secret, Members: map[string]string{id: string(pairs[key].Public().PEM())}, MembersFrom: time.Now().Add(-time.Hour)}}
	a.link = &Link{Master: &Master{ID: id, Cluster: cluster, Identity: masterIdentity(t, id, cluster, pairs[key]), Own: pairs[key],
		Update: func() (Update, error) { return a.now, nil }, Dir: t.TempDir(), Log: limitlog.New(slog.New(slog.DiscardHandler))}, Witness: "w",
		Address: address}
	return a
}

func masterIdentity(t testing.TB, id, cluster string, key *crypt.PrivateKey) *wire.Identity {
	t.Helper()
	b, err := wire.NewIdentity(id, cluster, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func aboutLease(t testing.TB, holder string, op lease.Op) *value.Dict {
	t.Helper()
	d, err := RequestDict(lease.Request{Op: op, Holder: holder, Group: lease.Fingerprint([]string{"w", "b", "a"})})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// answers expects an answer or, if refused is not "", an error that contains it.
func (a *teller) answers(t testing.TB, when, refused string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, err := a.link.Ask(ctx, aboutLease(t, "a", lease.Query))
	switch {
	case refused == "" && (err != nil || d.Str("why") != "" && a.link.t.cipher == nil || a.link.t.cipher == nil && !d.Has(fieldAnswer)):
		t.Fatalf("%s: %v %v", when, d, err)
	case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
		t.Errorf("%s: it does not say %q: %v %v", when, refused, d, err)
	}
}

// TestWitness: a witness answers masters that know the secret, also after a restart. Malformed
// messages, silence and replayed frames end only their own connection.
func TestWitness(t *testing.T) {
	dir := t.TempDir()
	w, stop := runWitness(t, dir, witnessSecret)
	at := w.Addr().String()
	good := newTeller(t, at, "a", "test", witnessSecret, 0)
	good.answers(t, "at first", "")
	if up, byTLS, knows := good.link.State(); !up || !byTLS || knows != TagOf(Secret(witnessSecret)) {
		t.Errorf("up %v, by TLS %v, knows %q", up, byTLS, knows)
	}
	newTeller(t, at, "a", "test", witnessSecret+"s", 1).answers(t, "another secret", "does not know cluster_secret")
	newTeller(t, at, "a", "other", witnessSecret, 0).answers(t, "another cluster", "cluster_id is")
	elsewhere := newTeller(t, at, "a", "test", witnessSecret, 0)
	elsewhere.link.Witness = "v"
	elsewhere.answers(t, "another witness", `names v, but the witness there has the id "w"`)
	good.answers(t, "afterwards", "")
	hello, err := wire.Encode(tagWitness, value.DictOf("cluster", "test", "id", "a", "nonce", wire.Nonce()))
	if err != nil {
		t.Fatal(err)
	}
	for _, byTLS := range []bool{false, true} {
		for what, b := range map[string][]byte{
			"noise":         bytes.Repeat([]byte{0xc1}, 100),
			"a large frame": event.Frame(make([]byte, 2*maxWitnessFrame)),
			"another word":  event.Frame(event.Body("brine/cluster/hello", []byte{0x80})),
			"no proof":      append(event.Frame(hello), event.Frame(hello)...),
		} {
			raw, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			raw.SetDeadline(time.Now().Add(time.Minute))
			conn := raw
			if byTLS {
				if conn, err = good.link.connect(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				conn.SetDeadline(time.Now().Add(time.Minute))
			}
			conn.Write(b)
			buf := make([]byte, 4096)
			for err == nil {
				_, err = conn.Read(buf)
			}
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Errorf("%s: the connection stays", what)
			}
			conn.Close()
			raw.Close()
		}
	}
	// A replayed frame is rejected.
	good.link.mu.Lock()
	good.link.t.sent--
	if d, err := good.link.try(t.Context(), aboutLease(t, "a", lease.Query), 0); err == nil {
		t.Errorf("a frame with a number that was used is answered: %v", d)
	}
	good.link.mu.Unlock()
	good.answers(t, "after that", "")
	stop()
	_, stop = runWitness(t, dir, witnessSecret)
	defer stop()
	good.answers(t, "after a restart", "")
}

// TestWitnessRemembers: a master that has proved the secret once is identified by its key. The
// witness gets a new secret and the members at once, or when it is reachable. It disconnects
// removed members.
func TestWitnessRemembers(t *testing.T) {
	dir := t.TempDir()
	w, stop := runWitness(t, dir, witnessSecret)
	at := w.Addr().String()
	a, b, late := newTeller(t, at, "a", "test", witnessSecret, 0), newTeller(t, at, "b", "test", witnessSecret, 1),
		newTeller(t, at, "c", "test", witnessSecret, 1)
	both := map[string]string{"a": a.now.Members["a"], "b": b.now.Members["b"]}
	a.now.Members, b.now.Members = both, both
	a.answers(t, "a", "")
	b.answers(t, "b", "")
	told := time.Now().Add(-30 * time.Minute)
	const second, third = "the second secret of the tests", "the third secret of the tests"
	a.now.Secret, a.now.SecretFrom = second, told
	a.answers(t, "a with a new secret", "")
	b.answers(t, "b, which has not heard of it", "")
	b.link.t.conn.Close()
	b.answers(t, "b, which has not heard of it and comes again", "")
	if secret, _, _ := w.known.terms(); secret != Secret(second) {
		t.Errorf("an older secret counts: %q", secret)
	}
	late.answers(t, "who knows the first secret alone", "does not know cluster_secret")
	stop()

	a.now.Secret, a.now.SecretFrom = third, told.Add(time.Minute)
	w, stop = runWitness(t, dir, witnessSecret)
	a.answers(t, "a with a secret of which the witness has not heard", "")
	if secret, _, _ := w.known.terms(); secret != Secret(third) {
		t.Errorf("it has not learned the secret: %q", secret)
	}
	newTeller(t, at, "c", "test", third, 1).answers(t, "one that has joined with the new secret", "")
	// b is removed. Its own update is older.
	a.now.Members, a.now.MembersFrom = map[string]string{"a": both["a"]}, told
	a.answers(t, "a", "")
	b.answers(t, "b, which was removed", "does not know cluster_secret")
	stop()

	// A clock that is ahead does not block updates of other masters.
	w, stop = runWitness(t, dir, witnessSecret)
	a.now.Secret, a.now.SecretFrom = second, time.Now().Add(24*time.Hour)
	a.answers(t, "a with a clock that is ahead", "")
	a.now.Secret, a.now.SecretFrom = third, time.Now().Add(time.Minute)
	a.answers(t, "a", "")
	time.Sleep(2 * time.Millisecond)
	a.now.SecretFrom = time.Now()
	a.link.told = ""
	a.answers(t, "a again", "")
	if secret, _, _ := w.known.terms(); secret != Secret(third) {
		t.Errorf("it believes a clock: %q", secret)
	}
	stop()

	// A changed secret in the configuration of the witness wins.
	const byHand = "a secret that was put there by hand"
	_, stop = runWitness(t, dir, byHand)
	newTeller(t, at, "c", "test", byHand, 1).answers(t, "with the secret of the configuration", "")
	stop()
	if err := os.WriteFile(filepath.Join(dir, knownFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(w.o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("%v", err)
	}
}

// TestWitnessWithoutTLS: a master of an older version is accepted until the others report that all
// members use TLS. A witness of an older version is accepted until it has used TLS once.
func TestWitnessWithoutTLS(t *testing.T) {
	w, stop := runWitness(t, t.TempDir(), witnessSecret)
	defer stop()
	at := w.Addr().String()
	old := newTeller(t, at, "b", "test", witnessSecret, 1)
	plain := func() error {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		return oldMaster(&wire.Line{Conn: conn, Raw: conn}, old, witnessSecret)
	}
	if err := plain(); err != nil {
		t.Fatal(err)
	}
	a := newTeller(t, at, "a", "test", witnessSecret, 0)
	a.answers(t, "a", "")
	if err := plain(); err != nil {
		t.Errorf("beside a master that speaks TLS: %v", err)
	}
	a.now.Tls = true
	a.answers(t, "a, when all speak TLS", "")
	if err := plain(); err == nil || !strings.Contains(err.Error(), "install the version") {
		t.Errorf("when all speak TLS: %v", err)
	}

	// A witness without TLS closes the connection.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				first := make([]byte, 1)
				conn.Read(first)
				if first[0] != wire.RecordHandshake {
					w.serve(t.Context(), &wire.Unread{Conn: conn, First: first})
				}
			}()
		}
	}()
	w.known.mu.Lock()
	w.known.d.TLS = false
	w.known.mu.Unlock()
	fresh := newTeller(t, l.Addr().String(), "a", "test", witnessSecret, 0)
	fresh.answers(t, "a witness of an older version", "")
	if _, byTLS, knows := fresh.link.State(); byTLS || knows != "" {
		t.Errorf("by TLS %v, knows %q", byTLS, knows)
	}
	a.link.Address = l.Addr().String()
	a.link.t.conn.Close()
	a.answers(t, "one that has spoken TLS and does not any more", "TLS with the witness w")
}

// oldMaster queries like a master without TLS.
func oldMaster(conn *wire.Line, a *teller, secret string) error {
	frames := event.NewFrameReader(conn, maxWitnessFrame)
	var said wire.Transcript
	if err := wire.Write(conn, tagWitness, value.DictOf("cluster", a.link.Master.Cluster, "id", a.link.Master.ID, "nonce", wire.Nonce()), &said); err != nil {
		return err
	}
	_, hello, err := expectOf(frames, tagWitness)
	if err != nil {
		return err
	}
	said.Add(hello)
	if err := wire.Write(conn, tagWitnessProof, value.DictOf("proof", said.Proof(secret, labelMaster)), &said); err != nil {
		return err
	}
	if _, _, err = expectOf(frames, tagWitnessProof); err != nil {
		return err
	}
	t, err := newTalk(conn, frames, secret, said)
	if err != nil {
		return err
	}
	if err := t.say("m", value.DictOf("tidings", Update{Secret: "a secret by way of no TLS"}.dict())); err != nil {
		return err
	}
	if d, err := t.hear("w"); err != nil || d.Has("secret") {
		return errors.Join(err, fmt.Errorf("without TLS it learns: %v", d))
	}
	// The request of versions before the voters agreed by raft.
	if err := t.say("m", value.DictOf("holder", "b", "token", int64(7), "voters", lease.Fingerprint([]string{"w", "b", "a"}))); err != nil {
		return err
	}
	d, err := t.hear("w")
	if err == nil && d.Str(fieldWhy) != newVoter {
		err = fmt.Errorf("%v", d)
	}
	return err
}

// FuzzUpdate: an update is applied within bounds, or rejected.
func FuzzUpdate(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	pairs, err := clustertest.Keys()
	if err != nil {
		f.Fatal(err)
	}
	good := Update{Secret: witnessSecret, SecretFrom: time.UnixMilli(5), Members: map[string]string{"a": string(pairs[0].Public().PEM())}, Tls: true}
	for _, d := range []*value.Dict{good.dict(), value.DictOf("secret", 1, "members", "a"),
		value.DictOf("secret", witnessPrefix+strings.Repeat("\xff", keys.MinSecret), "secret_from", int64(5), "members",
			value.DictOf("a", string(pairs[0].Public().PEM()))),
		value.DictOf("members", value.DictOf("../a", []byte{1}))} {
		b, err := msgpack.Marshal(d, msgpack.NewSpec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := msgpack.Limits{Items: 512, Bytes: maxFrame, Depth: 8}.UnmarshalTyped(b)
		d, _ := v.(*value.Dict)
		if err != nil {
			return
		}
		news, err := readUpdate(d)
		if err != nil {
			return
		}
		if len(news.Secret) < keys.MinSecret || len(news.Secret) > keys.MaxSecret || len(news.Members) == 0 || len(news.Members) > maxMasters {
			t.Fatalf("taken: %+v", news)
		}
		a, err := openState(filepath.Join(t.TempDir(), knownFile), Secret(witnessSecret), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.learn(news, time.Now()); err != nil {
			t.Fatal(err)
		}
		again, err := openState(a.path, Secret(witnessSecret), "")
		if err != nil {
			t.Fatal(err)
		}
		if was, _, _ := a.terms(); again.d.Secret != was || again.names() != a.names() {
			t.Fatalf("%+v is kept as %+v", a.d, again.d)
		}
	})
}

// TestCheckLive: the self-check of a witness fails when the loop of its voter hangs, and not because
// no master is connected.
func TestCheckLive(t *testing.T) {
	limit := liveness.StepTime
	defer func() { liveness.StepTime = limit }()
	w, stop := runWitness(t, t.TempDir(), witnessSecret)
	defer stop()
	liveness.StepTime = 0
	eventually.True(t, "the loop turns", func() bool { return w.CheckLive(t.Context()) != nil })
	liveness.StepTime = 30 * time.Second
	for range 20 {
		if err := w.CheckLive(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := w.CheckReady(t.Context()); err == nil {
		t.Error("it is ready without a master")
	}
}
