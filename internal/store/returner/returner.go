// Package returner stores jobs and returns on external servers, in the layouts of Salt's returners of the
// same names: redis, etcd, mysql, pgjsonb, postgres and postgres_local_cache. A master uses one as job cache
// besides its own store, a minion sends returns to one. Both can share a server with Salt.
package returner

import (
	"context"
	"errors"
	"strings"
	"time"

	"brine/internal/base/registry"
	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// Returner is one server. An error of kind Unavailable means that it is unreachable, any other that
// it rejected the data. Storing the same data again has no effect. It is safe for concurrent use.
type Returner interface {
	// Return stores a minion's return: a dict with id, jid, fun, return …
	Return(ctx context.Context, ret *value.Dict) error
	// SaveLoad stores a published load, whose Minions are the targeted ids.
	SaveLoad(ctx context.Context, jid string, load *value.Dict) error
	// Load returns a published load, nil if the job is unknown.
	Load(ctx context.Context, jid string) (*value.Dict, error)
	// Returns returns dicts by minion with return and, if stored, retcode, success, fun …
	Returns(ctx context.Context, jid string) (map[string]*value.Dict, error)
	// Jobs returns the loads of all jobs by id.
	Jobs(ctx context.Context) (map[string]*value.Dict, error)
	// Events stores events, or returns ErrNoEvents.
	Events(ctx context.Context, events []Event) error
	// Clean removes data older than keep, or moves it to other tables.
	Clean(ctx context.Context, keep time.Duration, archive bool) error
	Close() error
}

// Event is an event of a master's bus.
type Event struct {
	Tag  string
	Data any
}

// ErrNoEvents means that a returner stores no events, as in Salt.
var ErrNoEvents = errors.New("this returner stores no events")

// Config is the configuration of all returners.
type Config struct {
	// Source has the options.
	Source remote.Source
	// Alternative is the job's ret_config, Keywords its ret_kwargs.
	Alternative string
	Keywords    *value.Dict
	// Keep is how long jobs are stored if the server expires them itself; 0: for ever.
	Keep time.Duration
	// Timeout bounds each request to the server.
	Timeout time.Duration
	// MasterID is stored with events.
	MasterID string
	// History means that the data is old and must not replace the last job of a minion or function.
	History bool
}

func (c Config) settings(prefix string) remote.Settings {
	return c.Source.ForReturn(prefix, c.Alternative, c.Keywords)
}

// kind is a registered kind of returner.
type kind struct {
	// doc describes the purpose.
	doc  string
	open func(Config) (Returner, error)
	// events means that it stores events, onlyTexts that it stores results only as Python prints
	// them.
	events, onlyTexts bool
}

var kinds = registry.New[kind]("returner")

// Names returns the known returners, sorted.
func Names() []string { return kinds.Names() }

// Doc returns the description of a returner's purpose.
func Doc(name string) string {
	k, _ := kinds.Lookup(name)
	return k.doc
}

// KeepsEvents reports whether a returner stores events.
func KeepsEvents(name string) bool {
	k, ok := kinds.Lookup(name)
	return ok && k.events
}

// Texts reports whether a returner stores results only as Python prints them.
func Texts(name string) bool {
	k, ok := kinds.Lookup(name)
	return ok && k.onlyTexts
}

// Open returns the returner with a name. It does not connect.
func Open(name string, c Config) (Returner, error) {
	k, ok := kinds.Lookup(name)
	if !ok {
		return nil, salt.Errorf(salt.NotFound, "there is no returner %q: %s are known", name, strings.Join(Names(), ", "))
	}
	return k.open(c)
}

// dump encodes v as Salt's returners do. Bytes that are not UTF-8 are replaced, since JSON cannot
// represent them.
func dump(v any, ascii bool) (string, error) {
	text, err := json.Dump(v, json.Format{ASCII: ascii, Other: func(v any) (any, error) {
		if b, ok := v.([]byte); ok {
			return strings.ToValidUTF8(string(b), "\ufffd"), nil
		}
		return value.Str(v), nil
	}})
	if err != nil {
		return "", salt.Errorf(salt.Invalid, "cannot store as JSON: %w", err)
	}
	return text, nil
}

// AsStored returns v as servers return it, for comparisons: values that JSON cannot represent and
// the character NUL are replaced. postgres_local_cache stores less; see Texts.
func AsStored(v any) (any, error) {
	t, err := dump(v, false)
	if err != nil {
		return nil, err
	}
	return json.Load(withoutNUL(t))
}

// loadDict reads a map.
func loadDict(text string) (*value.Dict, error) {
	v, err := json.Load(text)
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, salt.Errorf(salt.Invalid, "the stored value is not a JSON map: %w", err)
	}
	return d, nil
}

// text truncates a string for a column.
func text(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most])
	}
	return s
}
