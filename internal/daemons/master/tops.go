package master

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"brine/internal/base/registry"
	"brine/internal/base/salt"
	"brine/internal/host/proc"
	"brine/internal/net/channel"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

const (
	// maxTops bounds the output of a master_tops program, in bytes.
	maxTops = 8 << 20
	// topsLimit is the timeout of such a program.
	topsLimit = time.Minute
)

// topSource is an external source of top data: the SLS files of a minion by
// environment.
type topSource func(ctx context.Context, id string, conf any) (*value.Dict, error)

// topSources are the sources of the option master_tops.
var topSources = registry.New[topSource]("source of master_tops")

// TopSources returns the names of the sources of master_tops, sorted.
func TopSources() []string { return topSources.Names() }

// tops returns the data of all master_tops sources for the requesting minion.
// Sources that fail are skipped, as in Salt.
func (f *fileRoutes) tops(c *channel.Call) {
	out := value.NewDict(1)
	conf := f.settings.options().MasterTops
	for _, name := range f.topNames(conf) {
		source, ok := topSources.Lookup(name)
		if f.templates.isTop(name) {
			source, ok = func(ctx context.Context, id string, _ any) (*value.Dict, error) {
				return f.templates.pythonTop(ctx, id, name, c.Load)
			}, true
		}
		if !ok {
			f.log.Error("no such source of top data", "master_tops", name)
			continue
		}
		got, err := source(f.ctx(), c.ID, conf.At(name))
		if err != nil {
			f.log.Error("source of top data failed", "master_tops", name, "minion", c.ID, "err", err)
			continue
		}
		value.Update(out, got, true)
	}
	c.Reply(out)
}

// topNames returns the sources of master_tops in the order in which Salt calls them: the user's own
// modules by name, then the others.
func (f *fileRoutes) topNames(conf *value.Dict) []string {
	names := make([]string, 0, conf.Len())
	for k := range conf.All() {
		names = append(names, value.Str(k))
	}
	slices.SortFunc(names, func(a, b string) int {
		if own := f.templates.isTop(a); own != f.templates.isTop(b) {
			if own {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

func init() { topSources.Register("ext_nodes", extNodes) }

// nodesCommand reads the command of ext_nodes.
func nodesCommand(conf any) ([]string, error) {
	command, ok := conf.(string)
	if !ok || command == "" {
		return nil, salt.Errorf(salt.Invalid, "ext_nodes is a %s, not a command", value.TypeName(conf))
	}
	return proc.Split(command)
}

// checkTops returns the errors in the option master_tops that every minion would have. own reports
// whether a source is a module of the user.
func checkTops(conf *value.Dict, own func(name string) bool) (faults []error) {
	for k, v := range conf.All() {
		if check := topChecks[value.Str(k)]; check != nil && !own(value.Str(k)) {
			if err := check(v); err != nil {
				faults = append(faults, err)
			}
		}
	}
	return faults
}

// topChecks return what is wrong with the configuration of a source.
var topChecks = map[string]func(conf any) error{"ext_nodes": func(conf any) error {
	_, err := nodesCommand(conf)
	return err
}}

// extNodes runs a program with the minion's id as last argument. It prints a YAML map: classes,
// a list or a map whose keys are used, and optionally environment.
func extNodes(ctx context.Context, id string, conf any) (*value.Dict, error) {
	args, err := nodesCommand(conf)
	if err != nil {
		return nil, err
	}
	res, err := proc.Run(ctx, proc.Cmd{Args: append(args, id), Dir: "/", Env: os.Environ(), Timeout: topsLimit, MaxOutput: maxTops})
	switch {
	case err != nil:
		return nil, err
	case res.TimedOut:
		return nil, salt.Errorf(salt.Unavailable, "%s has not ended in %v", args[0], topsLimit)
	case res.Code != 0:
		return nil, salt.Errorf(salt.Internal, "%s ended with %d: %.500s", args[0], res.Code, res.Stderr)
	}
	v, err := yaml.Load(res.Stdout, "ext_nodes")
	if err != nil {
		return nil, err
	}
	data, ok := v.(*value.Dict)
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "%s writes a %s, not a map", args[0], value.TypeName(v))
	}
	env := "base"
	if e := data.At("environment"); e != nil {
		env = value.Str(e)
	}
	switch x := data.At("classes").(type) {
	case *value.Dict:
		var names []string
		for k := range x.All() {
			names = append(names, value.Str(k))
		}
		return value.DictOf(env, value.Strings(names)), nil
	case *value.List:
		return value.DictOf(env, x), nil
	}
	return value.NewDict(0), nil
}
