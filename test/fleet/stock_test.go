package fleet

import (
	"testing"

	"brine/internal/daemons/minion"
	"brine/internal/net/channel"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/test/eventually"
)

// TestJobIsKeptForASaltMinion: a minion behaves like stock minions, which send their id when they
// subscribe and do not ask for missed jobs. A job published while it was unreachable is sent to it
// once; a job that it may have received is not sent again.
func TestJobIsKeptForASaltMinion(t *testing.T) {
	for _, tr := range []string{"zeromq", "tcp"} {
		t.Run(tr, func(t *testing.T) {
			m := startMaster(t, "one", tr, nil)
			log, _ := newLog(t, "old1")
			cfg := minion.Config{ID: "old1", PKIDir: shortDir(t), Transport: transportOf(t, tr, log), Keysize: 2048}
			defaults(t, &cfg.Options, &cfg.Handshake)
			signer, _, err := minion.LoadSigner(cfg, log)
			if err != nil {
				t.Fatal(err)
			}
			c, err := channel.NewClient(channel.ClientConfig{
				Signer: signer, Transport: cfg.Transport, SubscribeDial: transport.DialOptions{Identity: "old1"},
				AuthTimeout: cfg.Options.AuthTimeout, RequestTimeout: cfg.Options.RequestTimeout, Log: log,
			})
			if err != nil {
				t.Fatal(err)
			}
			c.SetAddress(m.req)
			_ = c.SignIn(t.Context()) // the key is pending
			m.accept("old1")
			if err := c.SignIn(t.Context()); err != nil {
				t.Fatal(err)
			}
			publish := func(arg string) string {
				rep := m.Publish(value.DictOf("fun", "test.echo", "arg", value.ListOf(arg), "tgt", "old*", "tgt_type", "glob", "user", "root",
					"kwargs", value.DictOf("expire", 3600)))
				return rep.Dict("load").Str("jid")
			}
			subscribe := func() *channel.Subscription {
				t.Helper()
				sub, err := c.Subscribe(t.Context(), m.pub)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(sub.Close)
				return sub
			}
			next := func(sub *channel.Subscription, jid string) *value.Dict {
				t.Helper()
				job, err := sub.Receive(t.Context())
				if err != nil || job.Str("jid") != jid {
					t.Fatalf("got %s, %v, want job %s", value.Repr(job), err, jid)
				}
				return job
			}
			present := func(want int) {
				t.Helper()
				eventually.Nil(t, eventually.Limit, "the master sees who is connected", func() error {
					n := 0
					for _, p := range m.Subscribers() {
						if p.ID != "" || p.Claimed != "" {
							n++
						}
					}
					if n != want {
						return errNotYet
					}
					return nil
				})
			}
			kept := publish("kept")
			sub := subscribe()
			if job := next(sub, kept); value.Repr(job.At("tgt")) != "['old1']" || job.Str("tgt_type") != "list" {
				t.Errorf("it came as %s", value.Repr(job))
			}
			had := publish("had") // and no return of either
			next(sub, had)
			sub.Close()
			present(0)
			last := publish("last")
			sub = subscribe()
			next(sub, last) // nothing before it
			present(1)
			next(sub, publish("end"))
		})
	}
}
