package pillar

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// dbTimeout bounds each wait for a database.
const dbTimeout = 30 * time.Second

// databases are the connections of one configuration.
type databases struct {
	mu sync.Mutex
	m  map[string]*remote.SQL
}

func (d *databases) open(name string, open func() (*remote.SQL, error)) (*remote.SQL, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if db, ok := d.m[name]; ok {
		return db, nil
	}
	db, err := open()
	if err != nil {
		return nil, err
	}
	if d.m == nil {
		d.m = map[string]*remote.SQL{}
	}
	d.m[name] = db
	return db, nil
}

// The options mysql and postgres are maps of host, port, user, pass, db and
// those for TLS; see package remote.
var dbNames = remote.Names{Password: "pass", Database: "db", Host: "localhost", User: "salt", Pass: "salt", DB: "salt"}

func openMySQL(c *Config) (*remote.SQL, error) {
	return remote.MySQL(remote.Options(c.Opts).Under("mysql"), dbNames, dbTimeout)
}

func openPostgres(c *Config) (*remote.SQL, error) {
	return remote.Postgres(remote.Options(c.Opts).Under("postgres"), dbNames, dbTimeout)
}

func init() { externals.Register("mysql", mySQL) }

func mySQL(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	db, err := r.dbs.open("mysql", func() (*remote.SQL, error) { return openMySQL(&r.c) })
	if err != nil {
		return nil, err
	}
	return queries(func(text string) ([]string, [][]any, error) { return ask(ctx, db, text, r.q.ID) }, a)
}

func init() { externals.Register("postgres", postgres) }

func postgres(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	db, err := r.dbs.open("postgres", func() (*remote.SQL, error) { return openPostgres(&r.c) })
	if err != nil {
		return nil, err
	}
	return queries(func(text string) ([]string, [][]any, error) { return ask(ctx, db, text, r.q.ID) }, a)
}

// query is a statement and how its rows become a tree.
type query struct {
	root       any // key above the tree, or nil
	text       string
	depth      int
	list, json bool
	lists      []int
	ignoreNull bool
}

// readQueries reads the source's configuration: a list of queries, or a map of
// keys to queries, in the order of the keys. A query is a string, a list of a
// string and a depth, or a map.
func readQueries(a args) ([]query, error) {
	var out []query
	add := func(root, v any) error {
		q := query{root: root}
		switch x := v.(type) {
		case string:
			q.text = x
		case *value.List:
			if x.Len() > 0 {
				q.text, _ = x.Items[0].(string)
			}
			if x.Len() > 1 {
				n, _ := x.Items[1].(int64)
				q.depth = int(n)
			}
		case *value.Dict:
			q.text, q.depth, q.list, q.json, q.ignoreNull = x.Str("query"), int(x.Int("depth")), x.Bool("as_list"), x.Bool("as_json"), x.Bool("ignore_null")
			if l := x.At("with_lists"); l != nil {
				for _, t := range value.Split(l) {
					n, err := atoi(t)
					if err != nil {
						return err
					}
					q.lists = append(q.lists, n)
				}
			}
		}
		if q.text != "" {
			out = append(out, q)
		}
		return nil
	}
	for _, v := range a.list {
		if err := add(nil, v); err != nil {
			return nil, err
		}
	}
	keys := a.named.Keys()
	slices.SortFunc(keys, func(x, y any) int { return strings.Compare(value.Str(x), value.Str(y)) })
	for _, k := range keys {
		if err := add(k, a.named.At(k)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func atoi(s string) (int, error) {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' || n > 1000 {
			return 0, salt.Errorf(salt.Invalid, "with_lists has %q, which is no number", s)
		}
		n = 10*n + int(c-'0')
	}
	return n, nil
}

// queries runs all queries with ask, which returns the columns and rows of one.
func queries(ask func(text string) ([]string, [][]any, error), a args) (any, error) {
	qs, err := readQueries(a)
	if err != nil {
		return nil, err
	}
	out := value.NewDict(8)
	for _, q := range qs {
		names, rows, err := ask(q.text)
		if err != nil {
			return nil, err
		}
		focus := out
		if q.root != nil {
			focus = value.NewDict(8)
			out.Set(q.root, focus)
		}
		if err := q.tree(focus, names, rows); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// maxRows bounds the rows of a query.
const maxRows = 1_000_000

func ask(ctx context.Context, db *remote.SQL, text, id string) (names []string, out [][]any, err error) {
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	mark := "$1"
	if db.MySQL {
		mark = "?"
	}
	var args []any
	if strings.Contains(strings.ReplaceAll(text, "%%", ""), "%s") {
		args = []any{id}
	}
	text = strings.NewReplacer("%%", "%", "%s", mark).Replace(text)
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, nil, remote.Failed("a query of ext_pillar", err)
	}
	defer rows.Close()
	if names, err = rows.Columns(); err != nil {
		return nil, nil, err
	}
	for rows.Next() {
		row, to := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			return nil, nil, err
		}
		for i, v := range row {
			row[i] = plainColumn(v)
		}
		if out = append(out, row); len(out) > maxRows {
			return nil, nil, salt.Errorf(salt.Invalid, "a query of ext_pillar gives more than %d rows", maxRows)
		}
	}
	return names, out, rows.Err()
}

// plainColumn converts a database value into a pillar value.
func plainColumn(v any) any {
	switch x := v.(type) {
	case []byte:
		return string(x)
	case time.Time:
		return x.Format("2006-01-02 15:04:05.999999999")
	}
	return v
}

// tree converts rows into a tree: the columns up to depth are keys, the rest
// are values, by their names if there is more than one. It follows Salt's rules
// for repeated keys.
func (q query) tree(focus *value.Dict, names []string, rows [][]any) error {
	if len(rows) == 0 && len(names) == 0 {
		return nil // sqlite3 then reports no columns
	}
	n := len(names)
	depth := q.depth
	if depth == 0 || depth >= n {
		depth = n - 1
	}
	if q.json && n == 1 {
		for _, row := range rows {
			v := row[0]
			if text, ok := v.(string); ok {
				var err error
				if v, err = json.Load(text); err != nil {
					return salt.Errorf(salt.Invalid, "a column that is to be JSON is not: %w", err)
				}
			}
			d, ok := v.(*value.Dict)
			if !ok {
				return salt.Errorf(salt.Invalid, "a column that is to be a map is a %s", value.TypeName(v))
			}
			merged := Merge(focus, d, q.list)
			for k, v := range merged.All() {
				focus.Set(k, v)
			}
		}
		return nil
	}
	if n < 2 {
		return salt.Errorf(salt.Invalid, "a query of ext_pillar gives %d columns: there must be a key and a value", n)
	}
	l := &listify{keys: map[*value.Dict][]any{}}
	for _, row := range rows {
		q.enter(focus, row, names, depth, l)
	}
	l.apply()
	return nil
}

func (q query) enter(d *value.Dict, row []any, names []string, depth int, l *listify) {
	listed := func(i int) bool { return slices.Contains(q.lists, i) }
	n := len(row)
	for i := range depth - 1 {
		if listed(i + 1) {
			l.add(d, row[i])
		}
		next := value.NewDict(1)
		old, ok := d.Get(row[i])
		switch x := old.(type) {
		case *value.Dict:
			next = x
		case *value.List:
			x.Append(next)
		default:
			if ok && q.list {
				d.Set(row[i], value.ListOf(old, next))
			} else {
				d.Set(row[i], next)
			}
		}
		d = next
	}
	if depth == n-1 {
		key, v := row[n-2], row[n-1]
		old, ok := d.Get(key)
		if q.list && ok || listed(n-1) {
			all, isList := old.(*value.List)
			if ok && !isList {
				all = value.ListOf(old)
			} else if !ok {
				all = &value.List{}
			}
			all.Append(v)
			d.Set(key, all)
		} else if !q.ignoreNull || v != nil {
			d.Set(key, v)
		}
		return
	}
	key := row[depth-1]
	if listed(depth) {
		l.add(d, key)
	}
	leaf, ok := d.At(key).(*value.Dict)
	if !ok {
		leaf = value.NewDict(n - depth)
		d.Set(key, leaf)
	}
	for i := depth; i < n; i++ {
		if listed(i + 1) {
			l.add(leaf, names[i])
		}
		old, ok := leaf.Get(names[i])
		switch all, isList := old.(*value.List); {
		case q.list && ok && isList:
			all.Append(row[i])
		case q.list && ok:
			leaf.Set(names[i], value.ListOf(old, row[i]))
		case !q.ignoreNull || row[i] != nil:
			leaf.Set(names[i], row[i])
		}
	}
}

// listify records which maps become lists of their values at the end, inner
// ones first.
type listify struct {
	keys  map[*value.Dict][]any
	order []*value.Dict
}

func (l *listify) add(d *value.Dict, key any) {
	ks, ok := l.keys[d]
	if !ok {
		l.order = append(l.order, d)
	}
	if !slices.ContainsFunc(ks, func(k any) bool { return value.Equal(k, key) }) {
		l.keys[d] = append(ks, key)
	}
}

func (l *listify) apply() {
	for _, d := range slices.Backward(l.order) {
		for _, k := range l.keys[d] {
			switch x := d.At(k).(type) {
			case *value.Dict:
				out := &value.List{}
				for _, v := range x.All() {
					out.Append(v)
				}
				d.Set(k, out)
			case *value.List:
				d.Set(k, value.ListOf(x))
			}
		}
	}
}
