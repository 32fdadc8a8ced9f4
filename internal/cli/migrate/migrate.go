// Package migrate is the program `brine migrate`: it copies what a master keeps
// (keys, jobs, what is known of minions) from one place to another, while
// masters run.
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
	Name: "migrate", Usage: "keys|jobs|cache... [options]",
	Doc: "Copies the keys of minions, jobs and what they returned, or grains, pillar and mine of minions, from one place to another, while masters " +
		"run. It adds: what " +
		"the target has stays, unless it is an older value of the cache. Run it again to go on after an interruption, and to get what has come meanwhile. " +
		"Afterwards all is read again at the target and compared. It ends with 1 if something could not be copied or differs, with 69 if a server is " +
		"unreachable.",
}

// Applet is the entry in the table of programs.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "copy keys, jobs and caches of a master to another place", Run: run}
}

type options struct {
	frame.Config
	From       string   `flag:"--from" arg:"PLACE" doc:"Where to copy from. keys: a pki_dir. jobs: brine (the master's own database), local_cache[:CACHEDIR] (Salt's files), or a returner. cache: localfs[:CACHEDIR], redis, etcd, consul, mysql or postgres. Without it, what the configuration of --from-config uses."`
	To         string   `flag:"--to" arg:"PLACE" doc:"Where to copy to, in the same words. This or --to-config must be given: without it, what that configuration uses."`
	FromConfig string   `flag:"--from-config" arg:"DIR" doc:"Directory with the configuration of the master whose options lead to the source. Default: that of -c."`
	ToConfig   string   `flag:"--to-config" arg:"DIR" doc:"The same for the target. Default, with --to: that of -c."`
	Bank       []string `flag:"--bank" arg:"BANK" doc:"Bank of the cache to copy, with those below it; may be given more than once. Default: minions."`
	KeyPair    string   `flag:"--key-pair" arg:"NAME" doc:"With keys: also copy the key pair that minions know the master by, master.pem, under this name: cluster (for cluster_pki_dir) or master."`
	DryRun     bool     `flag:"--dry-run" doc:"Only look, and say what would be copied."`
	Out        string   `flag:"--out --output" arg:"NAME" doc:"Form of the output: nested, json, yaml and others, as that of salt."`
}

func run(ctx context.Context, env *frame.Env, args []string) int {
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

// The things that can be copied.
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
			return "there is no " + w + " to copy: say " + things
		case seen[w]:
			return w + " is named twice"
		}
		seen[w] = true
	}
	switch {
	case len(what) == 0:
		return "say what to copy: " + things
	case len(what) > 1 && o.From+o.To != "":
		return "--from and --to are for one thing at a time; for several name the configurations by --from-config and --to-config"
	case o.To == "" && o.ToConfig == "":
		return "say where to copy to: --to, or --to-config"
	case o.KeyPair != "" && (!seen[keys] || o.KeyPair != "cluster" && o.KeyPair != "master"):
		return "--key-pair is for keys, and takes cluster or master"
	case len(o.Bank) > 0 && !seen[values]:
		return "--bank is for cache"
	}
	return ""
}

// all copies one thing after the other and shows what became of it.
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

// pace is how often the line on a terminal changes.
const pace = 100 * time.Millisecond

// progress shows on a terminal how far it is.
func (p *program) progress() func(what string, done, total int) {
	begun, last := time.Now(), time.Time{}
	return func(what string, done, total int) {
		now := time.Now()
		if p.line == nil || now.Sub(last) < pace && done != total {
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
		p.line.Show(b.String())
	}
}
