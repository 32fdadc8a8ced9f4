package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/metrics"
	"brine/internal/daemons/api"
	"brine/internal/daemons/hub"
	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/daemons/syndic"
	"brine/internal/ha/cluster/witness"
	"brine/test/tools"
)

// tables are the tables of docs/metrics.md, in their order.
func tables() [][]*metrics.Family {
	out := [][]*metrics.Family{metrics.ProcessFamilies()}
	for _, all := range [][]*metrics.Family{master.Families(), minion.Families(), api.Families(), syndic.Families(), witness.Families(), hub.Families()} {
		out = append(out, slices.DeleteFunc(all, func(f *metrics.Family) bool { return slices.Contains(out[0], f) }))
	}
	return out
}

// written returns a table as it is in the document.
func written(families []*metrics.Family) string {
	var b strings.Builder
	for _, f := range families {
		labels := make([]string, 0, len(f.Labels))
		for _, l := range f.Labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Kind, strings.Join(labels, " "), f.Help)
	}
	return b.String()
}

const head = "| name | type | labels | meaning |\n|---|---|---|---|\n"

// TestDocument: docs/metrics.md has the tables of all metrics. BRINE_RECORD=1 writes it.
func TestDocument(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "metrics.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(b), head)
	want := tables()
	if len(parts) != len(want)+1 {
		t.Fatalf("%s has %d tables of metrics, want %d", path, len(parts)-1, len(want))
	}
	var out strings.Builder
	out.WriteString(parts[0])
	for i, part := range parts[1:] {
		rest := ""
		if j := strings.Index(part, "\n\n"); j >= 0 {
			rest = part[j+1:]
		}
		out.WriteString(head + written(want[i]) + rest)
	}
	if out.String() == string(b) {
		return
	}
	if os.Getenv("BRINE_RECORD") != "" {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s differs from the code: run BRINE_RECORD=1 go test -run TestDocument ./test/metrics", path)
}

var nameOf = regexp.MustCompile(`\b(brine|salt|process|go)_[a-z_]+`)

// TestBoardAndRules: the dashboard and the alert rules use existing metrics and labels.
func TestBoardAndRules(t *testing.T) {
	known := map[string]*metrics.Family{}
	for _, all := range tables() {
		for _, f := range all {
			known[f.Name] = f
			if f.Kind == metrics.Duration {
				known[f.Name+"_bucket"], known[f.Name+"_sum"], known[f.Name+"_count"] = f, f, f
			}
		}
	}
	dir := filepath.Join("..", "..", "packaging", "prometheus")
	for _, name := range []string{"brine.rules.yml", "brine-board.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		found := nameOf.FindAllString(string(b), -1)
		if len(found) < 15 {
			t.Errorf("%s names %d metrics", name, len(found))
		}
		for _, n := range found {
			if known[n] == nil {
				t.Errorf("%s: there is no metric %s", name, n)
			}
		}
		if strings.HasSuffix(name, ".json") {
			var board struct {
				Panels []struct {
					Title   string
					Targets []struct{ Expr string }
				}
			}
			if err := json.Unmarshal(b, &board); err != nil || len(board.Panels) < 10 {
				t.Errorf("%s: %d panels, %v", name, len(board.Panels), err)
			}
			for _, p := range board.Panels {
				for _, e := range p.Targets {
					if e.Expr == "" {
						t.Errorf("%s: the panel %q has an empty query", name, p.Title)
					}
				}
			}
		}
	}
}

// TestPromtool checks the rules and the metrics of a master with Prometheus' promtool.
func TestPromtool(t *testing.T) {
	promtool := tools.Need(t, "prometheus", "promtool")
	dir := filepath.Join("..", "..", "packaging", "prometheus")
	for _, args := range [][]string{{"check", "rules", filepath.Join(dir, "brine.rules.yml")}, {"test", "rules", filepath.Join(dir, "brine.rules_test.yml")}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	var p metrics.Page
	for _, f := range slices.Concat(tables()...) {
		if f.Kind == metrics.Duration {
			p.Times(f, &metrics.Times{}, f.Labels...)
		} else {
			p.Set(f, 1, f.Labels...)
		}
	}
	c := exec.Command(promtool, "check", "metrics")
	c.Stdin = bytes.NewReader(p.Bytes())
	out, err := c.CombinedOutput()
	// The name is prescribed by the exporter.
	rest := strings.TrimSpace(strings.ReplaceAll(string(out), `salt_health_minions_total non-counter metrics should not have "_total" suffix`, ""))
	if rest != "" || err != nil && len(out) == 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
