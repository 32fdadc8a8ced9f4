package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"encoding/json"

	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// shows creates a certificate signed by a key, with a key of its own.
func shows(t *testing.T, by *crypt.PrivateKey, id string, from, to time.Time) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"test"}, CommonName: id}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), by.Signer())
	must(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// intrude claims to be a peer of a master, and returns the master's last answer.
func intrude(t *testing.T, at *node, id string, cert *tls.Certificate) string {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	conn, err := tls.Dial("tcp", net.JoinHostPort(at.Host, fmt.Sprint(poolPort)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	say := func(tag string, pairs ...any) {
		b, err := msgpack.Marshal(value.DictOf(pairs...), msgpack.NewSpec)
		must(t, err)
		conn.Write(event.Frame(event.Body(tag, b)))
	}
	say("brine/cluster/hello", "nonce", "00", "facts", value.DictOf("id", id, "cluster", "test"))
	frames := event.NewFrameReader(conn, 1<<20)
	for {
		body, err := frames.Next()
		if err != nil {
			return err.Error()
		}
		tag, raw, _ := event.SplitBody(body)
		v, err := msgpack.UnmarshalTyped(raw)
		must(t, err)
		d, _ := v.(*value.Dict)
		if tag != "brine/cluster/reply" {
			return d.Str("reason")
		}
		say("brine/cluster/key", "key", []byte{}, "proof", "", "inc", "1", "sig", make([]byte, 256))
	}
}

// TestIntruders: a peer is refused if it has no certificate, or an expired one, or one of another
// cluster, of a removed member, or of another member, or has only the stolen key of the cluster.
// The log names the peer and the remedy. Silent peers cost little, and do not keep members out.
func TestIntruders(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "").start()
	at, peer := a.masters[0], a.masters[1]
	a.equal(at, 2, map[string]int{"peer": 2})
	late := a.add(daemontest.Host(), at.Host)
	late.Start()
	a.equal(late, 3, map[string]int{"peer": 3})
	ours, err := crypt.LoadPrivate(at.Path("cluster/cluster.pem"), "")
	must(t, err)
	theirs, err := crypt.GenerateKey(2048)
	must(t, err)
	now := time.Now()
	before, after := now.Add(-time.Hour), now.Add(time.Hour)
	if _, errs, code := at.Run(brine, "cluster", "remove", late.Name); code != 0 {
		t.Fatal(errs)
	}
	refused(t, late, `is no member of the cluster \(any more\)`) // while it runs
	for what, c := range map[string]struct {
		cert *tls.Certificate
		id   string
		want string
	}{
		"no certificate": {nil, peer.Name, peer.Name + ` shows no certificate of the cluster: only its members may speak here`},
		"another cluster": {shows(t, theirs, peer.Name, before, after), peer.Name, `the certificate that ` + peer.Name +
			` shows is not of this cluster`},
		"a member that was removed": {shows(t, ours, late.Name, before, after), late.Name,
			late.Name + ` is no member of the cluster (any more) in the eyes of ` + at.Name},
		"ended": {shows(t, ours, peer.Name, before, before.Add(time.Minute)), peer.Name, `the certificate that ` + peer.Name +
			` shows ended at`},
		"another member's":            {shows(t, ours, peer.Name, before, after), late.Name, late.Name + ` shows the certificate of ` + peer.Name},
		"made with the cluster's key": {shows(t, ours, peer.Name, before, after), peer.Name, peer.Name + ` does not have the key that is in`},
		"a path":                      {shows(t, ours, "../x", before, after), "../x", `is the id of no master`},
	} {
		answer := strings.ReplaceAll(intrude(t, at, c.id, c.cert), `"`, "")
		if !strings.Contains(answer, c.want) {
			t.Errorf("%s: it is told %q, not %q", what, answer, c.want)
		}
		eventually.Nil(t, soon, "the log says of "+what, func() error {
			if text := strings.NewReplacer(`\`, "", `"`, "").Replace(at.Log()); !strings.Contains(text, c.want) {
				return errors.New("it does not: " + c.want)
			}
			return nil
		})
	}
	// 200 silent connections do not keep a restarted peer from connecting.
	var silent []net.Conn
	defer func() {
		for _, c := range silent {
			c.Close()
		}
	}()
	for range 200 {
		c, err := net.Dial("tcp", net.JoinHostPort(at.Host, fmt.Sprint(poolPort)))
		if err == nil {
			silent = append(silent, c)
		}
	}
	peer.Kill()
	peer.Start()
	a.equal(peer, 2, map[string]int{"peer": 2})
	if !strings.Contains(at.Log(), "too many unauthenticated connections are open") {
		t.Error("200 silent connections are all taken")
	}
	for _, c := range silent {
		c.SetDeadline(time.Now().Add(60 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a silent connection stays: %v", err)
		}
	}
}

// packets captures the traffic over loopback to and from some addresses at the port for masters,
// until the result is called.
func packets(t *testing.T, hosts []string) func() []byte {
	t.Helper()
	const all = 0x0300 // ETH_P_ALL in network byte order
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, all)
	if err != nil {
		t.Skip("no right to hear packets: ", err)
	}
	lo, err := net.InterfaceByName("lo")
	must(t, err)
	must(t, syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all, Ifindex: lo.Index}))
	must(t, syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Usec: 100_000}))
	// Packets are lost if the buffer is too small.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, 33 /* SO_RCVBUFFORCE */, 64<<20); err != nil {
		t.Log(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan []byte, 1)
	go func() {
		defer syscall.Close(fd)
		var out []byte
		buf := make([]byte, 1<<17)
		for {
			n, _, err := syscall.Recvfrom(fd, buf, 0)
			if err != nil {
				if ctx.Err() != nil {
					heard <- out
					return
				}
				continue
			}
			p := buf[:n]
			if n < 40 || p[0]>>4 != 4 || p[9] != syscall.IPPROTO_TCP || !slices.Contains(hosts, net.IP(p[16:20]).String()) ||
				!slices.Contains(hosts, net.IP(p[12:16]).String()) {
				continue
			}
			tcp := p[int(p[0]&15)*4:]
			if from, to := int(tcp[0])<<8|int(tcp[1]), int(tcp[2])<<8|int(tcp[3]); from != poolPort && to != poolPort {
				continue
			}
			out = append(out, tcp[int(tcp[12]>>4)*4:]...)
		}
	}()
	return func() []byte { cancel(); return <-heard }
}

// TestNothingInClear: an eavesdropper on the masters' connections, while one joins, jobs are
// published and events fired, finds no plaintext of them and no facts about the cluster.
func TestNothingInClear(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "auto_accept: true\n")
	var hosts []string
	for _, m := range a.masters {
		hosts = append(hosts, m.Host)
	}
	hear := packets(t, hosts)
	a.start()
	a.minion("m0", a.masters[0])
	heard := a.masters[1].Events()
	eventually.Nil(t, soon, "it answers", func() error { return a.masters[1].PingAll(brine, "m0") })
	const planted = "planted-word-of-an-event"
	eventually.Nil(t, soon, "the event is at both", func() error {
		if _, errs, code := a.masters[0].Run(brine, "salt", "m0", "event.send", "my/"+planted); code != 0 {
			return errors.New(errs)
		}
		if !strings.Contains(heard(), planted) {
			return errors.New("not yet")
		}
		return nil
	})
	a.equal(a.masters[1], 2, map[string]int{"key": 1, "return": 1})
	// This string is captured, which proves that the capture works.
	const sign = "sign-of-the-test"
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hosts[1])}}
	conn, err := d.Dial("tcp", net.JoinHostPort(hosts[0], fmt.Sprint(poolPort)))
	must(t, err)
	conn.Write([]byte(sign))
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	conn.Read(make([]byte, 1))
	conn.Close()
	time.Sleep(200 * time.Millisecond) // two rounds of the capture
	got := string(hear())
	if !strings.Contains(got, sign) || len(got) < 4000 {
		t.Fatalf("heard %d bytes, and not what was said for it", len(got))
	}
	pub, err := crypt.LoadPublic(a.masters[0].Path("cluster/cluster.pub"))
	must(t, err)
	for _, word := range []string{planted, "hash_type", "peer_id", "brine/cluster", "test.ping", "RSA", "PUBLIC KEY", "m0.",
		crypt.Fingerprint(pub.PEM(), "sha256")[:20], a.masters[0].Name} {
		if strings.Contains(got, word) {
			t.Errorf("%q is in clear", word)
		}
	}
}

// tlsOf returns the members that have used TLS with a master, and when their certificates expire.
func tlsOf(m *node) (map[string]string, error) {
	out, errs, _ := m.Run(brine, "cluster", "members", "--out=json")
	var d map[string]struct {
		Up, Self, TLS bool
		Certificate   string
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	by := map[string]string{}
	for id, p := range d {
		if !p.Self && p.Up && p.TLS {
			by[id] = p.Certificate
		}
	}
	return by, nil
}

// alike waits until n masters have the same records.
func alike(t *testing.T, at *node, n int) {
	t.Helper()
	eventually.Nil(t, soon, fmt.Sprintf("%d masters of two versions have the same", n), func() error {
		r, err := check(at)
		if err == nil && (len(r.Masters) != n || !r.Equal || r.Counts["key"] != 1 || r.Counts["peer"] != n) {
			err = fmt.Errorf("%+v", r)
		}
		return err
	})
}

// TestUpgradeToTLS: masters of a version without TLS (BRINE_OLD, its program) are upgraded one
// after the other, while a minion answers all. Once all are upgraded they use TLS, and the old
// program is refused.
func TestUpgradeToTLS(t *testing.T) {
	t.Parallel()
	old := os.Getenv("BRINE_OLD")
	if old == "" {
		t.Skip("BRINE_OLD does not name the program of a version without TLS between masters")
	}
	within := []string{"sh", "-c", `shift; exec "` + old + `" "$@"`, "sh"}
	a := newApart(t, 3, "auto_accept: true\n")
	for _, m := range a.masters {
		m.Within = within
	}
	a.start()
	a.minion("m0", a.masters...)
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	for i, m := range a.masters {
		m.Signal(syscall.SIGTERM)
		m.Wait(60 * time.Second)
		m.Within = nil
		m.Start()
		alike(t, m, 3)
		for _, m := range a.masters {
			eventually.Nil(t, soon, fmt.Sprintf("it answers to %s with %d new ones", m.Name, i+1), func() error { return m.PingAll(brine, "m0") })
		}
		if i == 0 { // a master that joins now may have either version
			late := a.add(daemontest.Host(), m.Host)
			late.Within = within
			a.masters = a.masters[:3]
			late.Start()
			alike(t, late, 4)
			if _, errs, code := m.Run(brine, "cluster", "remove", late.Name); code != 0 {
				t.Fatal(errs)
			}
			late.Kill()
		}
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all speak TLS with "+m.Name, func() error {
			by, err := tlsOf(m)
			if err == nil && len(by) != 2 {
				err = fmt.Errorf("%v", by)
			}
			for _, ends := range by {
				at, bad := time.Parse(time.RFC3339, ends)
				if err = errors.Join(err, bad); err == nil && time.Until(at) < 300*24*time.Hour {
					err = errors.New(ends)
				}
			}
			return err
		})
	}
	stranger := a.add(daemontest.Host(), a.masters[0].Host)
	stranger.Within = within
	stranger.Launch()
	if code := stranger.Wait(60 * time.Second); code == 0 || !strings.Contains(stranger.Log(), "install the version of the members there") {
		t.Errorf("an old one joined: %d %s", code, stranger.Log())
	}
	back := a.masters[2]
	back.Signal(syscall.SIGTERM)
	back.Wait(60 * time.Second)
	back.Within = within
	back.Launch()
	refused(t, a.masters[0], back.Name+` has spoken TLS and does not any more`)
}
