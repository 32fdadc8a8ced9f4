package badinput

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/daemontest"
)

// TestForeignKeyForKnownID repeatedly sends sign-ins with the id of a minion and another key.
func TestForeignKeyForKnownID(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	minion(t, "w", "", m)
	of := func(state string) string {
		b, _ := os.ReadFile(m.Path(masterPKI + "/" + state + "/w"))
		return string(b)
	}
	mine := of("minions")
	session, err := os.ReadFile(m.Path("var/cache/salt/master/sessions/w"))
	must(t, err)
	during(t, m, []string{"w"}, func() {
		evil := newBare(t, m, "w", newKey(t))
		for range 100 {
			if err := evil.signIn(nil); !errors.Is(err, handshake.ErrRejected) {
				t.Errorf("a foreign key: %v", err)
			}
		}
	})
	if of("minions") != mine || of("minions_denied") == "" {
		t.Error("the keys are not as they should be")
	}
	if now, err := os.ReadFile(m.Path("var/cache/salt/master/sessions/w")); err != nil || string(now) != string(session) {
		t.Errorf("the session of the real minion was changed: %v", err)
	}
	m.Logged("sign-in denied: the key differs from the one on file")
	if keys, err := m.Keys(); err != nil || fmt.Sprint(keys["minions"], keys["minions_denied"]) != "[w] [w]" {
		t.Errorf("salt-key -L: %v, %v", keys, err)
	}
}

// TestSignInFlood: many unauthenticated peers sign in at once.
func TestSignInFlood(t *testing.T) {
	t.Parallel()
	const most = 300
	m := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), fmt.Sprintf("gather_job_timeout: 1\nmax_pending_keys: %d\n", most)).Start()
	daemontest.NewMinion(t, brine, "w", []string{m.Host}, "").Start()
	m.Accept("w")
	answers(t, m, "w")
	h := examine(t, m)
	key := newKey(t)
	during(t, m, []string{"w"}, func() {
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Go(func() {
				b := newBare(t, m, "", key)
				defer b.r.Close()
				for i := range 250 {
					b.id = fmt.Sprintf("unknown-%d-%d", c, i)
					b.signer.ID = b.id
					err := b.signIn(nil)
					if !errors.Is(err, handshake.ErrPending) && !errors.Is(err, handshake.ErrFull) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", b.id, err)
					}
				}
			})
		}
		wg.Wait()
	})
	pending, err := os.ReadDir(m.Path(masterPKI + "/minions_pre"))
	if err != nil || len(pending) < most/2 || len(pending) > most+10 {
		t.Errorf("%d keys are pending of at most %d, %v", len(pending), most, err)
	}
	m.Logged("max_pending_keys")
	h.bounded(100)
	h.recovers(60)
}

// TestCommandFlood: unauthenticated peers send commands without a key of the machine.
func TestCommandFlood(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	w := minion(t, "w", "", m)
	h := examine(t, m)
	tags := m.Events()
	file := w.Path("evil")
	user := strings.Repeat("u", 100_000)
	key := newKey(t)
	during(t, m, []string{"w"}, func() {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				b := newBare(t, m, "x", key)
				defer b.r.Close()
				for i := range 100 {
					for _, cmd := range []string{"publish", "runner", "wheel", "mk_token", "get_token", "ping"} {
						if cmd == "mk_token" && i%20 > 0 {
							continue // a refused login deliberately takes a second
						}
						answer,
							err := b.send(clear(value.DictOf("cmd", cmd, "fun", "cmd.run", "tgt", "*", "arg", value.ListOf("touch "+file), "key",
							fmt.Sprint("wrong", i), "user", user)))
						if err != nil {
							t.Errorf("%s: %v", cmd, err)
							return
						}
						if d, ok := answer.(*value.Dict); cmd == "publish" && (!ok || d.Dict("error").Str("name") != "AuthenticationError") {
							t.Errorf("publish: %.200s", value.Repr(answer))
						}
					}
				}
			})
		}
		wg.Wait()
	})
	if _, err := os.Stat(file); err == nil {
		t.Error("a command of an unauthenticated peer was run")
	}
	if strings.Contains(tags(), "salt/run/") {
		t.Error("a runner of an unauthenticated peer was run")
	}
	m.Logged("refused command")
	if n := len(m.Log()); n > 5<<20 {
		t.Errorf("the log has %d bytes", n)
	}
	h.bounded(150)
	h.recovers(60)
}

// TestDeafSubscribers: many subscribers never read while the master publishes much data.
func TestDeafSubscribers(t *testing.T) {
	t.Parallel()
	m := master(t, "transport_opts: {tcp: {publish_port: 24507, ret_port: 24508}, ws: {publish_port: 24509, ret_port: 24510}}\n")
	minion(t, "w", "", m)
	h := examine(t, m)
	text := strings.Repeat("x", 100_000)
	during(t, m, []string{"w"}, func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var subs []transport.Subscription
		for i := range 60 {
			addr := m.Publications()
			s, err := zeromq.New(quiet).Subscribe(ctx, addr, transport.DialOptions{})
			if err != nil {
				t.Errorf("subscriber %d: %v", i, err)
				return
			}
			subs = append(subs, s)
		}
		for range 100 {
			out, errs, code := m.Run(brine, "salt", "--async", "w", "test.echo", text)
			if code != 0 {
				t.Errorf("%d %s %s", code, out, errs)
			}
		}
		for _, s := range subs {
			s.Close()
		}
	})
	h.bounded(150)
	h.recovers(60)
}

// TestDeafClients: clients send requests and never read the answers.
func TestDeafClients(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	minion(t, "w", "", m)
	h := examine(t, m)
	body, err := msgpack.Marshal(clear(value.DictOf("cmd", "ping", "text", strings.Repeat("x", 1<<20))), msgpack.Wire)
	must(t, err)
	request := zmtpRequest(body)
	during(t, m, []string{"w"}, func() {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				c := dial(t, m.Requests())
				defer c.Close()
				c.SetDeadline(time.Now().Add(5 * time.Second))
				c.Write(zmtpHello("DEALER"))
				for range 50 {
					if _, err := c.Write(request); err != nil {
						return
					}
				}
			})
		}
		wg.Wait()
	})
	h.bounded(200)
	h.recovers(60)
}
