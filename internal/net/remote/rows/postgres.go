package rows

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
)

// table is the table of the rows in PostgreSQL.
const table = "salt_record"

// postgresRows are the rows in a table of PostgreSQL.
type postgresRows struct {
	db    *remote.SQL
	under string
	ready atomic.Bool // the table exists
}

// openPostgres reads the options of the cache driver postgres.
func openPostgres(src remote.Source, under string, timeout time.Duration) (Store, error) {
	db, err := remote.Postgres(src.Under("cache.postgres"),
		remote.Names{Password: "password", Database: "database", Host: "127.0.0.1", User: "salt", DB: "salt"}, timeout)
	if err != nil {
		return nil, err
	}
	return &postgresRows{db: db, under: under}, nil
}

// begin creates the table once. A user without the privilege to create it may still use it.
func (p *postgresRows) begin(ctx context.Context) error {
	if p.ready.Load() {
		return nil
	}
	err := p.db.Rows(ctx, `SELECT 1 FROM `+table+` LIMIT 1`, nil, func(func(...any) error) error { return nil })
	if remote.IsUnprepared(err) {
		_, err = p.db.Do(ctx, `CREATE TABLE IF NOT EXISTS `+table+` (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL)`)
		if remote.IsDuplicate(err) { // another master has just created it
			err = nil
		}
	}
	if err == nil {
		p.ready.Store(true)
	}
	return err
}

// failed marks a missing table as temporary: a restored or replaced database gets it again.
func (p *postgresRows) failed(err error) error {
	if remote.IsUnprepared(err) {
		p.ready.Store(false)
		return salt.Errorf(salt.Unavailable, "%w", err)
	}
	return err
}

func (p *postgresRows) Get(ctx context.Context, names ...string) (map[string][]byte, error) {
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	if len(names) == 0 {
		return out, nil
	}
	args := make([]any, len(names))
	for i, n := range names {
		args[i] = p.under + n
	}
	err := p.db.Rows(ctx, `SELECT name, value FROM `+table+` WHERE name IN `+remote.In(1, len(names)), args, func(scan func(...any) error) error {
		var name string
		var v []byte
		err := scan(&name, &v)
		out[strings.TrimPrefix(name, p.under)] = v
		return err
	})
	return out, p.failed(err)
}

func (p *postgresRows) Scan(ctx context.Context, prefix, after string, limit int, values bool) (out []Row, err error) {
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	from := p.under + prefix
	op := ">="
	if after != "" {
		from, op = p.under+after, ">"
	}
	column := "value"
	if !values {
		column = "''::bytea"
	}
	// Names have only characters of ASCII, so that the end of the prefix sorts after them all.
	err = p.db.Rows(ctx, `SELECT name, `+column+` FROM `+table+` WHERE name `+op+` $1 AND name < $2 ORDER BY name LIMIT `+strconv.Itoa(limit),
		[]any{from, p.under + prefix + "\x7f"}, func(scan func(...any) error) error {
			var r Row
			err := scan(&r.Name, &r.Value)
			r.Name = strings.TrimPrefix(r.Name, p.under)
			out = append(out, r)
			return err
		})
	return out, p.failed(err)
}

func (p *postgresRows) Commit(ctx context.Context, conditions []Condition, changes []Change) (bool, error) {
	if err := p.begin(ctx); err != nil {
		return false, err
	}
	tx, err := p.db.Begin(ctx)
	if err != nil {
		return false, p.failed(err)
	}
	defer tx.End()
	written := map[string][]byte{}
	for _, x := range changes {
		if x.Value != nil {
			written[x.Name] = x.Value
		}
	}
	for _, c := range conditions {
		ok, err := p.holds(ctx, tx, c, written)
		if err != nil || !ok {
			return false, p.failed(err)
		}
	}
	var puts, gone []any
	for _, x := range changes {
		if x.Value == nil {
			gone = append(gone, p.under+x.Name)
		} else if v, ok := written[x.Name]; ok {
			puts = append(puts, p.under+x.Name, v)
			delete(written, x.Name) // a statement must not write a row twice
		}
	}
	if len(gone) > 0 {
		if _, err := tx.Do(ctx, `DELETE FROM `+table+` WHERE name IN `+remote.In(1, len(gone)), gone...); err != nil {
			return false, p.failed(err)
		}
	}
	if len(puts) > 0 {
		var b strings.Builder
		for i := 1; i < len(puts); i += 2 {
			if i > 1 {
				b.WriteString(", ")
			}
			b.WriteString("($" + strconv.Itoa(i) + ", $" + strconv.Itoa(i+1) + ")")
		}
		if _, err := tx.Do(ctx, `INSERT INTO `+table+` (name, value) VALUES `+b.String()+` ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
			puts...); err != nil {
			return false, p.failed(err)
		}
	}
	if err := tx.Commit(); err != nil {
		return false, p.failed(err)
	}
	return true, nil
}

// holds checks a condition and locks its row until the end of the transaction. A row that must be
// absent and is written is inserted, so that of two transactions only one finds it absent.
func (p *postgresRows) holds(ctx context.Context, tx *remote.Tx, c Condition, written map[string][]byte) (bool, error) {
	if v, writes := written[c.Name]; c.Value == nil && writes {
		n, err := tx.Do(ctx, `INSERT INTO `+table+` (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, p.under+c.Name, v)
		return n == 1, err
	}
	var now []byte
	found := false
	err := tx.Rows(ctx, `SELECT value FROM `+table+` WHERE name = $1 FOR UPDATE`, []any{p.under + c.Name}, func(scan func(...any) error) error {
		found = true
		return scan(&now)
	})
	if err != nil {
		return false, err
	}
	if c.Value == nil {
		return !found, nil
	}
	return found && bytes.Equal(now, c.Value), nil
}

func (p *postgresRows) String() string { return "PostgreSQL" }

func (p *postgresRows) Close() error { return p.db.Close() }
