// Package federation joins masters, hot pairs and clusters of several sites by a bus of NATS.
//
// A Site runs in each master of a site, a Hub in the master that commands them. Both are clients of
// the bus, which may be brine-hub or any NATS cluster. Messages are signed from end to end (package
// sealed), so that the bus can neither forge nor change one. A Site and a Hub keep what the other
// end has not confirmed on their own disks (book), and repeat it: the bus, and the streams in which
// it stores what no client receives at present, may lose everything.
//
//	Hub.Issue ── brine.cmd.SITE ──────────► Site ► local job with the same id
//	    ▲ ◄───── brine.up.SITE: stored, returns, presence, events ──┤
//	    │ ◄───── brine.sum.SITE: summaries ─────────────────────────┘
//	    └──────► brine.down.SITE: confirmed, ask
package federation

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/net/sealed"
)

// Subjects of the bus. Those with a site end with its name.
const (
	subjectCommand = "brine.cmd."   // commands for a site; in the stream of commands
	subjectDown    = "brine.down."  // other messages for a site
	subjectUp      = "brine.up."    // messages of a site
	subjectSummary = "brine.sum."   // summaries of a site; in the stream of summaries
	subjectKept    = "brine.kept."  // what the streams kept for a site, or for keptHub
	subjectAll     = "brine.all"    // messages for all sites
	subjectHello   = "brine.hello." // from a site that is not accepted; ends with a hash of its key
	subjectClock   = "brine.clock." // the time, for one that greets; ends with a hash of its key
	// SubjectSites is the list of accepted sites, for brine-hub; SubjectWants asks for it.
	SubjectSites = "brine.admin.sites"
	SubjectWants = "brine.admin.wants"
	subjectPeers = "brine.admin.peers" // between the masters of a cluster above

	keptHub       = "HUB+" // no name of a site
	commandStream = "BRINE_COMMANDS"
	summaryStream = "BRINE_SUMMARIES"
	siteConsumer  = "site-"
	hubConsumer   = "hub"
)

// Kinds of messages.
const (
	kindCommand   = "command"
	kindStored    = "stored"
	kindReturns   = "returns"
	kindSummary   = "summary"
	kindConfirmed = "confirmed"
	kindPresence  = "presence"
	kindAsk       = "ask"
	kindForgotten = "forgotten"
	kindRecall    = "recall"
	kindEvent     = "event"
	kindClock     = "clock"
	kindJob       = "job"
	kindKey       = "key"
	kindKeys      = "keys"
	// KindSites is the list of accepted sites.
	KindSites = "sites"
	kindHello = "hello"
)

// Allowed returns what a site may publish and receive.
func Allowed(site, fingerprint string) (publish, subscribe []string) {
	return []string{helloSubject(fingerprint), subjectUp + site, subjectSummary + site, "$JS.ACK." + commandStream + "." + siteConsumer + site + ".>"},
		[]string{subjectCommand + site, subjectDown + site, subjectKept + site, subjectAll, clockSubject(fingerprint)}
}

// AllowedPending returns what a site may publish and receive that is not accepted yet, or whose
// clock is wrong.
func AllowedPending(fingerprint string) (publish, subscribe []string) {
	return []string{helloSubject(fingerprint)}, []string{clockSubject(fingerprint)}
}

func helloSubject(fingerprint string) string {
	return subjectHello + strings.ReplaceAll(fingerprint, ":", "")
}

func clockSubject(fingerprint string) string {
	return subjectClock + strings.ReplaceAll(fingerprint, ":", "")
}

// BusOptions are how a master reaches the bus.
type BusOptions struct {
	URLs []string
	// CAFile has the certificates that the servers' certificates must be signed by, or those
	// certificates themselves; "" means those of the system.
	CAFile string
	// Credentials is a file of NATS credentials, for a bus that is not brine-hub.
	Credentials string
}

// dial connects in the background, and again whenever the connection is lost. news is called after
// each connection.
func dial(o BusOptions, name string, s *sealed.Sealer, news func(), log *slog.Logger) (*nats.Conn, error) {
	limited := ratelimit.NewLog(log, 3, time.Minute)
	opts := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(), nats.NoEcho(),
		// The nodes advertise the addresses of their own network, which sites may not reach, or reach around a firewall.
		nats.IgnoreDiscoveredServers(),
		nats.ReconnectWait(200 * time.Millisecond), nats.ReconnectJitter(200*time.Millisecond, 500*time.Millisecond),
		nats.Timeout(5 * time.Second), nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				limited.Log(slog.LevelWarn, "lost the connection to the hub; reconnecting", "err", err)
			}
		}),
		nats.ConnectHandler(func(c *nats.Conn) { log.Info("connected to the hub", "url", c.ConnectedUrlRedacted()); news() }),
		nats.ReconnectHandler(func(c *nats.Conn) { log.Info("connected to the hub again", "url", c.ConnectedUrlRedacted()); news() }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			limited.Log(slog.LevelWarn, "cannot connect to the hub; retrying", "urls", strings.Join(o.URLs, ","), "err", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			limited.Log(slog.LevelWarn, "the hub reported an error", "subject", subject, "err", err)
		}),
	}
	if o.Credentials != "" {
		if err := checkCredentials(o.Credentials); err != nil {
			return nil, err
		}
		opts = append(opts, nats.UserCredentials(o.Credentials))
	} else {
		opts = append(opts, nats.Nkey("brine", s.Nonce), nats.UserInfoHandler(func() (string, string) {
			cert, err := s.Certificate()
			if err != nil {
				log.Error("cannot make a certificate for the hub", "err", err)
			}
			return name, base64.StdEncoding.EncodeToString(cert)
		}))
	}
	if o.CAFile != "" {
		pool, err := readCAs(o.CAFile)
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}))
	}
	c, err := nats.Connect(strings.Join(o.URLs, ","), opts...)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "federation_urls: %w", err)
	}
	return c, nil
}

// checkCredentials reads a file of credentials, which is read again for each connection.
func checkCredentials(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return salt.Errorf(salt.Invalid, "federation_credentials: %w", err)
	}
	defer clear(b)
	_, err = nkeys.ParseDecoratedJWT(b)
	if err == nil {
		var key nkeys.KeyPair
		if key, err = nkeys.ParseDecoratedUserNKey(b); err == nil {
			key.Wipe()
		}
	}
	if err != nil {
		return salt.Errorf(salt.Invalid, "federation_credentials: %s has no JWT and key of a user, as nsc writes them: %w", path, err)
	}
	return nil
}

func readCAs(path string) (*x509.CertPool, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "federation_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, salt.Errorf(salt.Invalid, "federation_ca: %s has no certificate in PEM form", path)
	}
	return pool, nil
}

// Limits of the streams. They are copies, so what they drop is sent again.
const (
	streamBytes = 256 << 20
	streamAge   = 24 * time.Hour
)

// makeStreams makes the streams and consumers of a hub and its sites. A bus without JetStream is
// used without them.
func makeStreams(c *nats.Conn, replicas int, sites []string) error {
	js, err := c.JetStream(nats.MaxWait(5 * time.Second))
	if err != nil {
		return err
	}
	for name, subject := range map[string]string{commandStream: subjectCommand, summaryStream: subjectSummary} {
		if _, err := js.StreamInfo(name); err == nil {
			continue
		} else if !errors.Is(err, nats.ErrStreamNotFound) {
			return err
		}
		if _, err := js.AddStream(&nats.StreamConfig{
			Name: name, Subjects: []string{subject + "*"}, MaxAge: streamAge, MaxBytes: streamBytes, Discard: nats.DiscardOld, Storage: nats.FileStorage,
			Replicas: replicas, Duplicates: 2 * time.Minute,
		}); err != nil {
			return fmt.Errorf("cannot make the stream %s with %d MiB and %d copies (federation_replicas): %w", name, streamBytes>>20, replicas, err)
		}
	}
	consumer := func(stream, name, subject, to string) error {
		if _, err := js.ConsumerInfo(stream, name); err == nil || !errors.Is(err, nats.ErrConsumerNotFound) {
			return err
		}
		_, err := js.AddConsumer(stream, &nats.ConsumerConfig{
			Durable: name, DeliverSubject: to, FilterSubject: subject, AckPolicy: nats.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: 10,
			DeliverPolicy: nats.DeliverAllPolicy, MaxAckPending: 1000,
		})
		return err
	}
	for _, site := range sites {
		if err := consumer(commandStream, siteConsumer+site, subjectCommand+site, subjectKept+site); err != nil {
			return err
		}
	}
	return consumer(summaryStream, hubConsumer, subjectSummary+"*", subjectKept+keptHub)
}

// acknowledge tells the stream that a kept message has been handled.
func acknowledge(c *nats.Conn, m *nats.Msg) {
	if strings.HasPrefix(m.Reply, "$JS.ACK.") {
		_ = c.Publish(m.Reply, []byte("+ACK")) // repeated otherwise
	}
}
