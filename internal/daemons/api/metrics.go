package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"brine/internal/base/metrics"
)

var (
	uptime      = metrics.Family{Name: "brine_api_uptime_seconds", Help: "Time since the start."}
	active      = metrics.Family{Name: "brine_api_requests_active", Help: "Requests at work, streams of events included."}
	connections = metrics.Family{Name: "brine_api_connections", Help: "Open connections."}
	refused     = metrics.Family{Name: "brine_api_connections_refused_total", Kind: metrics.Counter,
		Help: "Connections and forwarded requests beyond the limits."}
	displaced = metrics.Family{Name: "brine_api_connections_displaced_total", Kind: metrics.Counter,
		Help: "Connections without a session that were closed to admit others."}
	sent     = metrics.Family{Name: "brine_api_sent_bytes_total", Kind: metrics.Counter, Help: "Bytes of answers, without streams."}
	requests = metrics.Family{Name: "brine_api_requests_total", Kind: metrics.Counter, Help: "Answers by status.", Labels: []string{"status"}}
	times    = metrics.Family{Name: "brine_api_request_duration_seconds", Kind: metrics.Duration,
		Help: "Time from a request to the end of its answer, streams excluded."}
	masterUp = metrics.Family{Name: "brine_api_master_up", Help: "1 while the master answers."}
)

// Families returns the metrics of salt-api at metrics_address. The resource /metrics on its
// own port has only those whose names begin with brine_api.
func Families() []*metrics.Family {
	return append(metrics.ProcessFamilies(), &uptime, &active, &connections, &refused, &displaced, &sent, &requests, &times, &masterUp,
		metrics.CertificateFamily())
}

func (f *figures) write(p *metrics.Page) {
	p.Set(&uptime, time.Since(f.began).Seconds())
	p.Count(&active, f.stats.active.Load())
	p.Count(&connections, int64(f.admitted.count()))
	p.Count(&refused, f.admitted.refused.Load())
	p.Count(&displaced, f.admitted.evicted.Load())
	p.Count(&sent, f.stats.written.Load())
	p.Times(&times, &f.stats.times)
	f.stats.mu.Lock()
	byStatus := maps.Clone(f.stats.byStatus)
	f.stats.mu.Unlock()
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		p.Count(&requests, byStatus[status], strconv.Itoa(status))
	}
}

// Metrics implements metrics.Daemon.
func (a *Server) Metrics(p *metrics.Page) {
	a.figures.write(p)
	p.Bool(&masterUp, a.figures.answers(context.Background()) == nil)
	p.TLS("ssl", a.conf)
}

// CheckLive implements metrics.Daemon: the server answers a request on its own port, with or
// without its master.
func (a *Server) CheckLive(ctx context.Context) error { return a.itself.Check(ctx) }

// askItself sends a request that needs no master, over a new connection.
func (a *Server) askItself(ctx context.Context) error {
	scheme, t := "http", &http.Transport{DisableKeepAlives: true}
	if a.conf != nil {
		// It need not authenticate its own port, whose certificate may have any name.
		scheme, t.TLSClientConfig = "https", &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, scheme+"://"+a.Addr().String()+a.s.Prefix+"/", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// CheckReady implements metrics.Daemon. An API is not ready without its master.
func (a *Server) CheckReady(ctx context.Context) error {
	if err := a.figures.answers(ctx); err != nil {
		return fmt.Errorf("the master does not answer: %w", err)
	}
	return nil
}
