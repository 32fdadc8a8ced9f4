// Package migrate is the program `brine migrate`: it checks a Salt installation, and copies a
// master's data (keys, jobs, cached data of minions) from one place to another while masters run.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
	"brine/internal/store/migrate"
)

var command = frame.Command{
	Name: "migrate", Usage: "check|schema|keys|jobs|cache... [options]",
	Doc: "check reports what of a Salt installation Brine does not have, and schema prints the tables of a returner. Otherwise it copies the keys of " +
		"minions, jobs and their returns, or grains, pillar and mine of minions, from one place to another, while masters run. Data in the target " +
		"stays, unless it is an older value of the cache. Run it again to continue after an interruption, and to copy new data. At the end it reads " +
		"everything from the target and compares it. The exit code is 1 if something was not copied or differs, 69 if a server is unreachable.",
	Subs: []frame.Sub{
		{Name: "check", Doc: checkCommand.Doc},
		{Name: "schema", Args: "RETURNER", Doc: schemaCommand.Doc},
		{Name: keys, Doc: "Copies the keys of minions.", Example: "brine migrate keys --from /etc/salt/pki/master --to /srv/salt/pki --key-pair cluster"},
		{Name: jobs, Doc: "Copies jobs and their returns.", Example: "brine migrate jobs --from local_cache:/old/cache --to brine"},
		{Name: values, Doc: "Copies grains, pillar and mine of minions.", Example: "brine migrate cache --from localfs --to redis"},
	},
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "check a Salt installation; copy keys, jobs and caches of a master to another place", Run: run}
}

type options struct {
	frame.Config
	From       string   `flag:"--from" arg:"PLACE" doc:"Source. keys: a pki_dir, or a file that salt-key -P --out=json has written. jobs: brine (the master's own database), local_cache[:CACHEDIR] (Salt's files), or a returner. cache: localfs[:CACHEDIR], redis, etcd, consul, mysql or postgres. Default: what the configuration of --from-config uses."`
	To         string   `flag:"--to" arg:"PLACE" doc:"Target, in the form of --from. This or --to-config is required. Default: what the configuration of --to-config uses."`
	FromConfig string   `flag:"--from-config" arg:"DIR" doc:"Configuration directory of the master whose options describe the source. Default: that of -c."`
	ToConfig   string   `flag:"--to-config" arg:"DIR" doc:"The same for the target. Default, with --to: that of -c."`
	Bank       []string `flag:"--bank" arg:"BANK" doc:"Bank of the cache to copy, with the banks below it; may be given more than once. Default: minions."`
	KeyPair    string   `flag:"--key-pair" arg:"NAME" doc:"With keys: also copy the key pair by which minions know the master, master.pem, under this name: cluster (for cluster_pki_dir) or master."`
	DryRun     bool     `flag:"--dry-run" doc:"Only show what would be copied."`
	Out        string   `flag:"--out --output" arg:"NAME" doc:"Output format: nested, json, yaml and others, as for salt."`
}

func run(ctx context.Context, env *frame.Env, args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "check":
			return runCheck(ctx, env, args[1:])
		case "schema":
			return runSchema(env, args[1:])
		}
	}
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	if text := o.check(inv.Args); text != "" {
		return command.Fail(env, text)
	}
	p := &program{env: env, o: o}
	if err := p.open(inv.Given("config_dir")); err != nil {
		env.Errorf("migrate: %v", err)
		if salt.KindOf(err) == salt.Invalid {
			return config.ExitCode(err)
		}
		return frame.ExitFailure
	}
	defer p.show.Close()
	return p.all(ctx, inv.Args)
}

// The kinds of data to copy.
const (
	things = "keys, jobs or cache"
	keys   = "keys"
	jobs   = "jobs"
	values = "cache"
)

func (o *options) check(what []string) string {
	seen := map[string]bool{}
	for _, w := range what {
		switch {
		case w != keys && w != jobs && w != values:
			return "unknown kind " + w + " of data: use " + things
		case seen[w]:
			return w + " is named twice"
		}
		seen[w] = true
	}
	switch {
	case len(what) == 0:
		return "name what to copy: " + things
	case len(what) > 1 && o.From+o.To != "":
		return "--from and --to work for one kind of data at a time; for several use --from-config and --to-config"
	case o.To == "" && o.ToConfig == "":
		return "name the target with --to or --to-config"
	case o.KeyPair != "" && (!seen[keys] || o.KeyPair != "cluster" && o.KeyPair != "master"):
		return "--key-pair is for keys, and takes cluster or master"
	case len(o.Bank) > 0 && !seen[values]:
		return "--bank is for cache"
	}
	return ""
}

// all copies one kind of data after the other and shows the results.
func (p *program) all(ctx context.Context, what []string) int {
	result := value.NewDict(len(what))
	code := frame.ExitOK
	for _, w := range what {
		reports, err := p.copy(ctx, w)
		p.line.Clear()
		for _, r := range reports {
			result.Set(r.name, p.describe(r.Report))
			if r.Failed > 0 {
				code = frame.ExitFailure
			}
		}
		if err == nil {
			continue
		}
		switch {
		case errors.Is(err, context.Canceled):
			code = frame.ExitInterrupted
		case salt.KindOf(err) == salt.Unavailable:
			code = frame.ExitUnavailable
		default:
			code = frame.ExitFailure
		}
		p.env.Errorf("migrate: %s: %v", w, err)
		break
	}
	if err := p.show.Show(result, "nested", output.Call{}); err != nil {
		p.env.Errorf("migrate: %v", err)
		return frame.ExitFailure
	}
	return code
}

func (p *program) describe(r migrate.Report) *value.Dict {
	copied := "copied"
	if p.o.DryRun {
		copied = "to_copy"
	}
	d := value.DictOf("found", r.Found, copied, r.Copied, "same", r.Same, "kept", r.Kept, "failed", r.Failed)
	if r.Expired > 0 {
		d.Set("expired", int64(r.Expired))
	}
	if !p.o.DryRun {
		d.Set("verified", int64(r.Verified))
	}
	if len(r.Notes) > 0 {
		d.Set("notes", value.Strings(r.Notes))
	}
	return d
}

// pace is the interval between updates of the progress line.
const pace = 100 * time.Millisecond

// progress shows the progress on a terminal.
func progress(line *frame.Line) func(what string, done, total int) {
	begun, last := time.Now(), time.Time{}
	return func(what string, done, total int) {
		now := time.Now()
		if line == nil || now.Sub(last) < pace && done != total {
			return
		}
		last = now
		var b strings.Builder
		b.WriteString(what)
		if total > 0 {
			fmt.Fprintf(&b, ": %d of %d", done, total)
		} else {
			b.WriteString(": looking")
		}
		fmt.Fprintf(&b, ", %s", now.Sub(begun).Truncate(time.Second))
		line.Show(b.String())
	}
}
