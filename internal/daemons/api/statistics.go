package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// formWord parses a form value.
func formWord(text string) any { return yaml.LoadArg(text) }

// figures says how this server and its master do, and describes the API.
type figures struct {
	s        *Settings
	master   Master
	stats    *counters
	admitted *admission
	table    map[string]*resource
	began    time.Time
	alive    pulse
}

// statistics returns Salt's statistics as far as they exist here. Without
// collect_stats it returns an empty map.
func (f *figures) statistics(c *call) (any, error) {
	if !f.s.Stats {
		return value.NewDict(0), nil
	}
	now := time.Now()
	up := now.Sub(f.began).Seconds()
	total := f.stats.requests.Load()
	return value.DictOf("CherryPy Applications", value.DictOf("Enabled", true, "Current Time", float64(now.UnixMicro())/1e6,
		"Current Requests", f.stats.active.Load(), "Requests/Second", float64(total)/max(up, 1), "Server Version", "Brine "+salt.Version,
		"Start Time", float64(f.began.UnixMicro())/1e6, "Total Bytes Written", f.stats.written.Load(), "Total Requests", total,
		"Uptime", up, "Requests", value.NewDict(0)), "Cheroot HTTPServer "+strconv.Itoa(os.Getpid()), f.transfers(up)), nil
}

// transfers are the numbers of the web server in Salt. Those of its thread pool
// are 0.
func (f *figures) transfers(up float64) *value.Dict {
	accepted := f.stats.accepted.Load()
	return value.DictOf("Enabled", true, "Bind Address", value.Repr(value.Tuple{f.s.Host, int64(f.s.Port)}), "Run time", up, "Accepts", accepted,
		"Accepts/sec", float64(accepted)/max(up, 1), "Queue", 0, "Threads", 0, "Threads Idle", 0, "Socket Errors", 0, "Requests", f.stats.requests.Load(),
		"Bytes Read", 0, "Bytes Written", f.stats.written.Load(), "Work Time", 0, "Read Throughput", 0, "Write Throughput", 0, "Worker Threads", value.NewDict(0))
}

// pulse caches for a moment whether the master answers, so that many requests
// to /health cause one request to the master.
type pulse struct {
	mu   sync.Mutex
	at   time.Time
	dead error
}

const (
	// pulseTime is how long an answer of the master is cached.
	pulseTime = time.Second
	// pingTime bounds the wait for it.
	pingTime = 5 * time.Second
)

// health returns whether this server and its master work. Clients with a token
// get details of the master.
func (f *figures) health(c *call) (any, error) {
	f.alive.mu.Lock()
	defer f.alive.mu.Unlock()
	if time.Since(f.alive.at) > pulseTime {
		limited, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), pingTime)
		defer cancel()
		f.alive.dead, f.alive.at = f.master.Ping(limited), time.Now()
	}
	if f.alive.dead != nil {
		c.status = http.StatusServiceUnavailable
		return value.DictOf("status", "the master does not answer"), nil
	}
	return value.DictOf("status", "ok"), nil
}

// metrics returns the same numbers in Prometheus format.
func (f *figures) metrics(c *call) (any, error) {
	var b strings.Builder
	row := func(name, kind, help string, v float64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", name, help, name, kind, name, v)
	}
	row("brine_api_uptime_seconds", "gauge", "Time since the start.", time.Since(f.began).Seconds())
	row("brine_api_requests_active", "gauge", "Requests at work, streams of events included.", float64(f.stats.active.Load()))
	row("brine_api_connections", "gauge", "Open connections.", float64(f.admitted.count()))
	row("brine_api_connections_refused_total", "counter", "Connections and forwarded requests beyond the limits.", float64(f.admitted.refused.Load()))
	row("brine_api_connections_displaced_total", "counter", "Connections without a session that were closed to admit others.",
		float64(f.admitted.evicted.Load()))
	row("brine_api_sent_bytes_total", "counter", "Bytes of answers, without streams.", float64(f.stats.written.Load()))
	b.WriteString("# HELP brine_api_requests_total Answers by status.\n# TYPE brine_api_requests_total counter\n")
	f.stats.mu.Lock()
	byStatus := maps.Clone(f.stats.byStatus)
	f.stats.mu.Unlock()
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		fmt.Fprintf(&b, "brine_api_requests_total{status=\"%d\"} %d\n", status, byStatus[status])
	}
	c.write([]byte(b.String()), "text/plain; version=0.0.4; charset=utf-8")
	return nil, nil
}

// openAPI describes the table of resources.
func (f *figures) openAPI(c *call) (any, error) {
	paths := value.NewDict(len(f.table))
	for _, p := range slices.Sorted(maps.Keys(f.table)) {
		res := f.table[p]
		methods := value.NewDict(2)
		for _, m := range slices.Sorted(maps.Keys(res.do)) {
			responses := value.DictOf("200", value.DictOf("description", "done"))
			op := value.DictOf("summary", res.about)
			if res.auth || res.authPost && m == http.MethodPost {
				op.Set("security", value.ListOf(value.DictOf("header", &value.List{}), value.DictOf("cookie", &value.List{})))
				responses.Set("401", value.DictOf("description", "no session, or no right to do that"))
			}
			if m == http.MethodPost {
				schema := value.DictOf("schema", value.DictOf())
				content := value.NewDict(4)
				for _, kind := range []string{typeJSON, typeYAML, "application/x-www-form-urlencoded", "text/plain"} {
					content.Set(kind, schema)
				}
				op.Set("requestBody", value.DictOf("content", content))
				responses.Set("400", value.DictOf("description", "the body is not understood"))
			}
			op.Set("responses", responses)
			methods.Set(strings.ToLower(m), op)
		}
		paths.Set(f.s.Prefix+p, methods)
		if res.below == 1 {
			one := methods.Clone()
			one.Set("parameters", value.ListOf(value.DictOf("name", "id", "in", "path", "required", true, "schema", value.DictOf("type", "string"))))
			paths.Set(f.s.Prefix+p+"/{id}", one)
		}
	}
	schemes := value.DictOf("header", value.DictOf("type", "apiKey", "in", "header", "name", "X-Auth-Token"),
		"cookie", value.DictOf("type", "apiKey", "in", "cookie", "name", "session_id"))
	return value.DictOf("openapi", "3.1.0", "info", value.DictOf("title", "Brine salt-api", "version", salt.Version), "paths", paths,
		"components", value.DictOf("securitySchemes", schemes)), nil
}
