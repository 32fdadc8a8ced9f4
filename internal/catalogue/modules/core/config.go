package core

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	actions "brine/internal/catalogue/actions/sdb"
	"brine/internal/py/value"
)

type config struct{}

func init() {
	units.Declare("config", func() fn.Module {
		return fn.Module{Name: "config", Doc: `Options of the minion, and values that grains or pillar set in their place.`, Funcs: []fn.Func{
			fn.Of("get", config{}.get, `Return the value at a path.
			Options come first, then grains, pillar and the master's options in pillar.`,
				fn.Params("key", "default", "delimiter", "merge", "omit_opts", "omit_pillar", "omit_master", "omit_grains"),
				fn.Example("salt '*' config.get pkg:apache")),
			fn.Of("option", config{}.option, `Return the value of a key, from options, grains, pillar or the master's options in pillar.`,
				fn.Example("salt '*' config.option hash_type")),
			fn.Of("merge", config{}.merge, `Return the value of a key, with maps and lists from options, the master and pillar put together.`,
				fn.Example("salt '*' config.merge schedule")),
			fn.Of("dot_vals", config{}.dotVals, `Return the options whose names begin with a word and a dot.`, fn.Example("salt '*' config.dot_vals test")),
			fn.Of("items", test{}.getOpts, `Return all options of the minion.`, fn.Example("salt '*' config.items")),
			fn.Of("backup_mode", config{}.backupMode, `Return the backup mode for files.`, fn.Example("salt '*' config.backup_mode")),
			fn.Of("manage_mode", config{}.manageMode, `Return a file mode in four digits.`, fn.Example("salt '*' config.manage_mode 644")),
			fn.Of("valid_fileproto", config{}.validFileproto, `Say whether files can be named by such an address.`,
				fn.Example("salt '*' config.valid_fileproto salt://path/to/file")),
		}}
	})
}

// builtin holds the values of keys that are not configured.
var builtin = value.DictOf(
	"test.foo", "unconfigured",
	"hosts.file", "/etc/hosts",
	"aliases.file", "/etc/aliases",
	"ca.cert_base_path", "/etc/pki",
	"mongo.db", "salt", "mongo.host", "salt", "mongo.password", "", "mongo.port", 27017, "mongo.user", "",
	"redis.db", "0", "redis.host", "salt", "redis.port", 6379,
	"ldap.uri", "", "ldap.server", "localhost", "ldap.port", "389", "ldap.tls", false, "ldap.no_verify", false,
	"ldap.anonymous", true, "ldap.scope", 2, "ldap.attrs", nil, "ldap.binddn", "", "ldap.bindpw", "",
	"solr.cores", value.ListOf(), "solr.host", "localhost", "solr.port", "8983", "solr.baseurl", "/solr", "solr.type", "master",
	"solr.request_timeout", nil, "solr.backup_path", nil, "solr.num_backups", 1,
	"virt", value.DictOf("tunnel", false, "images", "/srv/salt-images"),
	"docker.exec_driver", "docker-exec",
)

// omit says which sources are ignored.
type omit struct {
	Opts   bool `salt:"omit_opts" doc:"leave out the options" default:"false"`
	Grains bool `salt:"omit_grains" doc:"leave out the grains" default:"false"`
	Pillar bool `salt:"omit_pillar" doc:"leave out the pillar" default:"false"`
	Master bool `salt:"omit_master" doc:"leave out the master's options in pillar" default:"false"`
}

// sources returns the remaining trees in order of precedence.
func (o omit) sources(c *fn.Call) []*value.Dict {
	pillar := c.Pillar.All()
	var all []*value.Dict
	for _, s := range []struct {
		omit bool
		tree *value.Dict
	}{{o.Opts, c.Config.All()}, {o.Grains, c.Grains.All()}, {o.Pillar, pillar}, {o.Master, pillar.Dict("master")}} {
		if !s.omit {
			all = append(all, s.tree)
		}
	}
	return all
}

type configGetArgs struct {
	Key       any    `salt:"key" doc:"path to the value"`
	Default   any    `salt:"default" doc:"what to return if there is none" default:"''"`
	Delimiter string `salt:"delimiter" doc:"what separates the steps of the path" default:":"`
	Merge     string `salt:"merge" doc:"recurse or overwrite: put all sources together first" default:"null"`
	omit
}

func (config) get(ctx context.Context, c *fn.Call, a configGetArgs) (any, error) {
	sources := append(a.sources(c), builtin)
	look := func(s *value.Dict, v any) (any, error) {
		if s == c.Grains.All() {
			return v, nil // on a master they are what a minion says
		}
		return actions.Get(ctx, c, v, false)
	}
	if a.Merge != "" {
		merged := value.NewDict(0)
		for _, s := range slices.Backward(sources) {
			s = value.DeepCopy(s).(*value.Dict)
			if a.Merge == "overwrite" {
				merged.Update(s)
			} else {
				update(merged, s)
			}
		}
		sources = []*value.Dict{merged}
	}
	for _, s := range sources {
		if v, ok := traverse(s, a.Key, a.Delimiter); ok {
			return look(s, v)
		}
	}
	return a.Default, nil
}

type optionArgs struct {
	Default any `salt:"default" doc:"what to return if there is none" default:"null"`
	omit
	OmitAll  bool `salt:"omit_all" doc:"leave out everything but built-in values" default:"false"`
	Wildcard bool `salt:"wildcard" doc:"value is a pattern; return all that match" default:"false"`
}

type optionCallArgs struct {
	Value string `salt:"value" doc:"the key"`
	optionArgs
}

func (config) option(_ context.Context, c *fn.Call, a optionCallArgs) (any, error) {
	return option(c, a.Value, a.optionArgs), nil
}

func option(c *fn.Call, key string, a optionArgs) any {
	if a.OmitAll {
		a.omit = omit{true, true, true, true}
	}
	sources := append(a.sources(c), builtin)
	if !a.Wildcard {
		for _, s := range sources {
			if v, ok := s.Get(key); ok {
				return v
			}
		}
		if a.Default == nil {
			return ""
		}
		return a.Default
	}
	found, glob := value.NewDict(0), target.ParseGlob(key)
	for _, s := range slices.Backward(sources) {
		for k, v := range s.All() {
			if name, ok := k.(string); ok && glob.Match(name) {
				found.Set(k, v)
			}
		}
	}
	if found.Len() == 0 && a.Default != nil {
		return a.Default
	}
	return found
}

type mergeArgs struct {
	Value   string `salt:"value" doc:"the key"`
	Default any    `salt:"default" doc:"what to return if there is none" default:"''"`
	Opts    bool   `salt:"omit_opts" doc:"leave out the options" default:"false"`
	Master  bool   `salt:"omit_master" doc:"leave out the master's options in pillar" default:"false"`
	Pillar  bool   `salt:"omit_pillar" doc:"leave out the pillar" default:"false"`
}

func (config) merge(_ context.Context, c *fn.Call, a mergeArgs) (any, error) {
	pillar := c.Pillar.All()
	var out any
	for _, s := range []struct {
		omit bool
		tree *value.Dict
	}{{a.Opts, c.Config.All()}, {a.Master, pillar.Dict("master")}, {a.Pillar, pillar}} {
		v := s.tree.At(a.Value)
		if s.omit || v == nil {
			continue
		}
		if out = join(out, v); value.TypeName(out) == "str" {
			return out, nil
		}
	}
	if out != nil {
		return out, nil
	}
	if v, ok := builtin.Get(a.Value); ok {
		return v, nil
	}
	return a.Default, nil
}

// join merges two values of the same type; the first takes precedence where
// both have a key.
func join(a, b any) any {
	switch x := a.(type) {
	case nil:
		return b
	case *value.Dict:
		if y, ok := b.(*value.Dict); ok {
			d := y.Clone()
			d.Update(x)
			return d
		}
	case *value.List:
		if y, ok := b.(*value.List); ok {
			return &value.List{Items: slices.Concat(x.Items, y.Items)}
		}
	}
	return a
}

type valueArgs struct {
	Value string `salt:"value" doc:"the word before the dot"`
}

func (config) dotVals(_ context.Context, c *fn.Call, a valueArgs) (*value.Dict, error) {
	found := value.NewDict(0)
	for _, s := range []*value.Dict{c.Pillar.All().Dict("master"), c.Config.All()} {
		for k, v := range s.All() {
			if name, ok := k.(string); ok && strings.HasPrefix(name, a.Value+".") {
				found.Set(k, v)
			}
		}
	}
	return found, nil
}

type backupArgs struct {
	Backup string `salt:"backup" doc:"what to return instead, if not empty" default:""`
}

func (config) backupMode(_ context.Context, c *fn.Call, a backupArgs) (any, error) {
	if a.Backup != "" {
		return a.Backup, nil
	}
	return option(c, "backup_mode", optionArgs{}), nil
}

type modeArgs struct {
	Mode any `salt:"mode" doc:"the mode"`
}

func (config) manageMode(_ context.Context, _ *fn.Call, a modeArgs) (any, error) {
	if a.Mode == nil {
		return nil, nil
	}
	mode := strings.ReplaceAll(value.Str(a.Mode), "0o", "0")
	mode = strings.TrimLeft(strings.Trim(strings.Trim(mode, `"`), "'"), "0")
	return strings.Repeat("0", max(0, 4-len(mode))) + mode, nil
}

type uriArgs struct {
	URI string `salt:"uri" doc:"the address"`
}

func (config) validFileproto(_ context.Context, _ *fn.Call, a uriArgs) (bool, error) {
	u, err := url.Parse(a.URI)
	return err == nil && slices.Contains([]string{"salt", "file", "http", "https", "ftp", "swift", "s3"}, u.Scheme), nil
}
