// Package metrics changes each metric of real daemons, and checks their liveness and readiness
// while their dependencies fail.
package metrics

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/base/metrics"
	"brine/test/daemontest"
	"brine/test/eventually"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

type node = daemontest.Node

const (
	brine = daemontest.Brine
	port  = 24575

	// soon is the timeout for anything that should happen soon.
	soon = 90 * time.Second
)

// reader is the address of a daemon's metrics.
type reader string

var client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

func (r reader) get(path string) (status int, body string, err error) {
	rep, err := client.Get(fmt.Sprintf("http://%s:%d%s", string(r), port, path))
	if err != nil {
		return 0, "", err
	}
	defer rep.Body.Close()
	b, err := io.ReadAll(rep.Body)
	return rep.StatusCode, string(b), err
}

// health waits for an answer of /livez or /readyz.
func (r reader) health(t *testing.T, what, path string, status int, text string) {
	t.Helper()
	eventually.Nil(t, soon, what+": "+path, func() error {
		code, body, err := r.get(path)
		if err == nil && (code != status || !strings.Contains(body, text)) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// page is the metrics of a daemon: values by name and labels.
type page map[string]float64

func (r reader) page() (page, error) {
	status, body, err := r.get("/metrics")
	if err != nil || status != 200 {
		return nil, fmt.Errorf("%d %w", status, err)
	}
	p := page{}
	for l := range strings.Lines(body) {
		if strings.HasPrefix(l, "#") {
			continue
		}
		i := strings.LastIndexByte(l, ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(l[i+1:]), 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", l, err)
		}
		p[l[:i]] = v
	}
	return p, nil
}

// families returns the names of the families of a page.
func (p page) families() (names []string) {
	for k := range p {
		k, _, _ = strings.Cut(k, "{")
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(k, suffix); ok && strings.HasSuffix(base, "_duration_seconds") {
				k = base
			}
		}
		if !slices.Contains(names, k) {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	return names
}

// row changes a metric.
type row struct {
	// series is the name, with labels if there are any.
	series string
	act    func()
	// want says what it is then; nil: more than before.
	want func(before, now float64) bool
}

func is(v float64) func(_, now float64) bool { return func(_, now float64) bool { return now == v } }
func positive(_, now float64) bool           { return now > 0 }
func recent(_, now float64) bool {
	return now > float64(time.Now().Add(-time.Hour).Unix()) && now <= float64(time.Now().Unix()+1)
}
func later(_, now float64) bool { return now > float64(time.Now().Unix()) }

// change executes the rows one after the other.
func (r reader) change(t *testing.T, rows []row) {
	t.Helper()
	for _, x := range rows {
		start := time.Now()
		before, err := r.page()
		if err != nil {
			t.Fatal(err)
		}
		if x.act != nil {
			x.act()
		}
		if x.want == nil {
			x.want = func(before, now float64) bool { return now > before }
		}
		eventually.Nil(t, soon, "the change of "+x.series, func() error {
			now, err := r.page()
			if err != nil {
				return err
			}
			v, ok := now[x.series]
			if !ok || !x.want(before[x.series], v) {
				return fmt.Errorf("%v before, %v now (%v)", before[x.series], v, ok)
			}
			return nil
		})
		t.Logf("%s after %v", x.series, time.Since(start).Round(100*time.Millisecond))
	}
}

// complete expects the rows to cover every declared family, except those of the process and those
// that other tests change, and expects a daemon to write no others.
func complete(t *testing.T, declared []*metrics.Family, wrote []string, rows []row, elsewhere map[string]string) {
	t.Helper()
	known := map[string]bool{}
	for _, f := range declared {
		known[f.Name] = true
		if f.Help == "" || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: the help text %q is no sentence", f.Name, f.Help)
		}
		if (f.Kind == metrics.Counter) != strings.HasSuffix(f.Name, "_total") && f.Name != "salt_health_minions_total" {
			t.Errorf("%s is a %s", f.Name, f.Kind)
		}
		changed := slices.ContainsFunc(rows, func(r row) bool {
			name, _, _ := strings.Cut(r.series, "{")
			return name == f.Name || name == f.Name+"_count"
		})
		where := elsewhere[f.Name]
		if slices.ContainsFunc(metrics.ProcessFamilies(), func(p *metrics.Family) bool { return p.Name == f.Name }) {
			where = "TestProcess in internal/base/metrics"
		}
		if changed == (where != "") {
			t.Errorf("%s: changed here: %v; elsewhere: %q", f.Name, changed, where)
		}
	}
	for _, name := range wrote {
		if !known[name] {
			t.Errorf("%s is not declared", name)
		}
	}
}

// pings waits until minions answer.
func pings(t *testing.T, m *node, ids ...string) {
	t.Helper()
	eventually.Nil(t, soon, "the minions answer", func() error { return m.PingOnly(brine, ids...) })
}

// run runs a program of a master, which must succeed.
func run(t *testing.T, m *node, program string, args ...string) func() {
	return func() {
		t.Helper()
		if out, errs, code := m.Run(brine, program, args...); code != 0 {
			t.Errorf("%s %v: exit code %d: %s%s", program, args, code, out, errs)
		}
	}
}

var anyCertificate = &tls.Config{InsecureSkipVerify: true}
