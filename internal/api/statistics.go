package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"brine/internal/salt"
	"brine/internal/value"
	"brine/internal/yaml"
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
		"Uptime", up, "Requests", value.NewDict(0))), nil
}

// health says that the server works. Nothing is told of the master, for which
// one would need a token.
func (c *call) health() (any, error) { return value.DictOf("status", "ok"), nil }

// metrics are the same numbers in Prometheus' form.
func (c *call) metrics() (any, error) {
	var b strings.Builder
	row := func(name, kind, help string, v float64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", name, help, name, kind, name, v)
	}
	row("brine_api_uptime_seconds", "gauge", "Time since the start.", time.Since(c.began).Seconds())
	row("brine_api_requests_active", "gauge", "Requests at work, streams of events included.", float64(c.stats.active.Load()))
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
