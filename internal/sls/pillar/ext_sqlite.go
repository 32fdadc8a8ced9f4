package pillar

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

func init() { externals.Register("sqlite3", sqlite) }

// sqlite reads a database of the option sqlite3 with the program of that name:
// a library would add megabytes to a binary that reads no database on nearly
// every machine, and the program is in every distribution.
func sqlite(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	path, wait := sqliteFile(&r.c)
	if !filepath.IsAbs(path) {
		return nil, notAbsolute(path)
	}
	return queries(func(text string) ([]string, [][]any, error) { return askSQLite(ctx, path, wait, text, r.q.ID) }, a)
}

func notAbsolute(path string) error {
	return salt.Errorf(salt.Invalid, "sqlite3: database must be an absolute path, not %q", path)
}

// sqliteFile returns the file of the database, and how long to wait for it.
func sqliteFile(c *Config) (path string, wait time.Duration) {
	o, _ := c.Opts.At("sqlite3").(*value.Dict)
	path, wait = "/var/lib/salt/pillar.db", 5*time.Second
	if p := o.Str("database"); p != "" { // Salt uses timeout only if database is set
		path = p
		switch t := o.At("timeout").(type) {
		case int64:
			wait = time.Duration(t) * time.Second
		case float64:
			wait = time.Duration(t * float64(time.Second))
		}
	}
	return path, wait
}

// maxSQLite bounds the output of a query, in bytes.
const maxSQLite = 64 << 20

func askSQLite(ctx context.Context, path string, wait time.Duration, text, id string) ([]string, [][]any, error) {
	res, err := proc.Run(ctx, proc.Cmd{
		Args: []string{"sqlite3", "-batch", "-bail", "-readonly", "-json", "-cmd", fmt.Sprintf(".timeout %d", wait.Milliseconds()), "-cmd", ".parameter init",
			"-cmd", "INSERT INTO temp.sqlite_parameters(key, value) VALUES('?1', '" + strings.ReplaceAll(id, "'", "''") + "')", path, text + "\n;"},
		Env: append(os.Environ(), "HOME=/nonexistent"), Dir: "/", Timeout: dbTimeout + wait, MaxOutput: maxSQLite, DieWithParent: true,
	})
	var start *proc.StartError
	switch {
	case errors.As(err, &start) && errors.Is(err, syscall.ENOENT):
		return nil, nil, salt.Errorf(salt.Unavailable, "there is no program sqlite3: install the package sqlite3 (sqlite on Red Hat's)")
	case err != nil:
		return nil, nil, err
	case res.TimedOut:
		return nil, nil, salt.Errorf(salt.Timeout, "a query of ext_pillar to %s has not ended in %v", path, dbTimeout+wait)
	case res.Code != 0 || len(bytes.TrimSpace(res.Stderr)) > 0:
		return nil, nil, salt.Errorf(salt.Internal, "a query of ext_pillar to %s: %s", path, bytes.TrimSpace(res.Stderr))
	}
	return readSQLite(res.Stdout)
}

// readSQLite decodes the output of sqlite3 -json: empty, or a list with one map
// per row, whose keys are the columns in order and may repeat.
func readSQLite(out []byte) (names []string, rows [][]any, err error) {
	dec := stdjson.NewDecoder(bytes.NewReader(out))
	dec.UseNumber()
	var row []any
	var columns []string
	for depth, isKey := 0, false; ; {
		t, err := dec.Token()
		if err == io.EOF {
			return names, rows, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("sqlite3 printed what is no JSON: %w", err)
		}
		switch d, isDelim := t.(stdjson.Delim); {
		case isDelim && (d == '[' || d == '{'):
			if depth++; depth > 2 {
				return nil, nil, errors.New("sqlite3 printed something else than rows")
			}
			row, columns, isKey = nil, nil, d == '{'
		case isDelim:
			if depth--; d == '}' {
				names, rows = columns, append(rows, row)
			}
			if len(rows) > maxRows {
				return nil, nil, salt.Errorf(salt.Invalid, "a query of ext_pillar gives more than %d rows", maxRows)
			}
		case isKey:
			columns = append(columns, fmt.Sprint(t))
			isKey = false
		default:
			row = append(row, column(t))
			isKey = true
		}
	}
}

// column converts a JSON value into a pillar value.
func column(t stdjson.Token) any {
	n, ok := t.(stdjson.Number)
	if !ok {
		return t
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, _ := n.Float64()
	return f
}
