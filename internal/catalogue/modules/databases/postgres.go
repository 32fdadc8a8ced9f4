package databases

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/net/remote"
	"brine/internal/py/value"
)

type postgres struct{ m *host.Machine }

func init() { units.Register("postgres", postgresModule) }

func postgresModule(m *host.Machine) fn.Module {
	x := postgres{m}
	mod := fn.Module{Name: "postgres", Doc: `Databases and roles of a PostgreSQL server, by psql(1).
		Without a host, psql runs as the account postgres. What is not given is taken from the options postgres.host, postgres.port, postgres.user,
		postgres.pass, postgres.maintenance_db and postgres.bins_dir.`, Funcs: slices.Concat(x.partsFuncs(), x.rightsFuncs(), clusterFuncs(), []fn.Func{
		fn.Of("version", x.version, `Return the version of the server.`, fn.Example("salt '*' postgres.version")),
		fn.Of("psql_query", x.psqlQuery, `Run a query and return its rows as maps of texts.`,
			fn.Example("salt '*' postgres.psql_query 'select * from pg_stat_activity'")),
		fn.Of("db_list", x.dbList, `Return the databases.`, fn.Example("salt '*' postgres.db_list")),
		fn.Of("db_exists", x.dbExists, `Say whether there is a database.`, fn.Example("salt '*' postgres.db_exists 'dbname'")),
		fn.Of("db_create", x.dbCreate, `Make a database, and say whether that was done.`, fn.Example("salt '*' postgres.db_create 'dbname'")),
		fn.Of("db_alter", x.dbAlter, `Change the owner or tablespace of a database.`, fn.Example("salt '*' postgres.db_alter dbname owner=otheruser")),
		fn.Of("db_remove", x.dbRemove, `Delete a database, and end the connections to it.`, fn.Example("salt '*' postgres.db_remove 'dbname'")),
		fn.Of("user_list", x.userList, `Return the roles.`, fn.Example("salt '*' postgres.user_list")),
		fn.Of("role_get", x.roleGet, `Return what is known of a role, or nothing.`, fn.Example("salt '*' postgres.role_get postgres")),
		fn.Of("user_exists", x.userExists, `Say whether there is a role.`, fn.Example("salt '*' postgres.user_exists 'username'")),
		fn.Of("user_create", x.userCreate, `Make a role that may log in, and say whether that was done.`,
			fn.Example("salt '*' postgres.user_create 'username' rolepassword='rolepassword'")),
		fn.Of("user_update", x.userUpdate, `Change a role, and say whether that was done.`,
			fn.Example("salt '*' postgres.user_update 'username' rolepassword='rolepassword'")),
		fn.Of("user_remove", x.userRemove, `Delete a role, and say whether that was done.`, fn.Example("salt '*' postgres.user_remove 'username'")),
		fn.Of("group_create", x.groupCreate, `Make a role that others are members of, and say whether that was done.`,
			fn.Example("salt '*' postgres.group_create 'groupname' rolepassword='rolepassword'")),
		fn.Of("group_update", x.groupUpdate, `Change a role, and say whether that was done.`,
			fn.Example("salt '*' postgres.group_update 'groupname' rolepassword='rolepassword'")),
		fn.Of("group_remove", x.groupRemove, `Delete a role, and say whether that was done.`, fn.Example("salt '*' postgres.group_remove 'groupname'")),
	})}
	for i, f := range mod.Funcs {
		mod.Funcs[i] = f.WithErrors(answerOfNone)
	}
	return mod
}

// answerOfNone attaches to the error what Salt's function returns if the server
// does not answer.
func answerOfNone(fun string, err error) error {
	var u *noServer
	if !errors.As(err, &u) {
		return err
	}
	switch fun {
	case "version", "role_get", "schema_get", "get_available_extension", "get_installed_extension":
		u.answer = nil
	case "psql_query":
		u.answer = &value.List{}
	case "db_list", "tablespace_list", "available_extensions", "installed_extensions", "schema_list", "language_list", "privileges_list":
		u.answer = value.NewDict(0)
	case "create_metadata":
		u.answer = value.ListOf(extensionMissing)
	case "drop_extension":
		u.answer = true // Salt regards an unknown extension as removed
	default:
		u.answer = false
	}
	return err
}

// pg are the arguments for the connection to the server.
type pg struct {
	User     any `salt:"user" doc:"role that asks" default:"null"`
	Host     any `salt:"host" doc:"name, address or directory of the socket" default:"null"`
	Port     any `salt:"port" doc:"port" default:"null"`
	Database any `salt:"maintenance_db" doc:"database to connect to" default:"null"`
	Password any `salt:"password" doc:"password of the role that asks" default:"null"`
}

// session is a configured connection to the server.
type session struct {
	postgres
	c      *fn.Call
	to     pg
	runas  string
	binary string
}

func (x postgres) at(ctx context.Context, c *fn.Call, to pg, runas any) (*session, error) {
	for name, v := range map[string]*any{"user": &to.User, "host": &to.Host, "port": &to.Port, "maintenance_db": &to.Database, "pass": &to.Password} {
		if !value.Truth(*v) {
			*v, _ = c.Funcs.Call(ctx, c, "config.option", []any{"postgres." + name, nil}, nil)
		}
	}
	s := &session{postgres: x, c: c, to: to, binary: "psql"}
	if dir, _ := c.Funcs.Call(ctx, c, "config.option", []any{"postgres.bins_dir", nil}, nil); value.Truth(dir) {
		s.binary = filepath.Join(value.Str(dir), "psql")
	}
	if h := value.Str(to.Host); value.Truth(runas) {
		s.runas = value.Str(runas)
	} else if !value.Truth(to.Host) || strings.HasPrefix(h, "/") {
		s.runas = "postgres"
		if c.Grains.Get("os_family") == "OpenBSD" {
			s.runas = "_postgresql"
		}
	}
	return s, nil
}

// psql runs statements. It passes them on standard input, as all users of the
// machine can see arguments.
func (s *session) psql(ctx context.Context, sql string, args ...string) (host.Output, error) {
	cmd := host.Cmd{Program: s.binary, Stdin: sql + "\n", Env: []string{"PGCONNECT_TIMEOUT=30"}}
	cmd.Args = append([]string{"--no-align", "--no-psqlrc", "--no-password", "--quiet", "-v", "ON_ERROR_STOP=1", "-v", "datestyle=ISO,MDY"}, args...)
	for _, o := range []struct {
		flag string
		v    any
	}{{"--username", s.to.User}, {"--host", s.to.Host}, {"--port", s.to.Port}} {
		if value.Truth(o.v) {
			cmd.Args = append(cmd.Args, o.flag, value.Str(o.v))
		}
	}
	db := "postgres"
	if value.Truth(s.to.Database) {
		db = value.Str(s.to.Database)
	}
	cmd.Args = append(cmd.Args, "--dbname", db)
	if s.to.Password != nil {
		cmd.Env = append(cmd.Env, "PGPASSWORD="+value.Str(s.to.Password))
	}
	if s.runas != "" {
		u, ok := account.ByName(ctx, s.m, s.runas)
		if !ok {
			return host.Output{}, fn.Errorf("there is no account %s to run psql as", s.runas)
		}
		if s.m.Superuser() {
			cmd.As = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
		}
		cmd.Env = append(cmd.Env, "HOME="+u.Home, "USER="+s.runas, "LOGNAME="+s.runas)
	}
	out, err := s.m.Command(ctx, cmd)
	if err != nil {
		return out, fn.Errorf("cannot run psql: %w", err)
	}
	if out.Exit != 0 {
		s.c.Log.Error("psql fails", "exit", out.Exit, "stderr", out.Stderr)
	}
	return out, nil
}

// do executes statements and reports whether they succeeded.
func (s *session) do(ctx context.Context, sql string, args ...string) (bool, error) {
	out, err := s.psql(ctx, sql, args...)
	return err == nil && out.Exit == 0, err
}

// rows returns the rows of a query. It fails if the server does not answer.
func (s *session) rows(ctx context.Context, query string) (*value.List, error) {
	return s.rowsOf(ctx, copyOut(query))
}

// copyOut returns a statement that prints the rows of a query.
func copyOut(query string) string {
	return "COPY (" + strings.TrimRight(strings.TrimSpace(query), ";") + ") TO STDOUT WITH CSV HEADER"
}

// rowsOf returns the rows that a statement prints. options are options of psql.
func (s *session) rowsOf(ctx context.Context, statement string, options ...string) (*value.List, error) {
	out, err := s.psql(ctx, statement, options...)
	if err != nil {
		return nil, err
	}
	if out.Exit != 0 {
		return nil, &noServer{fn.Errorf("the PostgreSQL server does not answer: %s", out.Stderr), nil}
	}
	all, err := csv.NewReader(strings.NewReader(out.Stdout)).ReadAll()
	if err != nil {
		return nil, fn.Errorf("cannot read what psql prints: %w", err)
	}
	l := &value.List{}
	for i, row := range all {
		if i == 0 {
			continue
		}
		d := value.NewDict(len(row))
		for k, v := range row {
			d.Set(all[0][k], v)
		}
		l.Append(d)
	}
	return l, nil
}

// ident quotes a name for SQL, and literal a value.
func ident(name any) string   { return `"` + strings.ReplaceAll(value.Str(name), `"`, `""`) + `"` }
func literal(text any) string { return "'" + strings.ReplaceAll(value.Str(text), "'", "''") + "'" }

type pgArgs struct {
	pg
	RunAs any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) version(ctx context.Context, c *fn.Call, a pgArgs) (string, error) {
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return "", err
	}
	l, err := s.rows(ctx, "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'server_version'")
	if err != nil || l.Len() == 0 {
		return "", err
	}
	return l.Items[0].(*value.Dict).Str("setting"), nil
}

type psqlArgs struct {
	Query string `salt:"query" doc:"the query"`
	pg
	RunAs any  `salt:"runas" doc:"account to run psql as" default:"null"`
	Write bool `salt:"write" doc:"run the query in a transaction that may write" default:"false"`
}

func (x postgres) psqlQuery(ctx context.Context, c *fn.Call, a psqlArgs) (*value.List, error) {
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return nil, err
	}
	if !a.Write {
		return s.rows(ctx, a.Query)
	}
	return s.rowsOf(ctx, "START TRANSACTION READ WRITE; "+copyOut(a.Query)+"; COMMIT TRANSACTION", "--quiet")
}

func (s *session) databases(ctx context.Context) (*value.Dict, error) {
	l, err := s.rows(ctx,
		`SELECT datname as "Name", pga.rolname as "Owner", pg_encoding_to_char(encoding) as "Encoding", datcollate as "Collate", datctype as "Ctype",
		datacl as "Access privileges", spcname as "Tablespace" FROM pg_database pgd, pg_roles pga, pg_tablespace pgts WHERE pga.oid = pgd.datdba AND pgts.oid = pgd.dattablespace`)
	if err != nil {
		return nil, err
	}
	d := value.NewDict(l.Len())
	for _, it := range l.Items {
		row := it.(*value.Dict)
		name := row.Str("Name")
		row.Delete("Name")
		d.Set(name, row)
	}
	return d, nil
}

func (x postgres) dbList(ctx context.Context, c *fn.Call, a pgArgs) (*value.Dict, error) {
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return nil, err
	}
	return s.databases(ctx)
}

type pgNameArgs struct {
	Name string `salt:"name" doc:"its name"`
	pg
	RunAs any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) dbExists(ctx context.Context, c *fn.Call, a pgNameArgs) (bool, error) {
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return false, err
	}
	all, err := s.databases(ctx)
	return all.Has(a.Name), err
}

type pgCreateArgs struct {
	Name string `salt:"name" doc:"its name"`
	pg
	Tablespace any `salt:"tablespace" doc:"tablespace" default:"null"`
	Encoding   any `salt:"encoding" doc:"encoding of texts" default:"null"`
	Collate    any `salt:"lc_collate" doc:"order of texts" default:"null"`
	Ctype      any `salt:"lc_ctype" doc:"kinds of characters" default:"null"`
	Owner      any `salt:"owner" doc:"role that owns it" default:"null"`
	Template   any `salt:"template" doc:"database to copy" default:"null"`
	RunAs      any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) dbCreate(ctx context.Context, c *fn.Call, a pgCreateArgs) (bool, error) {
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return false, err
	}
	q := "CREATE DATABASE " + ident(a.Name)
	for _, o := range []struct {
		word  string
		v     any
		quote func(any) string
	}{{"TABLESPACE", a.Tablespace, ident}, {"OWNER", a.Owner, ident}, {"TEMPLATE", a.Template, ident}, {"ENCODING", a.Encoding, literal},
		{"LC_COLLATE", a.Collate, literal}, {"LC_CTYPE", a.Ctype, literal}} {
		if o.v != nil {
			q += " " + o.word + " = " + o.quote(o.v)
		}
	}
	return s.do(ctx, q)
}

type pgAlterArgs struct {
	Name string `salt:"name" doc:"its name"`
	pg
	Tablespace any `salt:"tablespace" doc:"tablespace" default:"null"`
	Owner      any `salt:"owner" doc:"role that is to own it" default:"null"`
	Recurse    any `salt:"owner_recurse" doc:"the role is to own what is in it, too" default:"false"`
	RunAs      any `salt:"runas" doc:"account to run psql as" default:"null"`
}

// ownAll makes a role the owner of everything in a database. Sequences of columns
// change with their tables.
const ownAll = `DO $do$ DECLARE r record; BEGIN
FOR r IN SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END AS kind, c.oid::regclass::text AS name
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname !~ '^(pg_|information_schema$)' AND c.relkind IN ('r', 'p', 'S', 'v', 'm')
	AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE c.relkind = 'S' AND d.objid = c.oid AND d.deptype IN ('a', 'i'))
	UNION ALL SELECT 'SCHEMA', quote_ident(nspname) FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)'
	UNION ALL SELECT 'ROUTINE', p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname !~ '^(pg_|information_schema$)'
LOOP EXECUTE format('ALTER %%s %%s OWNER TO %%I', r.kind, r.name, %s); END LOOP; END $do$`

func (x postgres) dbAlter(ctx context.Context, c *fn.Call, a pgAlterArgs) (bool, error) {
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return false, err
	}
	var queries []string
	if value.Truth(a.Owner) {
		queries = append(queries, "ALTER DATABASE "+ident(a.Name)+" OWNER TO "+ident(a.Owner))
	}
	if value.Truth(a.Tablespace) {
		queries = append(queries, "ALTER DATABASE "+ident(a.Name)+" SET TABLESPACE "+ident(a.Tablespace))
	}
	for _, q := range queries {
		if ok, err := s.do(ctx, q); err != nil || !ok {
			return false, err
		}
	}
	if value.Truth(a.Owner) && value.Truth(a.Recurse) {
		s.to.Database = a.Name
		return s.do(ctx, fmt.Sprintf(ownAll, literal(a.Owner)))
	}
	return true, nil
}

func (x postgres) dbRemove(ctx context.Context, c *fn.Call, a pgNameArgs) (bool, error) {
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return false, err
	}
	for _, q := range []string{
		"REVOKE CONNECT ON DATABASE " + ident(a.Name) + " FROM public",
		"SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = " + literal(a.Name) + " AND pid <> pg_backend_pid()",
		"DROP DATABASE " + ident(a.Name),
	} {
		out, err := s.psql(ctx, q)
		if err != nil {
			return false, err
		}
		if out.Exit != 0 {
			return false, fn.Errorf("cannot remove the database %s: %s", a.Name, out.Stderr)
		}
	}
	return true, nil
}

type pgUsersArgs struct {
	pg
	RunAs  any  `salt:"runas" doc:"account to run psql as" default:"null"`
	Secret bool `salt:"return_password" doc:"return the hashes of passwords, too" default:"false"`
}

func (s *session) roles(ctx context.Context, secret bool) (*value.Dict, error) {
	more, join := "", ""
	if secret {
		more, join = ", a.rolpassword AS password", " LEFT JOIN pg_authid a ON r.oid = a.oid"
	}
	l, err := s.rows(ctx, `SELECT r.rolname AS name, r.rolsuper AS superuser, r.rolinherit AS "inherits privileges", r.rolcreaterole AS "can create roles",
		r.rolcreatedb AS "can create databases", r.rolcanlogin AS "can login", r.rolreplication AS replication, r.rolvaliduntil::timestamp(0) AS "expiry time",
		r.rolconfig AS "defaults variables", (SELECT string_agg(quote_ident(g.rolname), ',' ORDER BY m.ctid) FROM pg_catalog.pg_auth_members m
		JOIN pg_catalog.pg_roles g ON m.roleid = g.oid WHERE m.member = r.oid) AS groups`+more+` FROM pg_roles r`+join)
	if err != nil {
		return nil, err
	}
	all := value.NewDict(l.Len())
	for _, it := range l.Items {
		row := it.(*value.Dict)
		d := value.NewDict(12)
		for _, k := range []string{"superuser", "inherits privileges", "can create roles", "can create databases", "can update system catalogs", "can login",
			"replication", "connections"} {
			d.Set(k, flag(row.At(k)))
		}
		d.Set("expiry time", nil)
		if t, err := time.Parse(time.DateTime, row.Str("expiry time")); err == nil {
			d.Set("expiry time", t.Format(time.DateTime))
		}
		d.Set("defaults variables", row.At("defaults variables"))
		if secret {
			d.Set("password", row.At("password"))
		}
		groups, err := csv.NewReader(strings.NewReader(row.Str("groups"))).Read()
		if err != nil {
			groups = nil
		}
		d.Set("groups", value.Strings(groups))
		all.Set(row.Str("name"), d)
	}
	return all, nil
}

func flag(v any) any {
	switch v {
	case "t":
		return true
	case "f":
		return false
	}
	return nil
}

func (x postgres) userList(ctx context.Context, c *fn.Call, a pgUsersArgs) (*value.Dict, error) {
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return nil, err
	}
	return s.roles(ctx, a.Secret)
}

type roleArgs struct {
	Name string `salt:"name" doc:"name of the role"`
	pg
	RunAs  any  `salt:"runas" doc:"account to run psql as" default:"null"`
	Secret bool `salt:"return_password" doc:"return the hash of the password, too" default:"false"`
}

func (x postgres) roleGet(ctx context.Context, c *fn.Call, a roleArgs) (any, error) {
	all, err := x.userList(ctx, c, pgUsersArgs{a.pg, a.RunAs, a.Secret})
	return all.At(a.Name), err
}

func (x postgres) userExists(ctx context.Context, c *fn.Call, a pgNameArgs) (bool, error) {
	d, err := x.roleGet(ctx, c, roleArgs{Name: a.Name, pg: a.pg, RunAs: a.RunAs})
	return d != nil, err
}

type pgUserArgs struct {
	Name string `salt:"username" doc:"name of the role"`
	pg
	CreateDB    any `salt:"createdb" doc:"it may make databases" default:"null"`
	CreateRoles any `salt:"createroles" doc:"it may make roles" default:"null"`
	Inherit     any `salt:"inherit" doc:"it has the rights of its groups" default:"null"`
	Login       any `salt:"login" doc:"it may log in" default:"null"`
	Limit       any `salt:"connlimit" doc:"how many connections it may have" default:"null"`
	Encrypted   any `salt:"encrypted" doc:"how its password is kept: md5 (or true), scram-sha-256 or false" default:"null"`
	Superuser   any `salt:"superuser" doc:"it may do everything" default:"null"`
	Replication any `salt:"replication" doc:"it may copy the server" default:"null"`
	Secret      any `salt:"rolepassword" doc:"its password" default:"null"`
	Until       any `salt:"valid_until" doc:"when its password ends" default:"null"`
	Groups      any `salt:"groups" doc:"roles that it is a member of, as a list or with commas" default:"null"`
	RunAs       any `salt:"runas" doc:"account to run psql as" default:"null"`
}

// options returns the options of the role as part of a statement.
func (a pgUserArgs) options() (string, error) {
	var out []string
	for _, o := range []struct {
		word string
		v    any
	}{{"INHERIT", a.Inherit}, {"CREATEDB", a.CreateDB}, {"CREATEROLE", a.CreateRoles}, {"SUPERUSER", a.Superuser}, {"REPLICATION", a.Replication},
		{"LOGIN", a.Login}} {
		switch {
		case o.v == nil:
		case value.Truth(o.v):
			out = append(out, o.word)
		default:
			out = append(out, "NO"+o.word)
		}
	}
	if a.Limit != nil {
		n, err := strconv.Atoi(value.Str(a.Limit))
		if err != nil {
			return "", fn.Invalidf("connlimit must be a number, not %s", value.Repr(a.Limit))
		}
		out = append(out, "CONNECTION LIMIT "+strconv.Itoa(n))
	}
	if value.Truth(a.Secret) && a.Secret != true {
		secret, err := remote.PostgresSecret(a.Name, value.Str(a.Secret), a.Encrypted)
		if err != nil {
			return "", fn.Invalidf("%w", err)
		}
		out = append(out, "PASSWORD "+literal(secret))
	} else if a.Secret == false {
		out = append(out, "PASSWORD NULL")
	}
	if value.Truth(a.Until) {
		out = append(out, "VALID UNTIL "+literal(a.Until))
	}
	if len(out) == 0 {
		return "", nil
	}
	return " WITH " + strings.Join(out, " "), nil
}

func (a pgUserArgs) grants() string {
	groups := value.Texts(a.Groups)
	if s, ok := a.Groups.(string); ok {
		groups = strings.Split(s, ",")
	}
	var b strings.Builder
	for _, g := range groups {
		b.WriteString(";\nGRANT " + ident(g) + " TO " + ident(a.Name))
	}
	return b.String()
}

func (x postgres) userCreate(ctx context.Context, c *fn.Call, a pgUserArgs) (bool, error) {
	if a.Inherit == nil {
		a.Inherit = true
	}
	if a.Login == nil {
		a.Login = true
	}
	return x.role(ctx, c, a, "CREATE", false)
}

// pgUpdateArgs has the fields of pgUserArgs in another order.
type pgUpdateArgs struct {
	Name string `salt:"username" doc:"name of the role"`
	pg
	CreateDB    any `salt:"createdb" doc:"it may make databases" default:"null"`
	CreateRoles any `salt:"createroles" doc:"it may make roles" default:"null"`
	Encrypted   any `salt:"encrypted" doc:"how its password is kept: md5 (or true), scram-sha-256 or false" default:"null"`
	Superuser   any `salt:"superuser" doc:"it may do everything" default:"null"`
	Inherit     any `salt:"inherit" doc:"it has the rights of its groups" default:"null"`
	Login       any `salt:"login" doc:"it may log in" default:"null"`
	Limit       any `salt:"connlimit" doc:"how many connections it may have" default:"null"`
	Replication any `salt:"replication" doc:"it may copy the server" default:"null"`
	Secret      any `salt:"rolepassword" doc:"its password" default:"null"`
	Until       any `salt:"valid_until" doc:"when its password ends" default:"null"`
	Groups      any `salt:"groups" doc:"roles that it is a member of, as a list or with commas" default:"null"`
	RunAs       any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) userUpdate(ctx context.Context, c *fn.Call, a pgUpdateArgs) (bool, error) {
	return x.role(ctx, c, pgUserArgs{Name: a.Name, pg: a.pg, CreateDB: a.CreateDB, CreateRoles: a.CreateRoles, Inherit: a.Inherit, Login: a.Login,
		Limit:     a.Limit,
		Encrypted: a.Encrypted, Superuser: a.Superuser, Replication: a.Replication, Secret: a.Secret, Until: a.Until, Groups: a.Groups, RunAs: a.RunAs},
		"ALTER", true)
}

// role creates or changes a role in one transaction.
func (x postgres) role(ctx context.Context, c *fn.Call, a pgUserArgs, verb string, wanted bool) (bool, error) {
	there, err := x.userExists(ctx, c, pgNameArgs{Name: a.Name, pg: a.pg, RunAs: a.RunAs})
	if err != nil || there != wanted {
		return false, err
	}
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return false, err
	}
	options, err := a.options()
	if err != nil {
		return false, err
	}
	q := verb + " ROLE " + ident(a.Name) + options
	if verb == "ALTER" && options == "" {
		q = "SELECT 1"
	}
	return s.do(ctx, q+a.grants(), "--single-transaction", "--output=/dev/null")
}

func (x postgres) userRemove(ctx context.Context, c *fn.Call, a pgUserNameArgs) (bool, error) {
	there, err := x.userExists(ctx, c, pgNameArgs(a))
	if err != nil || !there {
		return false, err
	}
	s, err := x.at(ctx, c, a.pg, a.RunAs)
	if err != nil {
		return false, err
	}
	return s.do(ctx, "DROP ROLE "+ident(a.Name))
}

type pgUserNameArgs struct {
	Name string `salt:"username" doc:"name of the role"`
	pg
	RunAs any `salt:"runas" doc:"account to run psql as" default:"null"`
}

type pgGroupArgs struct {
	Name string `salt:"groupname" doc:"name of the role"`
	pg
	CreateDB    any `salt:"createdb" doc:"it may make databases" default:"null"`
	CreateRoles any `salt:"createroles" doc:"it may make roles" default:"null"`
	Encrypted   any `salt:"encrypted" doc:"how its password is kept: md5 (or true), scram-sha-256 or false" default:"null"`
	Login       any `salt:"login" doc:"it may log in" default:"null"`
	Inherit     any `salt:"inherit" doc:"it has the rights of its groups" default:"null"`
	Superuser   any `salt:"superuser" doc:"it may do everything" default:"null"`
	Replication any `salt:"replication" doc:"it may copy the server" default:"null"`
	Secret      any `salt:"rolepassword" doc:"its password" default:"null"`
	Groups      any `salt:"groups" doc:"roles that it is a member of, as a list or with commas" default:"null"`
	RunAs       any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (a pgGroupArgs) role() pgUserArgs {
	return pgUserArgs{Name: a.Name, pg: a.pg, CreateDB: a.CreateDB, CreateRoles: a.CreateRoles, Inherit: a.Inherit, Login: a.Login, Encrypted: a.Encrypted,
		Superuser: a.Superuser, Replication: a.Replication, Secret: a.Secret, Groups: a.Groups, RunAs: a.RunAs}
}

func (x postgres) groupCreate(ctx context.Context, c *fn.Call, a pgGroupArgs) (bool, error) {
	if a.Inherit == nil {
		a.Inherit = true
	}
	if a.Login == nil {
		a.Login = false
	}
	return x.role(ctx, c, a.role(), "CREATE", false)
}

// pgGroupUpdateArgs has the fields of pgGroupArgs in another order.
type pgGroupUpdateArgs struct {
	Name string `salt:"groupname" doc:"name of the role"`
	pg
	CreateDB    any `salt:"createdb" doc:"it may make databases" default:"null"`
	CreateRoles any `salt:"createroles" doc:"it may make roles" default:"null"`
	Encrypted   any `salt:"encrypted" doc:"how its password is kept: md5 (or true), scram-sha-256 or false" default:"null"`
	Inherit     any `salt:"inherit" doc:"it has the rights of its groups" default:"null"`
	Login       any `salt:"login" doc:"it may log in" default:"null"`
	Superuser   any `salt:"superuser" doc:"it may do everything" default:"null"`
	Replication any `salt:"replication" doc:"it may copy the server" default:"null"`
	Secret      any `salt:"rolepassword" doc:"its password" default:"null"`
	Groups      any `salt:"groups" doc:"roles that it is a member of, as a list or with commas" default:"null"`
	RunAs       any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) groupUpdate(ctx context.Context, c *fn.Call, a pgGroupUpdateArgs) (bool, error) {
	g := pgGroupArgs{a.Name, a.pg, a.CreateDB, a.CreateRoles, a.Encrypted, a.Login, a.Inherit, a.Superuser, a.Replication, a.Secret, a.Groups, a.RunAs}
	return x.role(ctx, c, g.role(), "ALTER", true)
}

type pgGroupNameArgs struct {
	Name string `salt:"groupname" doc:"its name"`
	pg
	RunAs any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) groupRemove(ctx context.Context, c *fn.Call, a pgGroupNameArgs) (bool, error) {
	return x.userRemove(ctx, c, pgUserNameArgs(a))
}
