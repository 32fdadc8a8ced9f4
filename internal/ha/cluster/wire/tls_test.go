package wire

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func identityOf(t testing.TB, id, cluster string, i int) *Identity {
	t.Helper()
	pairs, err := clustertest.Keys()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewIdentity(id, cluster, pairs[i])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCertificates: a certificate of another cluster, for another id or outside
// of its validity is refused with a message that names the peer.
func TestCertificates(t *testing.T) {
	b := identityOf(t, "192.0.2.1", "main", 0)
	c, err := b.certificate()
	if err != nil {
		t.Fatal(err)
	}
	by := b.sign.Public()
	now := time.Now()
	other := identityOf(t, "192.0.2.1", "main", 1)
	for _, c := range []struct {
		what    string
		cert    *x509.Certificate
		by      *crypt.PublicKey
		cluster string
		id      string
		now     time.Time
		want    string
	}{
		{"good", c.Leaf, by, "main", "192.0.2.1", now, ""},
		{"a clock that is half a year behind", c.Leaf, by, "main", "192.0.2.1", now.AddDate(0, -6, 0), ""},
		{"a clock that is half a year ahead", c.Leaf, by, "main", "192.0.2.1", now.AddDate(0, 6, 0), ""},
		{"none", nil, by, "main", "192.0.2.1", now, "shows no certificate"},
		{"another cluster", c.Leaf, other.sign.Public(), "main", "192.0.2.1", now, "is not of this cluster"},
		{"another name", c.Leaf, by, "second", "192.0.2.1", now, "correct cluster_id there"},
		{"another id", c.Leaf, by, "main", "192.0.2.2", now, `shows the certificate of "192.0.2.1"`},
		{"ended", c.Leaf, by, "main", "192.0.2.1", now.AddDate(2, 0, 0), "correct the clock"},
		{"not begun", c.Leaf, by, "main", "192.0.2.1", now.AddDate(-2, 0, 0), "correct the clock"},
	} {
		code := refusal.Certificate
		if c.want == "correct the clock" {
			code = refusal.Clock
		}
		got := CheckCertificate(c.cert, c.by, c.cluster, c.id, c.now)
		if (got == nil) != (c.want == "") || got != nil &&
			(got.Code != code || !strings.Contains(got.Reason, c.want) || !strings.Contains(got.Reason, c.id)) {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

// TestCertificateIsRenewed long before it expires, and when the clock is set
// back.
func TestCertificateIsRenewed(t *testing.T) {
	b := identityOf(t, "a", "main", 0)
	at := time.Now()
	b.Now = func() time.Time { return at }
	last := b.Expires()
	for _, step := range []struct {
		by  time.Duration
		new bool
	}{{time.Hour, false}, {certificateRenew, true}, {24 * time.Hour, false}, {-10 * certificateTime, true}, {5 * certificateTime, true}} {
		at = at.Add(step.by)
		ends := b.Expires()
		if (ends != last) != step.new || ends.Sub(at) < certificateTime-certificateRenew {
			t.Errorf("after %v: ends %v, before %v", step.by, ends, last)
		}
		if why := CheckCertificate(b.Cert.Leaf, b.sign.Public(), "main", "a", at); why != nil {
			t.Error(why)
		}
		last = ends
	}
}

// TestUnauthenticatedAreFew: the number of unauthenticated connections is limited per address, so
// that other addresses can connect. Authenticated connections do not count.
func TestUnauthenticatedAreFew(t *testing.T) {
	var s ConnSet
	conn := func(host string) net.Conn { return &from{host: host} }
	var first net.Conn
	for i := range maxUnauthenticatedFrom {
		c := conn("192.0.2.1")
		if first == nil {
			first = c
		}
		if !s.Add(c, true) {
			t.Fatalf("connection %d", i)
		}
	}
	if s.Add(conn("192.0.2.1"), true) {
		t.Error("one too many of one address")
	}
	if !s.Add(conn("192.0.2.2"), true) {
		t.Error("another address has no room")
	}
	s.Authenticated(first)
	if !s.Add(conn("192.0.2.1"), true) {
		t.Error("a member counts as unauthenticated")
	}
	for i := range maxInbound {
		s.Add(conn(fmt.Sprint("host", i)), true)
	}
	if len(s.unauthenticated) != maxUnauthenticated || len(s.open) != maxUnauthenticated+1 {
		t.Errorf("%d unauthenticated, %d connections", len(s.unauthenticated), len(s.open))
	}
	for c := range s.open {
		s.Remove(c)
	}
	if len(s.unauthenticated) != 0 {
		t.Errorf("%d closed connections are counted", len(s.unauthenticated))
	}
}

// from is a connection from some address.
type from struct {
	net.Conn
	host string
}

func (f *from) RemoteAddr() net.Addr { return addr(f.host) }

type addr string

func (addr) Network() string { return "tcp" }

func (a addr) String() string { return string(a) + ":1" }

// FuzzAnswer: no first bytes on a connection cause a panic. Without TLS the same bytes are read
// again.
func FuzzAnswer(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	b := identityOf(f, "a", "main", 0)
	f.Add([]byte{RecordHandshake, 3, 1, 0, 5, 1, 0, 0, 1, 3})
	f.Add(event.Frame(event.Body("brine/cluster/hello", []byte{0x80})))
	var hello bytes.Buffer
	c := tls.Client(&half{Conn: clustertest.Drain{}, Writer: &hello}, b.config())
	c.Handshake()
	f.Add(hello.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		l, err := b.Server(t.Context(), &half{Conn: clustertest.Drain{}, Reader: bytes.NewReader(in)})
		if err != nil {
			return
		}
		if got, _ := io.ReadAll(l); l.TLS || !bytes.Equal(got, in) {
			t.Fatalf("TLS %v, %q", l.TLS, got)
		}
	})
}

// half is a connection with separate reader and writer.
type half struct {
	net.Conn
	io.Reader
	io.Writer
}

func (h *half) Read(b []byte) (int, error) {
	if h.Reader == nil {
		return 0, io.EOF
	}
	return h.Reader.Read(b)
}

func (h *half) Write(b []byte) (int, error) {
	if h.Writer == nil {
		return len(b), nil
	}
	return h.Writer.Write(b)
}

// FuzzCertificate: no other certificate is accepted as one of the cluster.
func FuzzCertificate(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	b := identityOf(f, "a", "main", 0)
	by := b.sign.Public()
	good := b.Cert.Certificate[0]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	pairs, _ := clustertest.Keys()
	forged, err := issue(pairs[1], nil, "main", "a", key.Public(), time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(forged)
	f.Fuzz(func(t *testing.T, der []byte) {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		if CheckCertificate(c, by, "main", "a", time.Now()) == nil && !bytes.Equal(c.RawTBSCertificate, b.Cert.Leaf.RawTBSCertificate) {
			t.Fatal("a certificate that the cluster's key did not sign")
		}
	})
}

// BenchmarkFrame measures sending one return to a peer over loopback: in a sealed frame without
// TLS, and with TLS.
func BenchmarkFrame(b *testing.B) {
	ret := make([]byte, 600)
	rand.Read(ret)
	for _, items := range []int{1, 32} {
		for _, by := range []string{"sealed", "tls"} {
			b.Run(fmt.Sprintf("%s/%d", by, items), func(b *testing.B) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				one, two := identityOf(b, "a", "main", 0), identityOf(b, "b", "main", 0)
				came := make(chan *Line, 1)
				go func() {
					conn, err := l.Accept()
					if err == nil {
						a, err := two.Server(context.Background(), conn)
						if err == nil && by == "sealed" {
							a.Conn.Read(make([]byte, 1))
						}
						came <- a
					}
				}()
				raw, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				d := &Line{Conn: raw, Raw: raw}
				if by == "tls" {
					if d, err = one.Client(context.Background(), raw, func(*x509.Certificate) *refusal.Error { return nil }); err != nil {
						b.Fatal(err)
					}
				} else {
					raw.Write([]byte{0})
				}
				a := <-came
				defer a.Close()
				defer d.Close()
				var cipher *crypt.Crypticle
				if by == "sealed" {
					cipher, _ = crypt.NewCrypticle(crypt.NewKey())
				}
				var bytes atomic.Int64
				out := &Session{Count: &bytes, Conn: d, Cipher: cipher, Out: "d"}
				in := &Session{Count: &bytes, Conn: a, Cipher: cipher, In: "d", Frames: event.NewFrameReader(Count(a, new(atomic.Int64)), MaxFrame)}
				list := &value.List{}
				for range items {
					list.Append(ret)
				}
				done := make(chan error, 1)
				go func() {
					for range b.N {
						if _, err := in.Receive(); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
				b.ResetTimer()
				for range b.N {
					if err := out.Send(&Messages{First: 1, Items: list}); err != nil {
						b.Fatal(err)
					}
				}
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*items), "ns/return")
			})
		}
	}
}
