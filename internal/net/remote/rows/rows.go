// Package rows keeps named values on a server that several masters use, with transactions. A
// transaction changes several values at once if others are still what the caller has read.
package rows

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
)

// Row is a named value.
type Row struct {
	Name  string
	Value []byte
}

// Condition means that the value of a row is Value, or that there is no such row if Value is nil.
type Condition struct {
	Name  string
	Value []byte
}

// Change writes a row. If Value is nil, it removes the row.
type Change struct {
	Name  string
	Value []byte
}

// Store is a server with rows. It is safe for concurrent use. Its errors have a kind: Unavailable
// if a later attempt may succeed.
type Store interface {
	// Get returns the rows with these names that exist.
	Get(ctx context.Context, names ...string) (map[string][]byte, error)
	// Scan returns up to limit rows whose names begin with prefix and sort after a name, in order;
	// without values only their names.
	Scan(ctx context.Context, prefix, after string, limit int, values bool) ([]Row, error)
	// Commit makes all changes at once if all conditions hold, and reports whether they did. After an
	// error the changes may have been made.
	Commit(ctx context.Context, conditions []Condition, changes []Change) (bool, error)
	// String names the server in messages.
	String() string
	Close() error
}

// Bounds of one transaction that all servers accept: the number of changes, and the size of their
// values in bytes. They are the defaults of etcd, with room for names.
const (
	MaxChanges = 120
	MaxBytes   = 1 << 20
)

// engines are the servers by their name in the option.
var engines = map[string]func(src remote.Source, under string, timeout time.Duration) (Store, error){"etcd": openEtcd, "postgres": openPostgres}

// Engines returns the names of the kinds of servers, sorted.
func Engines() []string { return slices.Sorted(maps.Keys(engines)) }

// Open returns a server of a kind. The options are those of the cache driver of the same name. All
// names are below the path under. It does not connect. timeout bounds each request.
func Open(engine string, src remote.Source, under string, timeout time.Duration) (Store, error) {
	open := engines[engine]
	if open == nil {
		return nil, salt.Errorf(salt.Invalid, "unknown kind of server %q: use one of %s", engine, strings.Join(Engines(), ", "))
	}
	return open(src, under, timeout)
}
