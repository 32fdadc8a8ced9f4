package witness

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/wire"
	"brine/internal/ha/lease"
	"brine/internal/ha/voter"
	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/fuzztest/conversation"
)

// FuzzWitnessTalk sends mutated messages to a witness, from a peer that knows the secret of the
// cluster or does not. Afterwards a master of the cluster still gets answers.
func FuzzWitnessTalk(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	w, stop := runWitness(f, f.TempDir(), witnessSecret)
	defer stop()
	honest := newTeller(f, w.Addr().String(), "a", "test", witnessSecret, 0)
	packet, err := voter.Packet{Group: lease.Fingerprint([]string{"w", "b", "a"}), Start: 1}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	recorded := []*value.Dict{
		value.DictOf("cluster", "test", "id", "b", "nonce", wire.Nonce()),
		value.DictOf("proof", clustertest.Computed, "sig", []byte("x")),
		value.DictOf("tidings", Update{Secret: "a secret that is sent without TLS", Members: map[string]string{"b": "x"}}.dict()),
		aboutLease(f, "b", lease.Query),
		aboutLease(f, "b", lease.Acquire),
		value.DictOf(fieldPacket, packet),
	}
	values := conversation.Values("a", "b", "w", "test", clustertest.Computed, witnessPrefix, strings.Repeat("00", 16))
	for _, p := range conversation.Seeds(len(recorded), values) {
		f.Add(p, true)
		f.Add(p, false)
	}
	f.Fuzz(func(t *testing.T, program []byte, knows bool) {
		secret := Secret(witnessSecret)
		if !knows {
			secret = Secret("another secret")
		}
		// The sender is an older master: without TLS only this code checks each message.
		w.known.mu.Lock()
		w.known.d.TLS = false
		w.known.mu.Unlock()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		before, _, _ := w.known.terms()
		granted := false
		c, hangUp := clustertest.Call(func(conn net.Conn) {
			defer conn.Close()
			_ = w.serve(ctx, conn)
		}, maxWitnessFrame)
		var said wire.Transcript
		var after *talk
		for i, d := range conversation.Mutate(program, recorded, values) {
			conn := &wire.Line{Conn: c, Raw: c}
			if after != nil {
				if after.say("m", d) != nil {
					break
				}
				continue
			}
			tag := tagWitness
			if i > 0 {
				tag = tagWitnessProof
			}
			if d.Str("proof") == clustertest.Computed {
				d.Set("proof", said.Proof(secret, labelMaster))
			}
			if wire.Write(conn, tag, d, &said) != nil {
				break
			}
			reply := c.Next(50 * time.Millisecond)
			got, _, err := wire.Decode(reply)
			if err != nil || got == tagWitnessRefused {
				break
			}
			if got == tagWitness {
				said.Add(reply)
				continue
			}
			if got == tagWitnessProof {
				granted = true
				if after, err = newTalk(conn, nil, secret, said); err != nil {
					t.Fatal(err)
				}
			}
		}
		hangUp()
		if granted && !knows {
			t.Fatal("a peer without the secret is believed")
		}
		if now, _, _ := w.known.terms(); now != before {
			t.Fatal("the secret was replaced without TLS")
		}
		honest.answers(t, "afterwards", "")
	})
}
