package databases

import (
	"context"
	"errors"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

func userList(ctx context.Context, c *fn.Call, a onlyConn) (*value.List, error) {
	return with(ctx, c, a.Conn, func(x *conn) (*value.List, error) { return x.dicts(ctx, "SELECT User,Host FROM mysql.user") })
}

type userArgs struct {
	User string    `salt:"user" doc:"name of the user"`
	Host string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Conn fn.Kwargs `salt:"connection_args"`
}

type existsArgs struct {
	User         string    `salt:"user" doc:"name of the user"`
	Host         string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Password     any       `salt:"password" doc:"password that the user must have" default:"null"`
	Hash         any       `salt:"password_hash" doc:"the same as a hash" default:"null"`
	Passwordless any       `salt:"passwordless" doc:"the user must have no password" default:"false"`
	Socket       any       `salt:"unix_socket" doc:"the user must come in by the account of the machine" default:"false"`
	Column       any       `salt:"password_column" doc:"column of the table mysql.user that holds passwords" default:"null"`
	Conn         fn.Kwargs `salt:"connection_args"`
}

// reach connects with the caller's credentials. If those are refused and the
// user in question is the one who connects, it tries that user's new password,
// which may already be set.
func reach(ctx context.Context, c *fn.Call, user string, password any, kw fn.Kwargs) (*conn, error) {
	x, err := open(ctx, c, kw)
	var no *refused
	if errors.As(err, &no) && no.number == 1045 && value.Truth(password) && strings.HasPrefix(no.text, "Access denied for user '"+user+"'@") {
		kw = fn.Kwargs{Dict: kw.Clone()}
		kw.Set("connection_pass", value.Str(password))
		return open(ctx, c, kw)
	}
	return x, err
}

// passwords returns the name of the column that holds passwords.
func (x *conn) passwords(ctx context.Context, given any) (string, error) {
	if value.Truth(given) {
		return quoted(value.Str(given), false), nil
	}
	l, err := x.column(ctx, "SELECT column_name FROM information_schema.COLUMNS WHERE table_schema = 'mysql' AND table_name = 'user' AND column_name "+
		"= 'Password'")
	if l.Len() > 0 {
		return "Password", err
	}
	return "authentication_string", err
}

// by returns the name of the plugin that authenticates accounts of the machine.
func (x *conn) by() string {
	if x.maria() {
		return "unix_socket"
	}
	return "auth_socket"
}

// native is the plugin whose passwords can be compared by their hash.
const native = "mysql_native_password"

// pluginOf returns the plugin that authenticates a user.
func (x *conn) pluginOf(ctx context.Context, user, host string) (string, error) {
	l, err := x.column(ctx, "SELECT plugin FROM mysql.user WHERE User = ? AND Host = ?", user, host)
	if l.Len() == 0 || value.Str(l.Items[0]) == "" {
		return native, err
	}
	return value.Str(l.Items[0]), err
}

func (x *conn) hasUser(ctx context.Context, a existsArgs) (bool, error) {
	q, args := "SELECT User,Host FROM mysql.user WHERE User = ? AND Host = ?", []any{a.User, a.Host}
	column, err := x.passwords(ctx, a.Column)
	if err != nil {
		return false, err
	}
	plugin, err := x.pluginOf(ctx, a.User, a.Host)
	if err != nil {
		return false, err
	}
	switch {
	case salt.IsTrue(a.Passwordless) && salt.IsTrue(a.Socket):
		q, args = q+" AND plugin = ?", append(args, x.by())
	case salt.IsTrue(a.Passwordless):
		q += " AND " + column + " = ''"
	case value.Truth(a.Password):
		if x.maria() || plugin == native {
			q, args = q+" AND "+column+" = ?", append(args, hash(value.Str(a.Password)))
		} // other plugins: only the server can compare
	case value.Truth(a.Hash):
		q, args = q+" AND "+column+" = ?", append(args, value.Str(a.Hash))
	}
	l, err := x.column(ctx, q, args...)
	return l.Len() == 1, err
}

func userExists(ctx context.Context, c *fn.Call, a existsArgs) (bool, error) {
	x, err := reach(ctx, c, a.User, a.Password, a.Conn)
	if err != nil {
		return false, cannotAsk(c, err, false)
	}
	defer x.Close()
	return x.hasUser(ctx, a)
}

func userInfo(ctx context.Context, c *fn.Call, a userArgs) (any, error) {
	return with(ctx, c, a.Conn, func(x *conn) (any, error) {
		l, err := x.dicts(ctx, "SELECT * FROM mysql.user WHERE User = ? AND Host = ?", a.User, a.Host)
		if l.Len() == 0 {
			return nil, err
		}
		return l.Items[0], err
	})
}

type createArgs struct {
	User     string    `salt:"user" doc:"name of the user"`
	Host     string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Password any       `salt:"password" doc:"password" default:"null"`
	Hash     any       `salt:"password_hash" doc:"the same as a hash" default:"null"`
	Open     any       `salt:"allow_passwordless" doc:"the user needs no password" default:"false"`
	Socket   any       `salt:"unix_socket" doc:"the user comes in by the account of the machine" default:"false"`
	Column   any       `salt:"password_column" doc:"column of the table mysql.user that holds passwords" default:"null"`
	Plugin   string    `salt:"auth_plugin" doc:"plugin that lets the user in, of servers of MySQL since 8.0.11" default:"mysql_native_password"`
	Conn     fn.Kwargs `salt:"connection_args"`
}

// bySocket returns the clause that authenticates a user by the account of the
// machine.
func (x *conn) bySocket(ctx context.Context, host string) (string, error) {
	state, err := x.plugin(ctx, x.by())
	switch {
	case err != nil:
		return "", err
	case state == "":
		return "", fn.Errorf("The %s plugin is not enabled.", x.by())
	case host != "localhost":
		return "", fn.Errorf("Auth via unix_socket can be set only for host=localhost")
	case x.maria():
		return " IDENTIFIED VIA unix_socket", nil
	}
	return " IDENTIFIED WITH auth_socket", nil
}

func userCreate(ctx context.Context, c *fn.Call, a createArgs) (bool, error) {
	x, err := reach(ctx, c, a.User, a.Password, a.Conn)
	if err != nil {
		return false, cannotAsk(c, err, false)
	}
	defer x.Close()
	if there, err := x.hasUser(ctx, existsArgs{User: a.User, Host: a.Host}); err != nil || there {
		return false, err
	}
	q, args := "CREATE USER ?@?", []any{a.User, a.Host}
	newer := !x.maria() && x.since(8, 0, 11)
	switch {
	case value.Truth(a.Socket):
		by, err := x.bySocket(ctx, a.Host)
		if err != nil {
			return false, err
		}
		q += by
	case salt.IsTrue(a.Open):
	case a.Password != nil && newer:
		q, args = q+" IDENTIFIED WITH ? BY ?", append(args, a.Plugin, value.Str(a.Password))
	case a.Password != nil:
		q, args = q+" IDENTIFIED BY ?", append(args, value.Str(a.Password))
	case a.Hash != nil && newer:
		q, args = q+" IDENTIFIED WITH ? AS ?", append(args, a.Plugin, value.Str(a.Hash))
	case a.Hash != nil:
		q, args = q+" IDENTIFIED BY PASSWORD ?", append(args, value.Str(a.Hash))
	default:
		c.Log.Error("password or password_hash must be specified, unless allow_passwordless=True")
		return false, nil
	}
	if err := x.run(ctx, q, args...); err != nil {
		return false, err
	}
	return x.hasUser(ctx, existsArgs{User: a.User, Host: a.Host, Password: a.Password, Hash: a.Hash, Column: a.Column})
}

type chpassArgs struct {
	User     string    `salt:"user" doc:"name of the user"`
	Host     string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Password any       `salt:"password" doc:"new password" default:"null"`
	Hash     any       `salt:"password_hash" doc:"the same as a hash" default:"null"`
	Open     any       `salt:"allow_passwordless" doc:"the user needs no password" default:"false"`
	Socket   any       `salt:"unix_socket" doc:"the user comes in by the account of the machine" default:"null"`
	Column   any       `salt:"password_column" doc:"column of the table mysql.user that holds passwords" default:"null"`
	Conn     fn.Kwargs `salt:"connection_args"`
}

func userChpass(ctx context.Context, c *fn.Call, a chpassArgs) (bool, error) {
	x, err := reach(ctx, c, a.User, a.Password, a.Conn)
	if err != nil {
		return false, cannotAsk(c, err, false)
	}
	defer x.Close()
	if there, err := x.hasUser(ctx, existsArgs{User: a.User, Host: a.Host}); err != nil || !there {
		return false, err
	}
	secret := ""
	switch {
	case a.Password != nil:
		secret = hash(value.Str(a.Password))
	case a.Hash != nil:
		secret = value.Str(a.Hash)
	case !salt.IsTrue(a.Open):
		c.Log.Error("password or password_hash must be specified, unless allow_passwordless=True")
		return false, nil
	}
	var q string
	var args []any
	plugin, err := x.pluginOf(ctx, a.User, a.Host)
	if err != nil {
		return false, err
	}
	switch {
	case salt.IsTrue(a.Open) && salt.IsTrue(a.Socket):
		by, err := x.bySocket(ctx, a.Host)
		if err != nil {
			return false, err
		}
		q, args = "ALTER USER ?@?"+by, []any{a.User, a.Host}
	case x.maria() && x.since(10, 4, 0):
		if plugin == "unix_socket" {
			plugin = native // unix_socket has no passwords
		}
		q, args = "ALTER USER ?@? IDENTIFIED VIA "+quoted(plugin, false)+" USING ?", []any{a.User, a.Host, secret}
	case !x.maria() && x.since(8, 0, 11):
		q, args = "ALTER USER ?@? IDENTIFIED WITH ?", []any{a.User, a.Host, plugin}
		if a.Password != nil {
			q, args = q+" BY ?", append(args, value.Str(a.Password))
		} else {
			q, args = q+" AS ?", append(args, secret)
		}
	default:
		column, err := x.passwords(ctx, a.Column)
		if err != nil {
			return false, err
		}
		q, args = "UPDATE mysql.user SET "+column+" = ? WHERE User = ? AND Host = ?", []any{secret, a.User, a.Host}
	}
	if err := x.run(ctx, q, args...); err != nil {
		return false, err
	}
	err = x.run(ctx, "FLUSH PRIVILEGES")
	return err == nil, err
}

func userRemove(ctx context.Context, c *fn.Call, a userArgs) (bool, error) {
	return with(ctx, c, a.Conn, func(x *conn) (bool, error) {
		if there, err := x.hasUser(ctx, existsArgs{User: a.User, Host: a.Host}); err != nil || !there {
			return false, err
		}
		err := x.run(ctx, "DROP USER ?@?", a.User, a.Host)
		return err == nil, err
	})
}

type tokenArgs struct {
	Grant string `salt:"grant" doc:"the statement"`
}

// given is the content of a GRANT statement.
type given struct {
	rights               []string // one for each column too, such as SELECT.name
	database, user, host string
}

// until splits a string at a word that is outside of quotes and brackets.
func until(text, word string) (before, after string, ok bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\'', '`', '"':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' && c != '`' {
					i++
				}
			}
		case '(':
			depth++
		case ')':
			depth--
		case ' ':
			if depth == 0 && strings.HasPrefix(text[i+1:], word+" ") {
				return text[:i], text[i+len(word)+2:], true
			}
		}
	}
	return text, "", false
}

// name splits a quoted or plain name off the beginning of a string.
func name(text string) (n, rest string) {
	if text == "" || !strings.ContainsRune("'`\"", rune(text[0])) {
		i := strings.IndexAny(text+" ", " @.")
		return text[:i], text[i:]
	}
	q := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == q && i+1 < len(text) && text[i+1] == q:
			b.WriteByte(q)
			i++
		case text[i] == q:
			return b.String(), text[i+1:]
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String(), ""
}

// splitRights splits privileges such as "SELECT (a, b), INSERT".
func splitRights(text string) []string {
	var out []string
	for text = strings.TrimSpace(text); text != ""; {
		i := strings.IndexAny(text+",", ",(")
		right := strings.TrimSpace(text[:i])
		out = append(out, right)
		if i < len(text) && text[i] == '(' {
			end := len(text)
			if n := strings.IndexByte(text[i:], ')'); n >= 0 {
				end = i + n
			}
			for col := range strings.SplitSeq(text[i+1:end], ",") {
				out = append(out, right+"."+strings.Trim(strings.TrimSpace(col), "`"))
			}
			text = text[min(end+1, len(text)):]
			i = strings.IndexByte(text+",", ',')
		}
		text = strings.TrimSpace(text[min(i+1, len(text)):])
	}
	return out
}

func readGrant(text string) (g given) {
	text = strings.TrimSpace(text)
	if len(text) > 6 && strings.EqualFold(text[:6], "GRANT ") {
		text = text[6:]
	}
	rights, rest, _ := until(text, "ON")
	g.rights = splitRights(rights)
	g.database, rest, _ = until(rest, "TO")
	g.user, rest = name(rest)
	if strings.HasPrefix(rest, "@") {
		g.host, _ = name(rest[1:])
	}
	return g
}

func tokenizeGrant(_ context.Context, _ *fn.Call, a tokenArgs) (*value.Dict, error) {
	g := readGrant(a.Grant)
	return value.DictOf("user", g.user, "host", g.host, "grant", value.Strings(g.rights), "database", g.database), nil
}

func (x *conn) grants(ctx context.Context, user, host string) (all []string, there bool, err error) {
	if there, err = x.hasUser(ctx, existsArgs{User: user, Host: host}); err != nil || !there {
		return nil, false, err
	}
	l, err := x.column(ctx, "SHOW GRANTS FOR ?@?", user, host)
	for _, it := range l.Items {
		text := value.Str(it)
		plain, _, _ := strings.Cut(text, " IDENTIFIED BY")
		if strings.Contains(text, "WITH GRANT OPTION") && !strings.Contains(plain, "WITH GRANT OPTION") {
			plain += " WITH GRANT OPTION"
		}
		all = append(all, plain)
	}
	return all, true, err
}

func userGrants(ctx context.Context, c *fn.Call, a userArgs) (any, error) {
	return with(ctx, c, a.Conn, func(x *conn) (any, error) {
		all, there, err := x.grants(ctx, a.User, a.Host)
		if !there {
			return false, err
		}
		return value.Strings(all), err
	})
}

type grantArgs struct {
	Grant    string    `salt:"grant" doc:"rights, with commas"`
	Database string    `salt:"database" doc:"database.table, either may be *"`
	User     string    `salt:"user" doc:"name of the user"`
	Host     string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Option   any       `salt:"grant_option" doc:"whether the user may give the rights to others" ignored:"the comparison leaves it out, as in Salt" default:"false"`
	Escape   bool      `salt:"escape" doc:"put names in quotes" default:"true"`
	Conn     fn.Kwargs `salt:"connection_args"`
}

// target returns the object of a grant, for a statement.
func (a grantArgs) target() (string, error) {
	i := strings.LastIndexByte(a.Database, '.')
	if i < 0 {
		return "", fn.Invalidf("the database must be given as database.table, for example %s.*", a.Database)
	}
	db, table := a.Database[:i], a.Database[i+1:]
	if a.Escape {
		if db != "*" {
			db = quoted(db, table == "*")
		}
		if table != "*" {
			table = quoted(table, false)
		}
	}
	return db + "." + table, nil
}

// rights validates privileges before they become part of a statement.
func rights(grant string) (string, error) {
	grant = strings.TrimSpace(grant)
	if strings.EqualFold(grant, "ALL") {
		grant = "ALL PRIVILEGES"
	}
	for _, r := range splitRights(grant) {
		word, _, _ := strings.Cut(r, ".")
		if word == "" || strings.Trim(strings.ToUpper(word), "ABCDEFGHIJKLMNOPQRSTUVWXYZ_ ") != "" {
			return "", fn.Errorf("Invalid grant : '%s'", word)
		}
	}
	if strings.ContainsAny(grant, ";'\"#\\") || strings.Contains(grant, "--") || strings.Contains(grant, "/*") {
		return "", fn.Errorf("Invalid grant : '%s'", grant)
	}
	return grant, nil
}

// aliases renames privileges to the names that newer MariaDB servers show.
func (x *conn) aliases(list []string) []string {
	out := make([]string, len(list))
	for i, r := range list {
		r = strings.ToUpper(r)
		if x.maria() {
			switch {
			case r == "REPLICATION REPLICA" && x.since(10, 5, 1):
				r = "REPLICATION SLAVE"
			case r == "REPLICATION CLIENT" && x.since(10, 5, 2):
				r = "BINLOG MONITOR"
			case r == "REPLICA MONITOR" && x.since(10, 5, 9):
				r = "SLAVE MONITOR"
			}
		}
		out[i] = r
	}
	return out
}

// every lists the privileges that MySQL shows since version 8.0 for ALL
// PRIVILEGES on *.*.
var every = strings.Split("ALTER,ALTER ROUTINE,CREATE,CREATE ROLE,CREATE ROUTINE,CREATE TABLESPACE,CREATE TEMPORARY TABLES,CREATE USER,CREATE "+
	"VIEW,DELETE,DROP,DROP ROLE,"+
	"EVENT,EXECUTE,FILE,INDEX,INSERT,LOCK TABLES,PROCESS,REFERENCES,RELOAD,REPLICATION CLIENT,REPLICATION SLAVE,SELECT,SHOW DATABASES,SHOW "+
	"VIEW,SHUTDOWN,SUPER,TRIGGER,UPDATE", ",")

// bare removes quotes and escapes from a name for a comparison.
func bare(name string) string { return strings.NewReplacer("`", "", `\`, "", `"`, "").Replace(name) }

func (x *conn) has(ctx context.Context, a grantArgs) (bool, error) {
	if strings.Contains(strings.ToUpper(a.Grant), "ALL") {
		a.Grant = "ALL PRIVILEGES"
	}
	grant, err := rights(a.Grant)
	if err != nil {
		return false, err
	}
	on, err := a.target()
	if err != nil {
		return false, err
	}
	want := x.aliases(splitRights(grant))
	if a.Grant == "ALL PRIVILEGES" && a.Database == "*.*" && !x.maria() && x.since(8, 0, 0) {
		want = every
	}
	all, there, err := x.grants(ctx, a.User, a.Host)
	if err != nil || !there {
		return false, err
	}
	var have []string
	for _, text := range all {
		if g := readGrant(text); bare(g.database) == bare(on) && bare(g.user) == bare(a.User) && bare(g.host) == bare(a.Host) {
			have = append(have, x.aliases(g.rights)...)
		}
	}
	for _, r := range want {
		if !slices.Contains(have, r) {
			return false, nil
		}
	}
	return len(have) > 0, nil
}

func grantExists(ctx context.Context, c *fn.Call, a grantArgs) (bool, error) {
	return with(ctx, c, a.Conn, func(x *conn) (bool, error) { return x.has(ctx, a) })
}

type addArgs struct {
	Grant    string    `salt:"grant" doc:"rights, with commas"`
	Database string    `salt:"database" doc:"database.table, either may be *"`
	User     string    `salt:"user" doc:"name of the user"`
	Host     string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Option   any       `salt:"grant_option" doc:"the user may give the rights to others" default:"false"`
	Escape   bool      `salt:"escape" doc:"put names in quotes" default:"true"`
	SSL      any       `salt:"ssl_option" doc:"list of what TLS must offer: SSL, X509, or maps of CIPHER, ISSUER, SUBJECT" default:"false"`
	Conn     fn.Kwargs `salt:"connection_args"`
}

func (a addArgs) plain() grantArgs {
	return grantArgs{a.Grant, a.Database, a.User, a.Host, a.Option, a.Escape, a.Conn}
}

// requirements returns the TLS requirements as part of a statement.
func requirements(v any) (text string, args []any, err error) {
	l, ok := v.(*value.List)
	if !ok || l.Len() == 0 {
		return "", nil, nil
	}
	var parts []string
	for _, it := range l.Items {
		d, _ := it.(*value.Dict)
		for k, v := range d.All() {
			switch key := strings.ToUpper(strings.TrimSpace(value.Str(k))); key {
			case "CIPHER", "ISSUER", "SUBJECT":
				parts, args = append(parts, key+" ?"), append(args, value.Str(v))
			case "SSL", "X509":
				if value.Truth(v) {
					parts = append(parts, key)
				}
			default:
				return "", nil, fn.Errorf("Invalid SSL option : '%s'", value.Str(k))
			}
		}
	}
	return " REQUIRE " + strings.Join(parts, " AND "), args, nil
}

func grantAdd(ctx context.Context, c *fn.Call, a addArgs) (bool, error) {
	return with(ctx, c, a.Conn, func(x *conn) (bool, error) {
		grant, err := rights(a.Grant)
		if err != nil {
			return false, err
		}
		on, err := a.plain().target()
		if err != nil {
			return false, err
		}
		q, args := "GRANT "+strings.ToUpper(grant)+" ON "+on+" TO ?@?", []any{a.User, a.Host}
		more, values, err := requirements(a.SSL)
		if err != nil {
			return false, err
		}
		q, args = q+more, append(args, values...)
		if salt.IsTrue(a.Option) {
			q += " WITH GRANT OPTION"
		}
		if err := x.run(ctx, q, args...); err != nil {
			return false, err
		}
		return x.has(ctx, a.plain())
	})
}

func grantRevoke(ctx context.Context, c *fn.Call, a grantArgs) (bool, error) {
	return with(ctx, c, a.Conn, func(x *conn) (bool, error) {
		grant, err := rights(a.Grant)
		if err != nil {
			return false, err
		}
		if salt.IsTrue(a.Option) {
			grant += ", GRANT OPTION"
		}
		escaped := a
		escaped.Escape = true
		on, err := escaped.target()
		if err != nil {
			return false, err
		}
		if err := x.run(ctx, "REVOKE "+grant+" ON "+on+" FROM ?@?", a.User, a.Host); err != nil {
			return false, err
		}
		there, err := x.has(ctx, a)
		return !there, err
	})
}
