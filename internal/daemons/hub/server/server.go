// Package server runs the bus of a federation: a server of NATS that lets masters in by their keys.
package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"brine/internal/base/atomicfile"
	"brine/internal/base/metrics"
	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/daemons/hub"
	"brine/internal/ha/federation"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Server is a node of the bus.
type Server struct {
	o       hub.Options
	log     *slog.Logger
	limited *ratelimit.Log
	nats    *natsserver.Server
	own     string // password of the connection of this process
	conn    atomic.Pointer[nats.Conn]
	opener  *sealed.Opener

	mu    sync.Mutex
	sites map[string]string // fingerprints of accepted keys, by name
	at    time.Time         // time of the list
	fresh bool              // the list was received since the start
	above map[uint64]bool   // clients that are masters above
	no    atomic.Int64      // refused connections
	in    map[uint64]guest  // clients that are sites
}

// guest is a connected client.
type guest struct {
	name, fingerprint string
	accepted          bool
	outdated          bool // its certificate is not valid now: it may only ask for the time
}

const (
	maxPayload = 16 << 20
	// maxConnections bounds the clients, most of which may be unknown.
	maxConnections = 10_000
	listFile       = "sites"
	streamMemory   = 64 << 20
	streamSync     = 10 * time.Second
	maxList        = 16 << 20
	// clocksApart is how much the clocks of a node and a master may differ (sealed).
	clocksApart = 10 * time.Minute
)

// New makes a node; Run serves.
func New(o hub.Options, log *slog.Logger) (*Server, error) {
	s := &Server{o: o, log: log, limited: ratelimit.NewLog(log, 5, 10*time.Second), sites: map[string]string{}, in: map[uint64]guest{}, above: map[uint64]bool{}}
	s.opener = sealed.NewOpener(func(id *sealed.Identity) error {
		if id.Role != sealed.Hub || !slices.Contains(o.Masters, id.Fingerprint) {
			return salt.Errorf(salt.Denied, "the key %s is not in the option masters", id.Fingerprint)
		}
		return nil
	})
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	s.own = hex.EncodeToString(secret)
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make data_dir: %w", err)
	}
	if err := s.readList(); err != nil {
		log.Warn("cannot read the list of sites of before; sites wait until a master sends it", "err", err)
	}
	opts, err := s.options()
	if err != nil {
		return nil, err
	}
	if s.nats, err = natsserver.NewServer(opts); err != nil {
		return nil, salt.Errorf(salt.Invalid, "cannot set up the bus: %w", err)
	}
	s.nats.SetLoggerV2(&natsLog{log: log.With("component", "nats"), causes: ratelimit.Keys{Most: 1000, Every: 10 * time.Minute}}, false, false, false)
	return s, nil
}

func (s *Server) options() (*natsserver.Options, error) {
	host, port, err := hub.SplitAddress(s.o.Listen)
	if err != nil {
		return nil, err
	}
	cert, err := s.certificate(host)
	if err != nil {
		return nil, err
	}
	opts := &natsserver.Options{
		ServerName: s.o.ID, Host: host, Port: port, NoSigs: true, MaxConn: maxConnections, MaxPayload: maxPayload, MaxPending: 4 * maxPayload,
		MaxControlLine: 16 << 10, AlwaysEnableNonce: true, CustomClientAuthentication: s, JetStream: true, StoreDir: s.o.DataDir,
		JetStreamMaxStore: s.o.MaxData, JetStreamMaxMemory: streamMemory, SyncInterval: streamSync, AuthTimeout: 10, TLSTimeout: 10,
		PingInterval: 5 * time.Second, MaxPingsOut: 2, DontListen: false,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	if s.o.ClusterListen == "" {
		return opts, nil
	}
	if err := s.cluster(opts, cert); err != nil {
		return nil, err
	}
	return opts, nil
}

// cluster sets the options by which nodes find each other.
func (s *Server) cluster(opts *natsserver.Options, cert tls.Certificate) error {
	host, port, err := hub.SplitAddress(s.o.ClusterListen)
	if err != nil {
		return err
	}
	ca := s.o.ClusterCA
	if ca == "" {
		ca = s.o.TLSCert
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return salt.Errorf(salt.Invalid, "cluster_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return salt.Errorf(salt.Invalid, "cluster_ca: %s has no certificate in PEM form", ca)
	}
	opts.Cluster = natsserver.ClusterOpts{
		Name: "brine-hub", Host: host, Port: port, Username: "brine-hub", Password: s.o.ClusterSecret, AuthTimeout: 10, TLSTimeout: 10, PoolSize: -1,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS12},
	}
	for _, a := range s.o.ClusterNodes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", User: url.UserPassword("brine-hub", s.o.ClusterSecret), Host: a})
	}
	return nil
}

// CertFile is the certificate that is made in data_dir if none is configured.
const CertFile = "hub.crt"

// certificate reads the configured certificate, or the one in data_dir, which it makes if it is
// missing.
func (s *Server) certificate(host string) (tls.Certificate, error) {
	if s.o.TLSCert != "" {
		c, err := tls.LoadX509KeyPair(s.o.TLSCert, s.o.TLSKey)
		if err != nil {
			return c, salt.Errorf(salt.Invalid, "tls_cert: %w", err)
		}
		return c, nil
	}
	certPath, keyPath := filepath.Join(s.o.DataDir, CertFile), filepath.Join(s.o.DataDir, "hub.key")
	c, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if err := makeCertificate(certPath, keyPath, s.o.ID, append(slices.Clone(s.o.TLSNames), host)); err != nil {
		return c, fmt.Errorf("cannot make a certificate: %w", err)
	}
	s.log.Info("made a certificate; copy it to the masters as federation_ca", "path", certPath)
	return tls.LoadX509KeyPair(certPath, keyPath)
}

// Certificates that are made here are valid between these times: for masters whose clocks are wrong, and
// if the clock was wrong when they were made.
var (
	longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	farOff  = time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
)

func makeCertificate(certPath, keyPath, id string, names []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: id}, NotBefore: longAgo, NotAfter: farOff,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range append(names, id, "localhost", "127.0.0.1", "::1") {
		if ip := net.ParseIP(name); ip != nil {
			if !ip.IsUnspecified() {
				t.IPAddresses = append(t.IPAddresses, ip)
			}
		} else if name != "" {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600, true); err != nil {
		return err
	}
	return atomicfile.Write(certPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644, true)
}

// Addr returns the address where masters connect.
func (s *Server) Addr() net.Addr { return s.nats.Addr() }

// CheckLive returns an error if the bus does not answer.
func (s *Server) CheckLive(ctx context.Context) error {
	c := s.conn.Load()
	if c == nil {
		return nil // it starts
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.FlushWithContext(ctx)
}

// CheckReady implements metrics.Daemon: a node is ready while its bus answers.
func (s *Server) CheckReady(ctx context.Context) error {
	if s.conn.Load() == nil {
		return salt.Errorf(salt.Unavailable, "the bus is not started")
	}
	return s.CheckLive(ctx)
}

// Metrics implements metrics.Daemon.
func (s *Server) Metrics(p *metrics.Page) {
	sites, pending, above := 0, 0, 0
	s.mu.Lock()
	for id := range s.above {
		if s.nats.GetClient(id) == nil {
			delete(s.above, id)
			continue
		}
		above++
	}
	for id, g := range s.in {
		switch {
		case s.nats.GetClient(id) == nil:
			delete(s.in, id)
		case g.accepted:
			sites++
		default:
			pending++
		}
	}
	s.mu.Unlock()
	p.Count(&hub.Connections, int64(above), "above")
	p.Count(&hub.Connections, int64(sites), "site")
	p.Count(&hub.Connections, int64(pending), "pending")
	p.Count(&hub.Nodes, int64(s.nats.NumRoutes()))
	if js, err := s.nats.Jsz(&natsserver.JSzOptions{}); err == nil {
		p.Set(&hub.StreamBytes, float64(js.Store))
	}
	p.Count(&hub.StreamLimit, s.o.MaxData)
	p.Count(&hub.Refused, s.no.Load())
}

// Run serves until ctx ends. It calls ready when the bus accepts connections.
func (s *Server) Run(ctx context.Context, ready func()) error {
	go s.nats.Start()
	for !s.nats.ReadyForConnections(time.Second) {
		if ctx.Err() != nil || !s.nats.Running() {
			break
		}
	}
	defer func() {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}()
	if ctx.Err() != nil {
		return nil
	}
	if !s.nats.Running() {
		return salt.Errorf(salt.Unavailable, "the bus cannot listen on %s: the log has the reason", s.o.Listen)
	}
	c, err := nats.Connect("", nats.InProcessServer(s.nats), nats.UserInfo("brine-hub", s.own), nats.MaxReconnects(-1), nats.Name("brine-hub"))
	if err != nil {
		return fmt.Errorf("cannot use the bus: %w", err)
	}
	defer c.Close()
	s.conn.Store(c)
	if _, err := c.Subscribe(federation.SubjectSites, func(m *nats.Msg) { s.take(m.Data) }); err != nil {
		return err
	}
	ready()
	kept := &streams{s: s}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for wants := 0; ; wants++ {
		s.mu.Lock()
		have := s.fresh
		s.mu.Unlock()
		if !have && wants%5 == 0 {
			_ = c.Publish(federation.SubjectWants, nil) // again in five seconds
		}
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			kept.tend(now)
		}
	}
}

// Check implements server.Authentication: it lets a client in that proves that it has a key, with
// the permissions of that key.
func (s *Server) Check(c natsserver.ClientAuthentication) bool {
	o := c.GetOpts()
	if o.Username == "brine-hub" && subtle.ConstantTimeCompare([]byte(o.Password), []byte(s.own)) == 1 {
		c.RegisterUser(&natsserver.User{Username: o.Username})
		return true
	}
	cert, err := base64.StdEncoding.DecodeString(o.Password)
	if err != nil {
		return s.refuse(c, err)
	}
	sig, err := base64.RawURLEncoding.DecodeString(o.Sig)
	if err != nil {
		return s.refuse(c, err)
	}
	id, current, err := sealed.Connects(cert, c.GetNonce(), sig)
	if err != nil {
		return s.refuse(c, err)
	}
	if id.Role == sealed.Hub {
		if !current {
			return s.refuse(c, salt.Errorf(salt.Invalid, "the certificate of the master above is not valid now: compare its clock with that of this node"))
		}
		if !slices.Contains(s.o.Masters, id.Fingerprint) {
			return s.refuse(c, salt.Errorf(salt.Denied, "the key %s is not in the option masters", id.Fingerprint))
		}
		c.RegisterUser(&natsserver.User{Username: "hub"})
		s.mu.Lock()
		s.above[c.GetID()] = true
		s.mu.Unlock()
		s.log.Info("a master that commands sites has connected", "peer", fmt.Sprint(c.RemoteAddress()))
		return true
	}
	s.mu.Lock()
	g := guest{name: id.Name, fingerprint: id.Fingerprint, accepted: current && s.sites[id.Name] == id.Fingerprint, outdated: !current}
	s.in[c.GetID()] = g
	s.forgetGone()
	s.mu.Unlock()
	publish, subscribe := federation.AllowedPending(id.Fingerprint)
	if g.accepted {
		publish, subscribe = federation.Allowed(id.Name, id.Fingerprint)
	}
	p := &natsserver.Permissions{Publish: &natsserver.SubjectPermission{Allow: publish}, Subscribe: &natsserver.SubjectPermission{Allow: subscribe}}
	c.RegisterUser(&natsserver.User{Username: id.Name, Permissions: p})
	s.log.Info("a site has connected", "site", id.Name, "accepted", g.accepted, "wrong_clock", g.outdated, "peer", fmt.Sprint(c.RemoteAddress()))
	return true
}

func (s *Server) refuse(c natsserver.ClientAuthentication, why error) bool {
	s.no.Add(1)
	s.limited.Log(slog.LevelWarn, "refused a connection", "peer", fmt.Sprint(c.RemoteAddress()), "err", why)
	return false
}

// forgetGone removes clients that are gone. Locked.
func (s *Server) forgetGone() {
	if len(s.in)%64 != 0 {
		return
	}
	for id := range s.in {
		if s.nats.GetClient(id) == nil {
			delete(s.in, id)
		}
	}
}

// take applies a list of sites of a master.
func (s *Server) take(b []byte) {
	m, err := s.opener.Open(b)
	if err == nil && m.Kind != federation.KindSites {
		err = salt.Errorf(salt.Invalid, "it is a %.20q", m.Kind)
	}
	if err == nil {
		err = s.apply(m)
		s.mu.Lock()
		s.fresh = s.fresh || err == nil
		s.mu.Unlock()
	}
	if err != nil {
		s.limited.Log(slog.LevelWarn, "refused a list of sites", "err", err)
		return
	}
	if err := atomicfile.Write(filepath.Join(s.o.DataDir, listFile), b, 0o600, false); err != nil {
		s.limited.Log(slog.LevelError, "cannot store the list of sites", "err", err)
	}
}

func (s *Server) apply(m *sealed.Message) error {
	var in wire.SiteList
	if err := m.Read(&in); err != nil {
		return err
	}
	sites := make(map[string]string, in.Sites.Len())
	for k, v := range in.Sites.All() {
		name, pub := value.Str(k), value.Str(v)
		if sealed.CheckName(name) == nil {
			sites[name] = sealed.Fingerprint(pub)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// An older list was delayed or repeated. A list from the future was made and taken while clocks were
	// wrong: it must not outrank those of a right clock, so that a removed site stays for days.
	if m.At.Before(s.at) && s.at.Sub(steady.Late()) <= clocksApart {
		return nil
	}
	s.sites, s.at = sites, m.At
	// Permissions belong to a connection: who gains or loses them connects again.
	for id, g := range s.in {
		if now := sites[g.name] == g.fingerprint; now != g.accepted && !g.outdated {
			delete(s.in, id)
			if s.nats != nil && s.nats.GetClient(id) != nil {
				s.log.Info("the key of a site was accepted or removed; disconnecting it", "site", g.name, "accepted", now)
				_ = s.nats.DisconnectClientByID(id) // it is gone otherwise
			}
		}
	}
	return nil
}

// readList reads the list of before the last start. Its certificate has expired after a day, so only
// the content of a file that this process has written counts.
func (s *Server) readList() error {
	b, err := os.ReadFile(filepath.Join(s.o.DataDir, listFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || len(b) > maxList {
		return errors.Join(err, salt.Errorf(salt.Invalid, "%s has %d bytes", listFile, len(b)))
	}
	v, err := msgpack.UnmarshalTyped(b)
	if err != nil {
		return err
	}
	var outer wire.Sealed
	var body wire.SealedBody
	d, _ := v.(*value.Dict)
	if err := wire.Decode(d, &outer); err != nil {
		return err
	}
	if v, err = msgpack.UnmarshalTyped(outer.Body); err != nil {
		return err
	}
	d, _ = v.(*value.Dict)
	if err := wire.Decode(d, &body); err != nil {
		return err
	}
	if err := s.apply(&sealed.Message{From: &sealed.Identity{}, Kind: body.Kind, At: time.Unix(0, body.At), Data: body.Data}); err != nil {
		return err
	}
	return nil
}

// natsLog writes the log of the server of NATS. What a client repeats is logged once in a while.
type natsLog struct {
	log    *slog.Logger
	causes ratelimit.Keys
}

// ports are those of clients, which differ between connections.
var ports = regexp.MustCompile(`:[0-9]+`)

func (l *natsLog) Noticef(format string, v ...any) { l.write(slog.LevelInfo, format, v) }
func (l *natsLog) Warnf(format string, v ...any)   { l.limited(slog.LevelWarn, format, v) }
func (l *natsLog) Fatalf(format string, v ...any)  { l.write(slog.LevelError, format, v) }
func (l *natsLog) Errorf(format string, v ...any)  { l.limited(slog.LevelError, format, v) }
func (l *natsLog) Debugf(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l *natsLog) Tracef(string, ...any)           {}

func (l *natsLog) limited(level slog.Level, format string, v []any) {
	// A message about a client begins with its address and a number.
	_, cause, ok := strings.Cut(fmt.Sprintf(format, v...), " - cid:")
	if _, rest, numbered := strings.Cut(cause, " - "); ok && numbered && !l.causes.Admit(ports.ReplaceAllString(rest, ""), time.Now()) {
		return
	}
	l.write(level, format, v)
}

func (l *natsLog) write(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "message of the NATS server", "text", strings.TrimSpace(fmt.Sprintf(format, v...)))
}
