// Package returner keeps jobs and returns in the servers of others, in the
// layouts of Salt's returners of the same names: redis, etcd, mysql, pgjsonb,
// postgres and postgres_local_cache. A master uses one as its job cache beside
// its own store, a minion sends returns to one, and both can be set beside
// Salt's on one server.
package returner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// Returner is one server. Errors of kind Unavailable say that it is away; any
// other, that it does not take this. What is stored twice is there once. Calls
// may come from several goroutines.
type Returner interface {
	// Return stores what a minion returned: a dict with id, jid, fun, return …
	Return(ctx context.Context, ret *value.Dict) error
	// SaveLoad stores what was published. The ids that it was meant for are
	// its Minions.
	SaveLoad(ctx context.Context, jid string, load *value.Dict) error
	// Load returns what was published, nil if the job is not known.
	Load(ctx context.Context, jid string) (*value.Dict, error)
	// Returns returns by minion dicts with return and, as far as they are kept,
	// retcode, success, fun …
	Returns(ctx context.Context, jid string) (map[string]*value.Dict, error)
	// Jobs returns the loads of all jobs by their ids.
	Jobs(ctx context.Context) (map[string]*value.Dict, error)
	// Events stores events, or returns ErrNoEvents.
	Events(ctx context.Context, events []Event) error
	// Clean removes what is older than keep, or moves it to other tables.
	Clean(ctx context.Context, keep time.Duration, archive bool) error
	Close() error
}

// Event is one of a master's bus.
type Event struct {
	Tag  string
	Data any
}

// ErrNoEvents says that a returner has no place for events, as Salt's has none.
var ErrNoEvents = errors.New("this returner stores no events")

// Config is what all returners need.
type Config struct {
	// Source has the options.
	Source remote.Source
	// Alternative is the job's ret_config, Keywords its ret_kwargs.
	Alternative string
	Keywords    *value.Dict
	// Keep is for how long jobs are kept where the server forgets by itself; 0
	// is for ever.
	Keep time.Duration
	// Timeout bounds each wait for the server.
	Timeout time.Duration
	// MasterID is written beside events.
	MasterID string
	// History says that what is stored was long ago: it does not become the last
	// job of a minion or function that has one.
	History bool
}

func (c Config) settings(prefix string) remote.Settings {
	return c.Source.ForReturn(prefix, c.Alternative, c.Keywords)
}

var kinds = map[string]func(Config) (Returner, error){
	"redis": newRedis, "etcd": newEtcd, "mysql": newMySQL, "pgjsonb": newPGJSONB, "postgres": newPostgres, "postgres_local_cache": newPostgresLocalCache,
}

// Names are the returners there are.
func Names() []string {
	return []string{"etcd", "mysql", "pgjsonb", "postgres", "postgres_local_cache", "redis"}
}

// KeepsEvents reports whether a returner has a place for events.
func KeepsEvents(name string) bool { return name != "redis" && name != "etcd" }

// Open returns the returner of a name. It does not connect.
func Open(name string, c Config) (Returner, error) {
	if !slices.Contains(Names(), name) {
		return nil, salt.Errorf(salt.NotFound, "there is no returner %q: %s are known", name, strings.Join(Names(), ", "))
	}
	return kinds[name](c)
}

// dump writes v as Salt's returners do. Bytes that are no text are replaced,
// which JSON has no form for.
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

// AsStored returns v as servers give it back, to compare the two: what JSON has
// no form for, and the character NUL, are replaced. postgres_local_cache keeps
// less; see Texts.
func AsStored(v any) (any, error) {
	t, err := dump(v, false)
	if err != nil {
		return nil, err
	}
	return json.Load(withoutNUL(t))
}

// Texts reports whether a returner keeps results only as Python prints them.
func Texts(name string) bool { return name == "postgres_local_cache" }

// loadDict reads a map.
func loadDict(text string) (*value.Dict, error) {
	v, err := json.Load(text)
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, salt.Errorf(salt.Invalid, "what the server has is no JSON map: %w", err)
	}
	return d, nil
}

// text shortens a text for a column.
func text(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most])
	}
	return s
}
