package wire

import "brine/internal/py/value"

// HotQuestion is a question between hot masters, before it is encrypted.
type HotQuestion struct {
	From  string      `wire:"from" max:"1024"`
	Epoch string      `wire:"epoch" max:"64"`
	Nonce string      `wire:"nonce" max:"64"`
	Ask   string      `wire:"ask" max:"64"`
	Arg   *value.Dict `wire:"arg,omitempty"`
}

// HotAnswer is its answer. Stale says that the question named another epoch and was not answered.
type HotAnswer struct {
	ID    string      `wire:"id" max:"1024"`
	Epoch string      `wire:"epoch" max:"64"`
	Stale bool        `wire:"stale,omitempty"`
	Error string      `wire:"error,omitempty" max:"4096"`
	Data  *value.Dict `wire:"data,omitempty"`
}

// HotRequest is a request of another hot master.
type HotRequest struct {
	Data []byte `wire:"data,omitempty"`
}

// HotPicture is what a hot master shows of itself. An unchanged part is left out.
type HotPicture struct {
	Version string `wire:"version,omitempty" max:"256"`
	Since   any    `wire:"since,omitempty"`
	// Load is a MasterLoad.
	Load *value.Dict `wire:"load,omitempty"`
	// Minions are the connected minions, Links their revision.
	Links   string `wire:"links,omitempty" max:"64"`
	Minions any    `wire:"minions,omitempty"`
	// Names are what minions call the master.
	Names any `wire:"names,omitempty"`
	// Keys are [id, state, fingerprint], KeysAt their revision.
	KeysAt string `wire:"keys_at,omitempty" max:"64"`
	Keys   any    `wire:"keys,omitempty"`
	// Boot and Runs count the changes of the last runs of states.
	Boot string `wire:"boot,omitempty" max:"64"`
	Runs any    `wire:"runs,omitempty"`
	More bool   `wire:"more,omitempty"`
	// States are the last runs, as JSON.
	States []byte `wire:"states,omitempty"`
	// Saved is what users saved, as JSON, SavedAt its revision.
	SavedAt string `wire:"saved_at,omitempty" max:"64"`
	Saved   any    `wire:"saved,omitempty"`
}

// HotFiles asks for the hashes of files.
type HotFiles struct {
	Saltenv string `wire:"saltenv" max:"1024"`
	Paths   any    `wire:"paths,omitempty"`
}

// HotDecision accepts, rejects or deletes keys at another hot master. Keys are [id, fingerprint].
type HotDecision struct {
	Action string `wire:"action" max:"16"`
	User   string `wire:"user" max:"1024"`
	Keys   any    `wire:"keys,omitempty"`
}

// WheelDone is the result of a wheel function.
type WheelDone struct {
	Success any `wire:"success,omitempty"`
	Return  any `wire:"return,omitempty"`
}

// PillarOf are the arguments of a console that shows a pillar.
type PillarOf struct {
	Minion any `wire:"minion,omitempty"`
}
