package remote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"brine/internal/base/salt"
)

// SQL is a database. Statements use $1, $2 … for values. MySQL gets question marks instead, so each value
// must occur once, in order.
type SQL struct {
	*sql.DB
	MySQL bool
	what  string // for errors
}

// Names are the names of settings that differ between Salt's drivers.
type Names struct {
	// Password and Database are the names of these settings.
	Password, Database string
	// Default values.
	Host, User, Pass, DB string
}

func newSQL(db *sql.DB, my bool, what string) *SQL {
	db.SetMaxOpenConns(2 * maxIdle)
	db.SetMaxIdleConns(maxIdle)
	db.SetConnMaxIdleTime(time.Minute)
	return &SQL{DB: db, MySQL: my, what: what}
}

// MySQL opens a MySQL or MariaDB server by the settings host, port, user,
// unix_socket, connect_timeout, charset, ssl_ca, ssl_cert, ssl_key and those in
// n.
func MySQL(s Settings, n Names, timeout time.Duration) (*SQL, error) {
	addr, err := s.Address(n.Host, 3306)
	if err != nil {
		return nil, err
	}
	dial, err := s.Int("connect_timeout", 0)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName = s.Text("user", n.User), s.Text(n.Password, n.Pass), s.Text(n.Database, n.DB)
	c.Net, c.Addr = "tcp", addr
	if path := s.Text("unix_socket", ""); path != "" {
		c.Net, c.Addr = "unix", path
	}
	c.Timeout, c.ReadTimeout, c.WriteTimeout = timeout, timeout, timeout
	if dial > 0 {
		c.Timeout = time.Duration(dial) * time.Second
	}
	c.InterpolateParams = true // one round trip instead of three
	c.ParseTime = true
	c.MaxAllowedPacket = 0 // the server's value
	c.Logger = &mysql.NopLogger{}
	if err := c.Apply(mysql.Charset(s.Text("charset", "utf8mb4"), "")); err != nil {
		return nil, salt.Errorf(salt.Invalid, "%w", err)
	}
	if ca, cert := s.Text("ssl_ca", ""), s.Text("ssl_cert", ""); ca != "" || cert != "" {
		host, _, _ := net.SplitHostPort(addr)
		if c.TLS, err = TLS(ca, cert, s.Text("ssl_key", ""), host, ca != ""); err != nil {
			return nil, err
		}
	}
	conn, err := mysql.NewConnector(c)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "the options of MySQL: %w", err)
	}
	return newSQL(sql.OpenDB(conn), true, "the MySQL server "+c.Addr), nil
}

// Postgres opens a PostgreSQL server by the settings host (or a directory with its socket), port, user,
// sslmode, sslcert, sslkey, sslrootcert and those in n.
func Postgres(s Settings, n Names, timeout time.Duration) (*SQL, error) {
	port, err := s.Port(5432)
	if err != nil {
		return nil, err
	}
	host := s.Text("host", n.Host)
	var dsn strings.Builder
	add := func(key, v string) {
		if v != "" {
			fmt.Fprintf(&dsn, "%s='%s' ", key, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v))
		}
	}
	for _, k := range []string{"sslmode", "sslcert", "sslkey", "sslrootcert"} {
		add(k, s.Text(k, ""))
	}
	if s.Text("sslcrl", "") != "" {
		return nil, salt.Errorf(salt.Invalid, "sslcrl is not known: have the server's certificate replaced instead")
	}
	add("host", host)
	add("port", strconv.Itoa(port))
	add("user", s.Text("user", n.User))
	add("password", s.Text(n.Password, n.Pass))
	add("dbname", s.Text(n.Database, n.DB))
	c, err := pgx.ParseConfig(dsn.String())
	if err != nil {
		// The error contains the options, one of which is secret.
		return nil, salt.Errorf(salt.Invalid, "the options of PostgreSQL (host, port, user, database, ssl…) are wrong")
	}
	c.ConnectTimeout = timeout
	// A connection pooler in between may not support prepared statements.
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	return newSQL(stdlib.OpenDB(*c), false, "the PostgreSQL server "+net.JoinHostPort(host, strconv.Itoa(port))), nil
}

// text converts a statement to the server's syntax.
func (d *SQL) text(q string) string {
	if !d.MySQL {
		return q
	}
	var b strings.Builder
	for i := 0; i < len(q); i++ {
		if q[i] != '$' || i+1 == len(q) || q[i+1] < '0' || q[i+1] > '9' {
			b.WriteByte(q[i])
			continue
		}
		b.WriteByte('?')
		for i+1 < len(q) && q[i+1] >= '0' && q[i+1] <= '9' {
			i++
		}
	}
	return b.String()
}

// Do executes a statement and returns the number of affected rows.
func (d *SQL) Do(ctx context.Context, q string, args ...any) (int64, error) {
	r, err := d.ExecContext(ctx, d.text(q), args...)
	if err != nil {
		return 0, d.failed(err)
	}
	n, err := r.RowsAffected()
	return n, d.failed(err)
}

// Rows calls row for each row of a result; scan reads its columns.
func (d *SQL) Rows(ctx context.Context, q string, args []any, row func(scan func(...any) error) error) error {
	rows, err := d.QueryContext(ctx, d.text(q), args...)
	return d.each(rows, err, row)
}

func (d *SQL) each(rows *sql.Rows, err error, row func(scan func(...any) error) error) error {
	if err != nil {
		return d.failed(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return d.failed(err)
		}
	}
	return d.failed(rows.Err())
}

// In returns a list of n placeholders for IN, the first of which is $from.
func In(from, n int) string {
	var b strings.Builder
	b.WriteByte('(')
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("$" + strconv.Itoa(from+i))
	}
	b.WriteByte(')')
	return b.String()
}

// Identifier returns the name of a table if it needs no quotes, else an error.
func Identifier(name string) (string, error) {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r != '.' && r != '$' && (r < '0' || r > '9')) {
			return "", salt.Errorf(salt.Invalid, "%q is not the name of a table", name)
		}
	}
	if name == "" {
		return "", salt.Errorf(salt.Invalid, "the name of the table is empty")
	}
	return name, nil
}

// MySQLRefusal returns the number and the message of an error from a MySQL server.
func MySQLRefusal(err error) (number uint16, text string, ok bool) {
	var m *mysql.MySQLError
	if !errors.As(err, &m) {
		return 0, "", false
	}
	return m.Number, m.Message, true
}

// failed distinguishes an error of the statement (Invalid) from an unreachable server.
func (d *SQL) failed(err error) error {
	if err == nil {
		return nil
	}
	var m *mysql.MySQLError
	if errors.As(err, &m) && !away[m.Number] {
		return salt.Errorf(salt.Invalid, "%s refuses: %w", d.what, err)
	}
	var p *pgconn.PgError
	if errors.As(err, &p) && !passing(p.Code) {
		return salt.Errorf(salt.Invalid, "%s refuses: %w", d.what, err)
	}
	var c *pgconn.ConnectError
	if errors.As(err, &c) { // its message has all options
		if errors.As(err, &p) {
			return salt.Errorf(salt.Unavailable, "%s: %s", d.what, p.Message)
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			return salt.Errorf(salt.Unavailable, "%s does not answer", d.what)
		}
		var op *net.OpError
		if errors.As(err, &op) {
			return salt.Errorf(salt.Unavailable, "%s: %w", d.what, op)
		}
		return salt.Errorf(salt.Unavailable, "%s: cannot connect: %w", d.what, errors.Unwrap(c))
	}
	return Failed(d.what, err)
}

// passing reports whether an error of PostgreSQL is not caused by the statement.
func passing(code string) bool {
	switch code {
	case "25006", "25P03", "25P04", "55P03", "55006": // read only, a timeout of the transaction, a lock that is held
		return true
	}
	if len(code) < 2 {
		return false
	}
	switch code[:2] {
	// Connection, access, no such database, deadlock, resources, shutdown, I/O, damaged data.
	case "08", "28", "3D", "40", "53", "57", "58", "F0", "XX":
		return true
	}
	return false
}

// away are MySQL's errors that are not caused by the statement: access, no such database, too many
// connections, shutdown, lock timeouts and deadlocks, read only, full disk.
var away = map[uint16]bool{1040: true, 1041: true, 1044: true, 1045: true, 1049: true, 1053: true, 1114: true, 1129: true, 1130: true,
	1021: true, 1203: true, 1205: true, 1213: true, 1226: true, 1290: true, 1836: true, 1927: true, 3024: true}

// IsDuplicate reports whether a statement failed because the row exists.
func IsDuplicate(err error) bool {
	var m *mysql.MySQLError
	var p *pgconn.PgError
	return errors.As(err, &m) && m.Number == 1062 || errors.As(err, &p) && p.Code == "23505"
}

// IsUnprepared reports whether a statement failed because the database lacks a table, a column or a
// privilege.
func IsUnprepared(err error) bool {
	var m *mysql.MySQLError
	var p *pgconn.PgError
	switch {
	case errors.As(err, &m):
		return slices.Contains([]uint16{1046, 1054, 1142, 1143, 1146}, m.Number)
	case errors.As(err, &p):
		return slices.Contains([]string{"3F000", "42501", "42703", "42P01"}, p.Code)
	}
	return false
}

// Tx is a transaction.
type Tx struct {
	d  *SQL
	tx *sql.Tx
}

// Begin begins a transaction; End must be called.
func (d *SQL) Begin(ctx context.Context) (*Tx, error) {
	tx, err := d.BeginTx(ctx, nil)
	return &Tx{d, tx}, d.failed(err)
}

// Do executes a statement, as SQL.Do.
func (t *Tx) Do(ctx context.Context, q string, args ...any) (int64, error) {
	r, err := t.tx.ExecContext(ctx, t.d.text(q), args...)
	if err != nil {
		return 0, t.d.failed(err)
	}
	n, err := r.RowsAffected()
	return n, t.d.failed(err)
}

// Rows calls row for each row of a result, as SQL.Rows.
func (t *Tx) Rows(ctx context.Context, q string, args []any, row func(scan func(...any) error) error) error {
	rows, err := t.tx.QueryContext(ctx, t.d.text(q), args...)
	return t.d.each(rows, err, row)
}

// Commit commits the transaction.
func (t *Tx) Commit() error { return t.d.failed(t.tx.Commit()) }

// End rolls back uncommitted changes.
func (t *Tx) End() { t.tx.Rollback() }
