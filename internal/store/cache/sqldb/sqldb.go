// Package sqldb stores the values of the cache in a table of a database. In MySQL it is the table
// of Salt's driver mysql: bank, etcd_key, data as msgpack, and last_update. Salt has no driver for
// PostgreSQL; the table has the same columns there, with a time of higher resolution. A missing
// table is created, a missing database is not.
package sqldb

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/store/cache"
)

// Driver is the banks in one table.
type Driver struct {
	db    *remote.SQL
	table string
	ready atomic.Bool // the table exists
	// The statements that differ between the databases.
	create, put, version, seconds string
}

func init() {
	cache.RegisterDriver("mysql", MySQL)
	cache.RegisterDriver("postgres", Postgres)
}

// MySQL reads the options mysql.host, port, user, password, database, unix_socket, connect_timeout, charset,
// ssl_ca, ssl_cert, ssl_key and table_name. Connections are reused, whatever fresh_connection says.
func MySQL(src remote.Source, timeout time.Duration) (cache.Driver, error) {
	s := src.Under("mysql")
	table, err := remote.Identifier(s.Text("table_name", "salt"))
	if err != nil {
		return nil, err
	}
	db, err := remote.MySQL(s, remote.Names{Password: "password", Database: "database", Host: "127.0.0.1", DB: "salt_cache"}, timeout)
	if err != nil {
		return nil, err
	}
	return &Driver{db: db, table: table,
		create: `CREATE TABLE IF NOT EXISTS ` + table + ` (bank CHAR(255), etcd_key CHAR(255), data MEDIUMBLOB,
			last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (bank, etcd_key))`,
		put:     `REPLACE INTO ` + table + ` (bank, etcd_key, data) VALUES ($1, $2, $3)`,
		seconds: `CAST(UNIX_TIMESTAMP(last_update) AS SIGNED)`,
		version: `CONCAT(UNIX_TIMESTAMP(last_update), ':', LENGTH(data), ':', CRC32(data))`,
	}, nil
}

// Postgres reads the options cache.postgres.host, port, user, password,
// database, sslmode, sslcert, sslkey, sslrootcert and table_name.
func Postgres(src remote.Source, timeout time.Duration) (cache.Driver, error) {
	s := src.Under("cache.postgres")
	table, err := remote.Identifier(s.Text("table_name", "salt_cache"))
	if err != nil {
		return nil, err
	}
	db, err := remote.Postgres(s, remote.Names{Password: "password", Database: "database", Host: "127.0.0.1", User: "salt", DB: "salt"}, timeout)
	if err != nil {
		return nil, err
	}
	return &Driver{db: db, table: table,
		create: `CREATE TABLE IF NOT EXISTS ` + table + ` (bank varchar(600) NOT NULL, etcd_key varchar(600) NOT NULL, data bytea NOT NULL,
			last_update timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (bank, etcd_key))`,
		put: `INSERT INTO ` + table + ` (bank, etcd_key, data) VALUES ($1, $2, $3)
			ON CONFLICT (bank, etcd_key) DO UPDATE SET data = excluded.data, last_update = clock_timestamp()`,
		seconds: `CAST(FLOOR(EXTRACT(EPOCH FROM last_update)) AS bigint)`,
		version: `CAST(EXTRACT(EPOCH FROM last_update) AS text)`,
	}, nil
}

// begin creates the table once.
func (d *Driver) begin(ctx context.Context) error {
	if d.ready.Load() {
		return nil
	}
	// A user without the privilege to create the table may still use it.
	err := d.db.Rows(ctx, `SELECT 1 FROM `+d.table+` WHERE bank = $1 LIMIT 1`, []any{""}, func(func(...any) error) error { return nil })
	if salt.KindOf(err) == salt.Invalid {
		_, err = d.db.Do(ctx, d.create)
	}
	if err == nil {
		d.ready.Store(true)
	}
	return err
}

// Store writes a value.
func (d *Driver) Store(ctx context.Context, bank, key string, data []byte) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	_, err := d.db.Do(ctx, d.put, bank, key, data)
	return err
}

// Fetch returns a value, nil if there is none.
func (d *Driver) Fetch(ctx context.Context, bank, key string) (data []byte, err error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	err = d.db.Rows(ctx, `SELECT data FROM `+d.table+` WHERE bank = $1 AND etcd_key = $2`, []any{bank, key}, func(scan func(...any) error) error {
		return scan(&data)
	})
	return data, err
}

// Written returns the time at which a value was written, by the server's clock.
func (d *Driver) Written(ctx context.Context, bank, key string) (at time.Time, err error) {
	if err := d.begin(ctx); err != nil {
		return at, err
	}
	err = d.db.Rows(ctx, `SELECT `+d.seconds+` FROM `+d.table+` WHERE bank = $1 AND etcd_key = $2`, []any{bank, key}, func(scan func(...any) error) error {
		var seconds int64
		err := scan(&seconds)
		at = time.Unix(seconds, 0)
		return err
	})
	return at, err
}

// Each returns the values of one key in several banks.
func (d *Driver) Each(ctx context.Context, banks []string, key string, known []string) ([]cache.Value, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	args := make([]any, 1, len(banks)+1)
	args[0] = key
	at := make(map[string]int, len(banks))
	for i, b := range banks {
		args = append(args, b)
		at[b] = i
	}
	out := make([]cache.Value, len(banks))
	err := d.db.Rows(ctx, `SELECT bank, `+d.version+` FROM `+d.table+` WHERE etcd_key = $1 AND bank IN `+remote.In(2, len(banks)), args,
		func(scan func(...any) error) error {
			var bank, version string
			err := scan(&bank, &version)
			if i, ok := at[bank]; ok {
				out[i].Version = version
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	changed := args[:1]
	for i, b := range banks {
		if out[i].Version != "" && out[i].Version != known[i] {
			changed = append(changed, b)
		}
	}
	if len(changed) == 1 {
		return out, nil
	}
	err = d.db.Rows(ctx, `SELECT bank, data FROM `+d.table+` WHERE etcd_key = $1 AND bank IN `+remote.In(2, len(changed)-1), changed,
		func(scan func(...any) error) error {
			var bank string
			var data []byte
			err := scan(&bank, &data)
			if i, ok := at[bank]; ok {
				out[i].Data = data
			}
			return err
		})
	return out, err
}

// like returns the pattern for banks below a bank, with ESCAPE '!'.
func like(bank string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(bank) + "/%"
}

// Flush removes a key, or with key "" a bank and the banks below it.
func (d *Driver) Flush(ctx context.Context, bank, key string) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	if key != "" {
		_, err := d.db.Do(ctx, `DELETE FROM `+d.table+` WHERE bank = $1 AND etcd_key = $2`, bank, key)
		return err
	}
	_, err := d.db.Do(ctx, `DELETE FROM `+d.table+` WHERE bank = $1 OR bank LIKE $2 ESCAPE '!'`, bank, like(bank))
	return err
}

// List returns the keys of a bank and the banks directly below it.
func (d *Driver) List(ctx context.Context, bank string) (names []string, err error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	err = d.db.Rows(ctx, `SELECT etcd_key FROM `+d.table+` WHERE bank = $1`, []any{bank}, func(scan func(...any) error) error {
		var n string
		err := scan(&n)
		names = append(names, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = d.db.Rows(ctx, `SELECT DISTINCT bank FROM `+d.table+` WHERE bank LIKE $1 ESCAPE '!'`, []any{like(bank)}, func(scan func(...any) error) error {
		var b string
		err := scan(&b)
		if len(b) > len(bank) {
			word, _, _ := strings.Cut(b[len(bank)+1:], "/")
			names = append(names, word)
		}
		return err
	})
	return names, err
}

// Close closes the connections.
func (d *Driver) Close() error { return d.db.Close() }
