package ha

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
)

// ofCluster returns the configuration file of a master whose cluster the doctor checks, or "" if
// the doctor compares masters instead.
func (o *options) ofCluster(env *frame.Env, args []string) string {
	if len(args) > 1 {
		return ""
	}
	path := config.Path(config.MasterKind, o.Resolve(env), env.Getenv)
	if len(args) == 1 {
		path = args[0]
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			path = filepath.Join(path, string(config.MasterKind))
		} else if err != nil || filepath.Base(path) != string(config.MasterKind) {
			return ""
		}
	} else if _, err := os.Stat(config.Path(config.MinionKind, o.Resolve(env), env.Getenv)); err == nil && !o.Cluster {
		return "" // default: the minion of this machine
	}
	if o.Cluster {
		return path
	}
	tree, err := config.Load(path, config.MasterKind, slog.New(slog.DiscardHandler))
	if err != nil || tree.Values.Str("cluster_id") == "" {
		return ""
	}
	return path
}

// clusterTime is the timeout for the master's queries to all others.
const clusterTime = 3 * time.Minute

// clusterDoctor makes the master running on this machine check its cluster.
func clusterDoctor(ctx context.Context, env *frame.Env, o *options, path string) int {
	// Invalid options, such as an empty secret, prevent the master from starting.
	if _, _, err := config.LoadMaster(path, slog.New(slog.DiscardHandler)); err != nil {
		env.Errorf("ha: %v", err)
		return frame.ExitNoReturn
	}
	d, err := askDoctor(ctx, path)
	if err != nil {
		if salt.KindOf(err) == salt.Unavailable || ctx.Err() != nil {
			env.Errorf("ha: the master configured in %s does not answer: start it, or run this on another member: %v", path, err)
		} else {
			env.Errorf("ha: %v", err)
		}
		return frame.ExitNoReturn
	}
	found := d.List("findings")
	if o.Out == "json" {
		printJSON(env, jsonOf(d))
	} else {
		printFindings(env.Stdout, d)
	}
	if len(found) > 0 {
		return frame.ExitFailure
	}
	return frame.ExitOK
}

func askDoctor(ctx context.Context, path string) (*value.Dict, error) {
	s, err := newSide(path)
	if err != nil {
		return nil, err
	}
	defer s.local.Close()
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	data, err := s.Run(ctx, client.Runner{Fun: "cluster.doctor"}, nil, nil)
	if err != nil {
		return nil, err
	}
	d := data.Dict("return")
	if d == nil || !d.Has("findings") {
		return nil, fmt.Errorf("the master cannot check its cluster: %.1000s", value.Str(data.At("return")))
	}
	return d, nil
}

// clusterFinding is a finding in JSON output.
type clusterFinding struct {
	Check   string `json:"check"`
	Master  string `json:"master,omitempty"` // the affected master; omitted if all are
	Finding string `json:"finding"`
	Fix     string `json:"fix"`
}

type clusterFindings struct {
	Masters  []string         `json:"masters"`
	Checked  []string         `json:"checked"`
	Findings []clusterFinding `json:"findings"`
}

func jsonOf(d *value.Dict) clusterFindings {
	out := clusterFindings{Masters: texts(d, "masters"), Checked: texts(d, "checked"), Findings: []clusterFinding{}}
	for _, it := range d.List("findings") {
		f, _ := it.(*value.Dict)
		out.Findings = append(out.Findings, clusterFinding{f.Str("check"), f.Str("master"), f.Str("finding"), f.Str("fix")})
	}
	return out
}

func texts(d *value.Dict, key string) []string {
	out := []string{}
	for _, it := range d.List(key) {
		out = append(out, value.Str(it))
	}
	return out
}

func printFindings(w io.Writer, d *value.Dict) {
	all := jsonOf(d)
	fmt.Fprintf(w, "Masters: %s\nChecked: %s\n", strings.Join(all.Masters, ", "), strings.Join(all.Checked, ", "))
	check := ""
	for _, f := range all.Findings {
		if f.Check != check {
			fmt.Fprintf(w, "\n%s\n", f.Check)
			check = f.Check
		}
		who := ""
		if f.Master != "" {
			who = f.Master + ": "
		}
		fmt.Fprintf(w, "  %s%s\n    fix: %s\n", who, f.Finding, f.Fix)
	}
	if len(all.Findings) == 0 {
		fmt.Fprintln(w, "\nNo problems found.")
		return
	}
	noun := "findings"
	if len(all.Findings) == 1 {
		noun = "finding"
	}
	fmt.Fprintf(w, "\n%d %s.\n", len(all.Findings), noun)
}
