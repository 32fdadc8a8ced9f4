package api

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// formWord parses a form value.
func formWord(text string) any { return yaml.LoadArg(text) }

// figures reports statistics and health of this server and its master, and describes the
// API.
type figures struct {
	s        *Settings
	master   Master
	stats    *counters
	admitted *admission
	table    map[string]*resource
	began    time.Time
	alive    pulse
}

// statistics returns Salt's statistics, as far as Brine has them. Without collect_stats it
// returns an empty map.
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

// transfers returns Salt's numbers of the web server. Those of its thread pool are 0.
func (f *figures) transfers(up float64) *value.Dict {
	accepted := f.stats.accepted.Load()
	return value.DictOf("Enabled", true, "Bind Address", value.Repr(value.Tuple{f.s.Host, int64(f.s.Port)}), "Run time", up, "Accepts", accepted,
		"Accepts/sec", float64(accepted)/max(up, 1), "Queue", 0, "Threads", 0, "Threads Idle", 0, "Socket Errors", 0, "Requests", f.stats.requests.Load(),
		"Bytes Read", 0, "Bytes Written", f.stats.written.Load(), "Work Time", 0, "Read Throughput", 0, "Write Throughput", 0, "Worker Threads", value.NewDict(0))
}

// pulse caches for pulseTime whether the master answers, so that many requests to /health
// cause only one request to the master.
type pulse struct {
	mu   sync.Mutex
	at   time.Time
	dead error
}

const (
	// pulseTime is how long an answer of the master is cached.
	pulseTime = time.Second
	// pingTime bounds the wait for that answer.
	pingTime = 5 * time.Second
)

// answers returns an error if the master does not answer.
func (f *figures) answers(ctx context.Context) error {
	f.alive.mu.Lock()
	defer f.alive.mu.Unlock()
	if time.Since(f.alive.at) > pulseTime {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTime)
		defer cancel()
		f.alive.dead, f.alive.at = f.master.Ping(limited), time.Now()
	}
	return f.alive.dead
}

// health returns whether this server and its master work. If the master does not, the
// status code is 503.
func (f *figures) health(c *call) (any, error) {
	if f.answers(c.r.Context()) != nil {
		c.status = http.StatusServiceUnavailable
		return value.DictOf("status", "the master does not answer"), nil
	}
	return value.DictOf("status", "ok"), nil
}

// metrics returns the same numbers in the format of Prometheus.
func (f *figures) metrics(c *call) (any, error) {
	var p metrics.Page
	f.write(&p)
	c.write(p.Bytes(), metrics.Type)
	return nil, nil
}

// openAPI returns the OpenAPI document of the table of resources.
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
		below, parameters := f.s.Prefix+p, []any{}
		for _, name := range []string{"id", "minion"}[:max(res.below, 0)] {
			below += "/{" + name + "}"
			parameters = append(parameters, value.DictOf("name", name, "in", "path", "required", true, "schema", value.DictOf("type", "string")))
			one := methods.Clone()
			one.Set("parameters", value.ListOf(slices.Clone(parameters)...))
			paths.Set(below, one)
		}
	}
	schemes := value.DictOf("header", value.DictOf("type", "apiKey", "in", "header", "name", "X-Auth-Token"),
		"cookie", value.DictOf("type", "apiKey", "in", "cookie", "name", "session_id"))
	return value.DictOf("openapi", "3.1.0", "info", value.DictOf("title", "Brine salt-api", "version", salt.Version), "paths", paths,
		"components", value.DictOf("securitySchemes", schemes)), nil
}
