package pillar

import (
	"time"

	"brine/internal/py/value"
)

// Options are Salt's options of the pillar, for masters and for minions with
// file_client: local.
type Options struct {
	Roots            any    `salt:"pillar_roots" default:"null" doc:"directories of pillar files by environment; __env__ stands for any other environment, in a directory's name too" change:"live"`
	Env              any    `salt:"pillarenv" default:"null" doc:"the only environment that the pillar is made of; null: all" change:"live"`
	EnvFromSaltenv   bool   `salt:"pillarenv_from_saltenv" default:"false" doc:"take the environment of the pillar from that of the states" change:"live"`
	Strategy         string `salt:"pillar_source_merging_strategy" default:"smart" doc:"how data of several sources become one: smart, recurse, aggregate, overwrite, list or none" change:"live"`
	MergeLists       bool   `salt:"pillar_merge_lists" default:"false" doc:"put lists of several sources together in place of keeping the last one" change:"live"`
	IncludesOverride bool   `salt:"pillar_includes_override_sls" default:"false" doc:"what an SLS includes wins over what it says itself" change:"live"`
	WithOpts         bool   `salt:"pillar_opts" default:"false" doc:"put the master's options into the pillar, under the key master" change:"live"`
	SafeErrors       bool   `salt:"pillar_safe_render_error" default:"true" doc:"keep the reason why an SLS cannot be rendered in the log, where minions do not see it" change:"live"`

	External      any      `salt:"ext_pillar" default:"[]" doc:"further sources of pillar: a list of maps of a source's name and its arguments" change:"live"`
	ExternalFirst bool     `salt:"ext_pillar_first" default:"false" doc:"ask the further sources first, so that pillar files can use what they say" change:"live"`
	OnDemand      []string `salt:"on_demand_ext_pillar" default:"[libvirt, virtkey]" doc:"further sources that a minion may ask for, with pillar.ext" change:"live"`

	Decrypt          any      `salt:"decrypt_pillar" default:"[]" doc:"paths in the pillar that are decrypted at the end, as a list; a map names the renderer" change:"live"`
	DecryptDelimiter string   `salt:"decrypt_pillar_delimiter" default:"':'" doc:"what separates the steps of these paths" change:"live"`
	DecryptDefault   string   `salt:"decrypt_pillar_default" default:"gpg" doc:"renderer that decrypts" change:"live"`
	DecryptRenderers []string `salt:"decrypt_pillar_renderers" default:"[gpg]" doc:"renderers that may decrypt" change:"live"`

	Cache        bool          `salt:"pillar_cache" default:"false" doc:"keep pillars and give them again without making them again" change:"live"`
	CacheTTL     time.Duration `salt:"pillar_cache_ttl" default:"3600" doc:"seconds after which a kept pillar is created again" change:"live"`
	CacheBackend string        `salt:"pillar_cache_backend" default:"disk" doc:"where pillars are kept: disk or memory" change:"live"`
}

// UsualRoots returns Salt's default of pillar_roots, which a tag cannot
// express.
func UsualRoots() *value.Dict {
	return value.DictOf("base", value.ListOf("/srv/pillar", "/srv/spm/pillar"))
}
