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

// formWord reads a word of a form.
func formWord(text string) any { return yaml.LoadArg(text) }

// statistics tells what Salt's server tells, as far as there is such a thing
// here. Without collect_stats it is an empty map.
func (c *call) statistics() (any, error) {
	if !c.s.Stats {
		return value.NewDict(0), nil
	}
	now := time.Now()
	up := now.Sub(c.began).Seconds()
	total := c.stats.requests.Load()
	return value.DictOf("CherryPy Applications", value.DictOf("Enabled", true, "Current Time", float64(now.UnixMicro())/1e6,
		"Current Requests", c.stats.active.Load(), "Requests/Second", float64(total)/max(up, 1), "Server Version", "Brine "+salt.Version,
		"Start Time", float64(c.began.UnixMicro())/1e6, "Total Bytes Written", c.stats.written.Load(), "Total Requests", total,
		"Uptime", up, "Requests", value.NewDict(0)), "Cheroot HTTPServer "+strconv.Itoa(os.Getpid()), c.transfers(up)), nil
}

// transfers are the numbers of the web server that Salt's runs in. What belongs
// to its pool of threads is 0, since there is none here.
func (c *call) transfers(up float64) *value.Dict {
	accepted := c.stats.accepted.Load()
	return value.DictOf("Enabled", true, "Bind Address", value.Repr(value.Tuple{c.s.Host, int64(c.s.Port)}), "Run time", up, "Accepts", accepted,
		"Accepts/sec", float64(accepted)/max(up, 1), "Queue", 0, "Threads", 0, "Threads Idle", 0, "Socket Errors", 0, "Requests", c.stats.requests.Load(),
		"Bytes Read", 0, "Bytes Written", c.stats.written.Load(), "Work Time", 0, "Read Throughput", 0, "Write Throughput", 0, "Worker Threads", value.NewDict(0))
}

// pulse remembers for a moment whether the master answers, so that however many
// ask /health the master is asked once.
type pulse struct {
	mu   sync.Mutex
	at   time.Time
	dead error
}

const (
	// pulseTime is how long an answer of the master counts.
	pulseTime = time.Second
	// pingTime bounds the wait for it.
	pingTime = 5 * time.Second
)

// health says whether this server and its master work. More of the master is
// told to those who have a token.
func (c *call) health() (any, error) {
	c.alive.mu.Lock()
	defer c.alive.mu.Unlock()
	if time.Since(c.alive.at) > pulseTime {
		limited, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), pingTime)
		defer cancel()
		c.alive.dead, c.alive.at = c.master.Ping(limited), time.Now()
	}
	if c.alive.dead != nil {
		c.status = http.StatusServiceUnavailable
		return value.DictOf("status", "the master does not answer"), nil
	}
	return value.DictOf("status", "ok"), nil
}

// metrics are the same numbers in Prometheus' form.
func (c *call) metrics() (any, error) {
	var b strings.Builder
	row := func(name, kind, help string, v float64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", name, help, name, kind, name, v)
	}
	row("brine_api_uptime_seconds", "gauge", "Time since the start.", time.Since(c.began).Seconds())
	row("brine_api_requests_active", "gauge", "Requests at work, streams of events included.", float64(c.stats.active.Load()))
	row("brine_api_connections", "gauge", "Open connections.", float64(c.admitted.count()))
	row("brine_api_connections_refused_total", "counter", "Connections and forwarded requests beyond the limits.", float64(c.admitted.refused.Load()))
	row("brine_api_connections_displaced_total", "counter", "Connections without a session that were closed to admit others.",
		float64(c.admitted.evicted.Load()))
	row("brine_api_sent_bytes_total", "counter", "Bytes of answers, without streams.", float64(c.stats.written.Load()))
	b.WriteString("# HELP brine_api_requests_total Answers by status.\n# TYPE brine_api_requests_total counter\n")
	c.stats.mu.Lock()
	byStatus := maps.Clone(c.stats.byStatus)
	c.stats.mu.Unlock()
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		fmt.Fprintf(&b, "brine_api_requests_total{status=\"%d\"} %d\n", status, byStatus[status])
	}
	c.write([]byte(b.String()), "text/plain; version=0.0.4; charset=utf-8")
	return nil, nil
}

// openAPI describes the table of resources.
func (c *call) openAPI() (any, error) {
	paths := value.NewDict(len(c.table))
	for _, p := range slices.Sorted(maps.Keys(c.table)) {
		res := c.table[p]
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
		paths.Set(c.s.Prefix+p, methods)
		if res.below == 1 {
			one := methods.Clone()
			one.Set("parameters", value.ListOf(value.DictOf("name", "id", "in", "path", "required", true, "schema", value.DictOf("type", "string"))))
			paths.Set(c.s.Prefix+p+"/{id}", one)
		}
	}
	schemes := value.DictOf("header", value.DictOf("type", "apiKey", "in", "header", "name", "X-Auth-Token"),
		"cookie", value.DictOf("type", "apiKey", "in", "cookie", "name", "session_id"))
	return value.DictOf("openapi", "3.1.0", "info", value.DictOf("title", "Brine salt-api", "version", salt.Version), "paths", paths,
		"components", value.DictOf("securitySchemes", schemes)), nil
}
