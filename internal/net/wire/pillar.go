package wire

import "brine/internal/py/value"

// Pillar is the request _pillar, which also sends the grains to the master. Saltenv
// is Env in old requests. Source: Salt's AsyncRemotePillar.
type Pillar struct {
	ID        any         `wire:"id,omitempty"`
	Grains    *value.Dict `wire:"grains"`
	Saltenv   any         `wire:"saltenv,omitempty"`
	Env       any         `wire:"env,omitempty"`
	Pillarenv any         `wire:"pillarenv,omitempty"`
	Override  *value.Dict `wire:"pillar_override,omitempty"`
	Extra     *value.Dict `wire:"extra_minion_data,omitempty"`
	// Ver is "2" if the answer must be encrypted for the minion's key.
	Ver string `wire:"ver,omitempty" max:"16"`
	Cmd string `wire:"cmd,omitempty" max:"64"`
	// External are the sources of an external pillar to use instead of the configured
	// ones.
	External   any         `wire:"ext,omitempty"`
	CleanCache bool        `wire:"clean_cache,omitempty"`
	Rest       *value.Dict `wire:"*"`
}
