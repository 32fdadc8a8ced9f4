package databases

import (
	"context"
	"crypto/sha1"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/call/fn"
	"brine/internal/net/remote"
	"brine/internal/py/value"
)

func init() { units.Declare("mysql", mysqlModule) }

func mysqlModule() fn.Module {
	return fn.Module{Name: "mysql", Doc: `Databases, users and rights of a MySQL or MariaDB server.
		The server and who asks it are given by the keywords connection_host, connection_port, connection_user, connection_pass, connection_db,
		connection_unix_socket, connection_default_file, connection_default_group and connection_charset, or by the options mysql.host, mysql.user and so on.`,
		Funcs: []fn.Func{
			fn.Of("version", version, `Return the version of the server.`, fn.Example("salt '*' mysql.version")),
			fn.Of("status", status, `Return what the server tells of itself.`, fn.Example("salt '*' mysql.status")),
			fn.Of("query", query, `Run a statement, and return rows, or how many it changed.`,
				fn.Example(`salt '*' mysql.query mydb "SELECT id,name from users limit 5"`)),
			fn.Of("file_query", fileQuery, `Run the statements of a file.`, fn.Example("salt '*' mysql.file_query mydb file_name=/tmp/sqlfile.sql")),
			fn.Of("db_list", dbList, `Return the names of the databases.`, fn.Example("salt '*' mysql.db_list")),
			fn.Of("db_get", dbGet, `Return the character set and collation of a database, or an empty map.`, fn.Example("salt '*' mysql.db_get test")),
			fn.Of("db_tables", dbTables, `Return the names of the tables of a database, or false.`, fn.Example("salt '*' mysql.db_tables 'database'")),
			fn.Of("db_exists", dbExists, `Say whether there is a database.`, fn.Example("salt '*' mysql.db_exists 'dbname'")),
			fn.Of("db_create", dbCreate, `Make a database, and say whether that was done.`,
				fn.Example("salt '*' mysql.db_create 'dbname' 'utf8' 'utf8_general_ci'")),
			fn.Of("alter_db", alterDB, `Change the character set and collation of a database.`,
				fn.Example("salt '*' mysql.alter_db testdb charset='latin1'")),
			fn.Of("db_remove", dbRemove, `Delete a database, and say whether that was done.`, fn.Example("salt '*' mysql.db_remove 'dbname'")),
			fn.Of("user_list", userList, `Return the users.`, fn.Example("salt '*' mysql.user_list")),
			fn.Of("user_exists", userExists, `Say whether there is a user, with a password if one is given.`,
				fn.Example("salt '*' mysql.user_exists 'username' 'hostname' 'password'")),
			fn.Of("user_info", userInfo, `Return what is known of a user, or nothing.`, fn.Example("salt '*' mysql.user_info root localhost")),
			fn.Of("user_create", userCreate, `Make a user, and say whether that was done.`,
				fn.Example("salt '*' mysql.user_create 'username' 'hostname' 'password'")),
			fn.Of("user_chpass", userChpass, `Change the password of a user, and say whether that was done.`,
				fn.Example("salt '*' mysql.user_chpass frank localhost newpassword")),
			fn.Of("user_remove", userRemove, `Delete a user, and say whether that was done.`, fn.Example("salt '*' mysql.user_remove frank localhost")),
			fn.Of("tokenize_grant", tokenizeGrant, `Take a GRANT statement apart.`,
				fn.Example(`salt '*' mysql.tokenize_grant "GRANT SELECT, INSERT ON testdb.* TO 'testuser'@'localhost'"`)),
			fn.Of("user_grants", userGrants, `Return the GRANT statements of a user, or false if there is none.`,
				fn.Example("salt '*' mysql.user_grants 'frank' 'localhost'")),
			fn.Of("grant_exists", grantExists, `Say whether a user has rights.`,
				fn.Example("salt '*' mysql.grant_exists 'SELECT,INSERT,UPDATE,...' 'database.*' 'frank' 'localhost'")),
			fn.Of("grant_add", grantAdd, `Give rights to a user, and say whether that was done.`,
				fn.Example("salt '*' mysql.grant_add 'SELECT,INSERT,UPDATE,...' 'database.*' 'frank' 'localhost'")),
			fn.Of("grant_revoke", grantRevoke, `Take rights from a user, and say whether that was done.`,
				fn.Example("salt '*' mysql.grant_revoke 'SELECT,INSERT,UPDATE' 'database.*' 'frank' 'localhost'")),
			fn.Of("quote_identifier", quoteName, `Put the name of a database, table or column in quotes.`,
				fn.Example("salt '*' mysql.quote_identifier 'foo`bar'")),
			fn.Of("plugins_list", pluginsList, `Return the plugins of the server.`, fn.Example("salt '*' mysql.plugins_list")),
			fn.Of("plugin_status", pluginStatus, `Return the state of a plugin, empty if there is none.`,
				fn.Example("salt '*' mysql.plugin_status PLUGIN_NAME")),
		}}
}

// onlyConn are the arguments of functions that only need a server.
type onlyConn struct {
	Conn fn.Kwargs `salt:"connection_args"`
}

// conn is a connection to a server.
type conn struct {
	*remote.SQL
	version string
}

// sockets lists where client libraries look for a server on this machine.
var sockets = []string{"/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock"}

// hereSetting marks that a socket of this machine is used.
const hereSetting = "is here"

// settings returns how to reach the server and with which credentials.
func settings(ctx context.Context, c *fn.Call, kw fn.Kwargs) (remote.Settings, error) {
	file := value.NewDict(0)
	own := func(name string) any { return kw.At("connection_" + name) }
	option := func(name string) any {
		if kw.Has("connection_default_file") {
			return nil // options must not override the file
		}
		v, err := c.Funcs.Call(ctx, c, "config.option", []any{"mysql." + name, nil}, nil)
		if err != nil {
			return nil
		}
		return v
	}
	get := func(name string) any {
		for _, from := range []func(string) any{own, option, func(name string) any { return file.At(name) }} {
			if v := from(name); value.Truth(v) {
				return v
			}
		}
		return nil
	}
	if path := get("default_file"); path != nil {
		group := "client"
		if g := get("default_group"); g != nil {
			group = value.Str(g)
		}
		var err error
		if file, err = clientFile(value.Str(path), group); err != nil {
			return nil, err
		}
	}
	isHere := func() bool {
		host := get("host")
		return (host == nil || host == "localhost") && get("port") == nil
	}
	return func(name string) any {
		switch name {
		case hereSetting:
			return isHere()
		case "unix_socket":
			if v := get("unix_socket"); v != nil {
				return v
			}
			if isHere() {
				for _, path := range sockets {
					if _, err := os.Stat(path); err == nil {
						return path
					}
				}
			}
			return nil
		case "connect_timeout":
			return int64(20)
		case "host":
			if v := get("host"); v != nil && v != "localhost" {
				return v
			}
			return "127.0.0.1"
		}
		return get(name)
	}, nil
}

// clientFile reads the options of a group of a file such as ~/.my.cnf, by the
// names of settings.
func clientFile(path, group string) (*value.Dict, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fn.Errorf("cannot read the options of the client: %w", err)
	}
	names := map[string]string{"user": "user", "password": "pass", "host": "host", "port": "port", "socket": "unix_socket", "database": "db",
		"default-character-set": "charset"}
	d := value.NewDict(4)
	in := false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			in = line == "["+group+"]"
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if name := names[strings.ReplaceAll(strings.TrimSpace(k), "_", "-")]; in && ok && name != "" {
			v = strings.TrimSpace(v)
			if len(v) > 1 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0] {
				v = v[1 : len(v)-1]
			}
			d.Set(name, v)
		}
	}
	return d, nil
}

// maxQuery bounds the time of one statement, long enough to change a large
// table.
const maxQuery = time.Hour

// open connects to the server. If the server refuses, the error has Salt's
// words.
func open(ctx context.Context, c *fn.Call, kw fn.Kwargs) (*conn, error) {
	s, err := settings(ctx, c, kw)
	if err != nil {
		return nil, err
	}
	db, err := remote.MySQL(s, remote.Names{Password: "pass", Database: "db", Host: "127.0.0.1", User: "root"}, maxQuery)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	x := &conn{SQL: db}
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&x.version); err != nil {
		db.Close()
		if _, _, refused := remote.MySQLRefusal(err); refused {
			return nil, failure(err)
		}
		return nil, unreachable(s, err)
	}
	return x, nil
}

// unreachable returns the error for a server that does not answer. For a
// socket, it has the words of the client library that Salt uses on Debian. The
// library tries a socket if no way to the server is configured.
func unreachable(s remote.Settings, err error) error {
	path := s.Text("unix_socket", "")
	number := syscall.ENOENT
	if path != "" {
		errors.As(err, &number)
	} else if s(hereSetting) == true {
		path = sockets[0]
	}
	if path != "" {
		return fn.Errorf("MySQL Error 2002: Can't connect to local server through socket '%s' (%d)", path, int(number))
	}
	host, _ := s.Address("127.0.0.1", 3306)
	return fn.Errorf("MySQL Error 2003: Can't connect to MySQL server on '%s' (%v)", host, err)
}

// refused is an error that the server returned.
type refused struct {
	number uint16
	text   string
}

func (r *refused) Error() string { return fmt.Sprintf("MySQL Error %d: %s", r.number, r.text) }

func failure(err error) error {
	if n, text, ok := remote.MySQLRefusal(err); ok {
		return fn.Errorf("%w", &refused{n, text})
	}
	return fn.Errorf("%w", err)
}

// with connects to the server, calls do, and disconnects.
func with[T any](ctx context.Context, c *fn.Call, kw fn.Kwargs, do func(*conn) (T, error)) (T, error) {
	x, err := open(ctx, c, kw)
	if err != nil {
		var none T
		var answer any = none
		switch any(none).(type) {
		case *value.Dict:
			answer = value.NewDict(0)
		case *value.List:
			answer = &value.List{}
		case nil:
			answer = false
		}
		return none, cannotAsk(c, err, answer)
	}
	defer x.Close()
	return do(x)
}

// noServer is the error if the server cannot be reached. Salt's functions log
// it and return an empty value, with which templates continue.
type noServer struct {
	error
	answer any
}

func (u *noServer) Unwrap() error { return u.error }

// Answer returns what Salt's function returns, for templates.
func (u *noServer) Answer() any { return u.answer }

// cannotAsk logs a connection error and attaches the answer for templates.
func cannotAsk(c *fn.Call, err error, answer any) error {
	if c.Log != nil {
		c.Log.Error(err.Error())
	}
	return &noServer{err, answer}
}

// orList changes the answer to an empty list, for functions that return one in
// Salt if the server cannot be reached.
func orList[T any](v T, err error) (T, error) {
	var u *noServer
	if errors.As(err, &u) {
		u.answer = &value.List{}
	}
	return v, err
}

// run executes a statement with question marks for values.
func (x *conn) run(ctx context.Context, q string, args ...any) error {
	if _, err := x.ExecContext(ctx, q, args...); err != nil {
		return failure(err)
	}
	return nil
}

// rows returns the column names and the rows of a result. All values are
// strings or nil.
func (x *conn) rows(ctx context.Context, q string, args ...any) (names []string, all [][]any, err error) {
	r, err := x.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, nil, failure(err)
	}
	defer r.Close()
	if names, err = r.Columns(); err != nil {
		return nil, nil, failure(err)
	}
	types, err := r.ColumnTypes()
	if err != nil {
		return nil, nil, failure(err)
	}
	for r.Next() {
		row, to := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			to[i] = &row[i]
		}
		if err := r.Scan(to...); err != nil {
			return nil, nil, failure(err)
		}
		for i, v := range row {
			row[i] = plain(v, types[i])
		}
		all = append(all, row)
	}
	if err := r.Err(); err != nil {
		return nil, nil, failure(err)
	}
	return names, all, nil
}

func plain(v any, t *sql.ColumnType) any {
	switch v := v.(type) {
	case nil:
		return nil
	case []byte:
		return string(v)
	case time.Time:
		if t.DatabaseTypeName() == "DATE" {
			return v.Format(time.DateOnly)
		}
		return strings.TrimSuffix(v.Format("2006-01-02 15:04:05.999999"), ".")
	default:
		return fmt.Sprint(v)
	}
}

// column returns the first column of a result.
func (x *conn) column(ctx context.Context, q string, args ...any) (*value.List, error) {
	_, rows, err := x.rows(ctx, q, args...)
	l := &value.List{}
	for _, r := range rows {
		l.Append(r[0])
	}
	return l, err
}

// dicts returns rows as maps.
func (x *conn) dicts(ctx context.Context, q string, args ...any) (*value.List, error) {
	names, rows, err := x.rows(ctx, q, args...)
	l := &value.List{}
	for _, r := range rows {
		d := value.NewDict(len(names))
		for i, n := range names {
			d.Set(n, r[i])
		}
		l.Append(d)
	}
	return l, err
}

func (x *conn) maria() bool { return strings.Contains(x.version, "MariaDB") }

// since reports whether the server has this version or a newer one.
func (x *conn) since(major, minor, patch int) bool {
	m := regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(x.version)
	if m == nil {
		return true
	}
	var have []int
	for _, s := range m[1:] {
		n, _ := strconv.Atoi(s)
		have = append(have, n)
	}
	return slices.Compare(have, []int{major, minor, patch}) >= 0
}

func version(ctx context.Context, c *fn.Call, a onlyConn) (string, error) {
	return with(ctx, c, a.Conn, func(x *conn) (string, error) { return x.version, nil })
}

func status(ctx context.Context, c *fn.Call, a onlyConn) (*value.Dict, error) {
	return with(ctx, c, a.Conn, func(x *conn) (*value.Dict, error) {
		_, rows, err := x.rows(ctx, "SHOW STATUS")
		d := value.NewDict(len(rows))
		for _, r := range rows {
			d.Set(r[0], r[1])
		}
		return d, err
	})
}

type queryArgs struct {
	Database string    `salt:"database" doc:"name of the database"`
	Query    string    `salt:"query" doc:"the statement"`
	Conn     fn.Kwargs `salt:"connection_args"`
}

var asks = regexp.MustCompile(`(?i)^\s*(SELECT|SHOW|DESC)`)

// took formats the duration of a statement as Salt does.
func took(d time.Duration) *value.Dict {
	s := d.Seconds()
	human := strconv.FormatFloat(s, 'f', 2, 64) + "s"
	if s < 0.2 {
		human = strconv.FormatFloat(s*1000, 'f', 1, 64) + "ms"
	}
	return value.DictOf("human", human, "raw", strconv.FormatFloat(s, 'f', 5, 64))
}

func query(ctx context.Context, c *fn.Call, a queryArgs) (*value.Dict, error) {
	a.Conn.Set("connection_db", a.Database)
	return with(ctx, c, a.Conn, func(x *conn) (*value.Dict, error) {
		begin := time.Now()
		if !asks.MatchString(a.Query) {
			r, err := x.ExecContext(ctx, a.Query)
			if err != nil {
				return nil, failure(err)
			}
			n, err := r.RowsAffected()
			if err != nil {
				return nil, failure(err)
			}
			return value.DictOf("query time", took(time.Since(begin)), "rows affected", n), nil
		}
		names, rows, err := x.rows(ctx, a.Query)
		if err != nil {
			return nil, err
		}
		results := &value.List{}
		for _, r := range rows {
			results.Append(&value.List{Items: r})
		}
		columns := value.Tuple(value.Strings(names).Items)
		return value.DictOf("query time", took(time.Since(begin)), "rows returned", int64(len(rows)), "columns", columns, "results", results), nil
	})
}

type fileQueryArgs struct {
	Database string    `salt:"database" doc:"name of the database"`
	File     string    `salt:"file_name" doc:"file with statements, or its address on a server"`
	Conn     fn.Kwargs `salt:"connection_args"`
}

func fileQuery(ctx context.Context, c *fn.Call, a fileQueryArgs) (any, error) {
	path := a.File
	if strings.Contains(path, "://") {
		v, err := c.Funcs.Call(ctx, c, "cp.cache_file", []any{path}, nil)
		if err != nil {
			return nil, err
		}
		path = value.Str(v)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fn.Errorf("cannot read the statements: %w", err)
	}
	var raw float64
	var returned, affected int64
	columns, results := &value.List{}, &value.List{}
	for _, q := range statements(string(b)) {
		d, err := query(ctx, c, queryArgs{a.Database, q, fn.Kwargs{Dict: a.Conn.Clone()}})
		if u := (*noServer)(nil); errors.As(err, &u) {
			u.answer = false
		}
		if err != nil {
			return nil, err
		}
		s, _ := strconv.ParseFloat(d.Dict("query time").Str("raw"), 64)
		raw += s
		returned += d.Int("rows returned")
		affected += d.Int("rows affected")
		if d.Has("columns") {
			columns.Append(d.At("columns"))
			results.Append(d.At("results"))
		}
	}
	out := value.NewDict(5)
	for _, kv := range [][2]any{{"rows returned", returned}, {"columns", columns}, {"results", results}, {"rows affected", affected}} {
		if value.Truth(kv[1]) {
			out.Set(kv[0], kv[1])
		}
	}
	out.Set("query time", value.DictOf("raw", raw, "human", strconv.FormatFloat(raw, 'f', 2, 64)+"s"))
	return out, nil
}

// statements splits a script at semicolons outside of quotes, and drops
// comments.
func statements(text string) []string {
	var all []string
	var b strings.Builder
	flush := func() {
		if q := strings.TrimSpace(b.String()); q != "" {
			all = append(all, q)
		}
		b.Reset()
	}
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case rest[0] == '#' || strings.HasPrefix(rest, "-- ") || strings.HasPrefix(rest, "--\n"):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			i += n
		case strings.HasPrefix(rest, "/*") && !strings.HasPrefix(rest, "/*!"):
			n := strings.Index(rest, "*/")
			if n < 0 {
				n = len(rest) - 2
			}
			i += n + 2
		case rest[0] == ';':
			flush()
			i++
		case rest[0] == '\'' || rest[0] == '"' || rest[0] == '`':
			n := 1
			for n < len(rest) && rest[n] != rest[0] {
				if rest[n] == '\\' && rest[0] != '`' {
					n++
				}
				n++
			}
			n = min(n+1, len(rest))
			b.WriteString(rest[:n])
			i += n
		default:
			b.WriteByte(rest[0])
			i++
		}
	}
	flush()
	return all
}

func dbList(ctx context.Context, c *fn.Call, a onlyConn) (*value.List, error) {
	return with(ctx, c, a.Conn, func(x *conn) (*value.List, error) { return x.column(ctx, "SHOW DATABASES") })
}

type nameArgs struct {
	Name string    `salt:"name" doc:"name of the database"`
	Conn fn.Kwargs `salt:"connection_args"`
}

func (x *conn) charset(ctx context.Context, name string) (*value.Dict, error) {
	_, rows, err := x.rows(ctx, "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM INFORMATION_SCHEMA.SCHEMATA WHERE SCHEMA_NAME = ?", name)
	if err != nil || len(rows) == 0 {
		return value.NewDict(0), err
	}
	return value.DictOf("character_set", rows[0][0], "collate", rows[0][1]), nil
}

func (x *conn) hasDB(ctx context.Context, name string) (bool, error) {
	l, err := x.column(ctx, "SHOW DATABASES WHERE `Database` = ?", name)
	return l.Len() > 0, err
}

func dbGet(ctx context.Context, c *fn.Call, a nameArgs) (*value.Dict, error) {
	return orList(with(ctx, c, a.Conn, func(x *conn) (*value.Dict, error) { return x.charset(ctx, a.Name) }))
}

func dbTables(ctx context.Context, c *fn.Call, a nameArgs) (any, error) {
	return with(ctx, c, a.Conn, func(x *conn) (any, error) {
		if there, err := x.hasDB(ctx, a.Name); err != nil || !there {
			return false, err
		}
		return x.column(ctx, "SHOW TABLES IN "+quoted(a.Name, false))
	})
}

func dbExists(ctx context.Context, c *fn.Call, a nameArgs) (bool, error) {
	return with(ctx, c, a.Conn, func(x *conn) (bool, error) { return x.hasDB(ctx, a.Name) })
}

type dbArgs struct {
	Name    string    `salt:"name" doc:"name of the database"`
	Charset string    `salt:"character_set" doc:"character set; null: the server's" default:"null"`
	Collate string    `salt:"collate" doc:"collation; null: that of the character set" default:"null"`
	Conn    fn.Kwargs `salt:"connection_args"`
}

func dbCreate(ctx context.Context, c *fn.Call, a dbArgs) (bool, error) {
	return with(ctx, c, a.Conn, func(x *conn) (bool, error) {
		if there, err := x.hasDB(ctx, a.Name); err != nil || there {
			return false, err
		}
		q := "CREATE DATABASE IF NOT EXISTS " + quoted(a.Name, false)
		var args []any
		for word, v := range map[string]string{" CHARACTER SET ?": a.Charset} {
			if v != "" {
				q, args = q+word, append(args, v)
			}
		}
		if a.Collate != "" {
			q, args = q+" COLLATE ?", append(args, a.Collate)
		}
		err := x.run(ctx, q, args...)
		return err == nil, err
	})
}

func alterDB(ctx context.Context, c *fn.Call, a dbArgs) (bool, error) {
	return orList(with(ctx, c, a.Conn, func(x *conn) (bool, error) {
		now, err := x.charset(ctx, a.Name)
		if err != nil {
			return false, err
		}
		if a.Charset == "" {
			a.Charset = now.Str("character_set")
		}
		if a.Collate == "" {
			a.Collate = now.Str("collate")
		}
		err = x.run(ctx, "ALTER DATABASE "+quoted(a.Name, false)+" CHARACTER SET ? COLLATE ?", a.Charset, a.Collate)
		return err == nil, err
	}))
}

func dbRemove(ctx context.Context, c *fn.Call, a nameArgs) (bool, error) {
	return with(ctx, c, a.Conn, func(x *conn) (bool, error) {
		if there, err := x.hasDB(ctx, a.Name); err != nil || !there {
			return false, err
		}
		if a.Name == "mysql" || a.Name == "information_schema" {
			return false, nil
		}
		err := x.run(ctx, "DROP DATABASE "+quoted(a.Name, false))
		return err == nil, err
	})
}

type quoteArgs struct {
	Name   string `salt:"identifier" doc:"the name"`
	Grants bool   `salt:"for_grants" doc:"_ and % stand for themselves in the name of a database that rights are given on" default:"false"`
}

func quoteName(_ context.Context, _ *fn.Call, a quoteArgs) (string, error) {
	return strings.ReplaceAll(quoted(a.Name, a.Grants), "%", "%%"), nil // escaped for Salt's driver, which fills in values with %
}

func quoted(name string, grants bool) string {
	name = strings.ReplaceAll(name, "`", "``")
	if grants {
		name = strings.ReplaceAll(name, "_", `\_`)
	}
	return "`" + name + "`"
}

func pluginsList(ctx context.Context, c *fn.Call, a onlyConn) (*value.List, error) {
	return with(ctx, c, a.Conn, func(x *conn) (*value.List, error) {
		_, rows, err := x.rows(ctx, "SHOW PLUGINS")
		l := &value.List{}
		for _, r := range rows {
			l.Append(value.DictOf("name", r[0], "status", r[1]))
		}
		return l, err
	})
}

type pluginArgs struct {
	Name string    `salt:"name" doc:"name of the plugin"`
	Conn fn.Kwargs `salt:"connection_args"`
}

func (x *conn) plugin(ctx context.Context, name string) (string, error) {
	l, err := x.column(ctx, "SELECT PLUGIN_STATUS FROM INFORMATION_SCHEMA.PLUGINS WHERE PLUGIN_NAME = ?", name)
	if l.Len() == 0 {
		return "", err
	}
	return value.Str(l.Items[0]), err
}

func pluginStatus(ctx context.Context, c *fn.Call, a pluginArgs) (string, error) {
	return with(ctx, c, a.Conn, func(x *conn) (string, error) { return x.plugin(ctx, a.Name) })
}

// hash returns the hash of a password as the plugin mysql_native_password
// stores it.
func hash(password string) string {
	first := sha1.Sum([]byte(password))
	second := sha1.Sum(first[:])
	return "*" + strings.ToUpper(hex.EncodeToString(second[:]))
}
