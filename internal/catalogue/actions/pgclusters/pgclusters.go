// Package pgclusters implements the functions for clusters of PostgreSQL on
// Debian, for the execution module postgres and the states postgres_cluster.
package pgclusters

import (
	"context"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Name names a cluster.
type Name struct {
	Version any    `salt:"version" doc:"version of PostgreSQL"`
	Name    string `salt:"name" doc:"name of the cluster" default:"main"`
}

func (n Name) String() string { return value.Str(n.Version) + "/" + n.Name }

// Wanted is a cluster to create.
type Wanted struct {
	Name
	Port        any `salt:"port" doc:"port; null: the next free one" default:"null"`
	Locale      any `salt:"locale" doc:"locale; null: that of the system" default:"null"`
	Encoding    any `salt:"encoding" doc:"encoding; null: that of the locale" default:"null"`
	Datadir     any `salt:"datadir" doc:"directory of the data" default:"null"`
	GroupAccess any `salt:"allow_group_access" doc:"let the group of the owner read all files" default:"null"`
	Checksums   any `salt:"data_checksums" doc:"have checksums on data pages" default:"null"`
	WALSegsize  any `salt:"wal_segsize" doc:"size of WAL segments, in MB" default:"null"`
}

func run(ctx context.Context, c *fn.Call, words ...string) (*value.Dict, error) {
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(words)}, value.DictOf("python_shell", false))
	d, _ := v.(*value.Dict)
	return d, err
}

// check rejects what the programs would take for options.
func (n Name) check() error {
	return fn.FromHost(host.NoOption("pg_createcluster and pg_dropcluster", value.Str(n.Version), n.Name))
}

// Create implements postgres.cluster_create: false, or what cmd.run_all returns.
func Create(ctx context.Context, c *fn.Call, w Wanted) (any, error) {
	if err := w.check(); err != nil {
		return false, err
	}
	words := []string{"pg_createcluster"}
	add := func(option string, v any) {
		if value.Truth(v) {
			words = append(words, option, value.Str(v))
		}
	}
	add("--port", w.Port)
	add("--locale", w.Locale)
	add("--encoding", w.Encoding)
	add("--datadir", w.Datadir)
	words = append(words, value.Str(w.Version), w.Name.Name)
	if value.Truth(w.GroupAccess) || value.Truth(w.Checksums) || value.Truth(w.WALSegsize) {
		words = append(words, "--") // what follows is for initdb
	}
	if w.GroupAccess == true {
		words = append(words, "--allow-group-access")
	}
	if w.Checksums == true {
		words = append(words, "--data-checksums")
	}
	add("--wal-segsize", w.WALSegsize)
	d, err := run(ctx, c, words...)
	if err != nil || d.Int("retcode") != 0 {
		return false, err
	}
	return d, nil
}

// List returns the clusters: port, status, user, datadir and log by VERSION/NAME.
func List(ctx context.Context, c *fn.Call) (*value.Dict, error) {
	d, err := run(ctx, c, "pg_lsclusters", "--no-header")
	if err != nil {
		return nil, err
	}
	all := value.NewDict(4)
	for line := range strings.SplitSeq(d.Str("stdout"), "\n") {
		f := strings.Fields(line)
		if len(f) != 7 {
			continue
		}
		port, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return nil, fn.Errorf("cannot read the port in the output of pg_lsclusters: %q", line)
		}
		all.Set(f[0]+"/"+f[1], value.DictOf("port", port, "status", f[3], "user", f[4], "datadir", f[5], "log", f[6]))
	}
	return all, nil
}

// Remove implements postgres.cluster_remove: what cmd.run_all returns, and
// changes.
func Remove(ctx context.Context, c *fn.Call, n Name, stop bool) (*value.Dict, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	words := []string{"pg_dropcluster"}
	if stop {
		words = append(words, "--stop")
	}
	d, err := run(ctx, c, append(words, value.Str(n.Version), n.Name)...)
	if err == nil && d.Int("retcode") == 0 {
		d.Set("changes", "Successfully removed cluster "+n.String())
	}
	return d, err
}
