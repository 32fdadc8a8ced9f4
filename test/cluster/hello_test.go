package cluster

import (
	"fmt"
	"net"
	"testing"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// TestHelloWithoutTLS: a peer without TLS on the port for masters learns nothing about a cluster
// whose members all use TLS, and gets nothing signed, whichever id it claims.
func TestHelloWithoutTLS(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "").start()
	at, peer := a.masters[0], a.masters[1]
	a.equal(at, 2, map[string]int{"peer": 2})
	for _, id := range []string{"192.0.2.99", peer.Name, at.Name, "", "../x"} {
		for tag, d := range map[string]*value.Dict{
			"brine/cluster/hello":    value.DictOf("nonce", "00", "facts", value.DictOf("id", id, "cluster", "test")),
			"brine/cluster/discover": value.DictOf("id", id, "cluster", "test", "protocol", 1, "nonce", "00", "pub", at.Read("cluster/cluster.pub")),
		} {
			conn, err := net.Dial("tcp", net.JoinHostPort(at.Host, fmt.Sprint(poolPort)))
			must(t, err)
			conn.SetDeadline(time.Now().Add(60 * time.Second))
			b, err := msgpack.Marshal(d, msgpack.NewSpec)
			must(t, err)
			conn.Write(event.Frame(event.Body(tag, b)))
			body, err := event.NewFrameReader(conn, 1<<20).Next()
			conn.Close()
			if err != nil {
				continue // the connection was closed
			}
			tag, raw, _ := event.SplitBody(body)
			v, err := msgpack.UnmarshalTyped(raw)
			must(t, err)
			got, _ := v.(*value.Dict)
			if tag != "brine/cluster/refused" || got.Len() != 2 || !got.Has("reason") || !got.Has("code") {
				t.Errorf("to %q it answers %s with %s", id, tag, value.Str(got))
			}
		}
	}
}
