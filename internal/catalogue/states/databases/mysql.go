package databases

import (
	"context"
	"fmt"
	"os"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("mysql_database", func() state.Module {
		return state.Module{Name: "mysql_database", Doc: `Have databases of a MySQL or MariaDB server, or not.`, Funcs: []state.Func{
			state.Of("present", databasePresent, `Have a database.`),
			state.Of("absent", databaseAbsent, `Have no such database.`),
		}}
	})
	units.Declare("mysql_user", func() state.Module {
		return state.Module{Name: "mysql_user", Doc: `Have users of a MySQL or MariaDB server, or not.`, Funcs: []state.Func{
			state.Of("present", userPresent, `Have a user with a password.`),
			state.Of("absent", userAbsent, `Have no such user.`),
		}}
	})
	units.Declare("mysql_grants", func() state.Module {
		return state.Module{Name: "mysql_grants", Doc: `Have rights of users of a MySQL or MariaDB server, or not.`, Funcs: []state.Func{
			state.Of("present", grantPresent, `Have a user with rights.`),
			state.Of("absent", grantAbsent, `Have a user without rights.`, fn.Params("name", "grant", "database", "user", "host", "grant_option", "escape")),
		}}
	})
	units.Declare("mysql_query", func() state.Module {
		return state.Module{Name: "mysql_query", Doc: `Run statements on a MySQL or MariaDB server.`, Funcs: []state.Func{
			state.Of("run", queryRun, `Run a statement.`),
			state.Of("run_file", queryRunFile, `Run the statements of a file.`),
		}}
	})
}

type databaseArgs struct {
	Name    string    `salt:"name" doc:"name of the database"`
	Charset any       `salt:"character_set" doc:"character set" default:"null"`
	Collate any       `salt:"collate" doc:"collation" default:"null"`
	Conn    fn.Kwargs `salt:"connection_args"`
}

func databasePresent(ctx context.Context, e *state.Env, a databaseArgs) (state.Plan, error) {
	s := server{e, "mysql", a.Conn}
	get := func(ctx context.Context) (*value.Dict, error) {
		v, err := s.call(ctx, "db_get", "name", a.Name)
		d, _ := v.(*value.Dict)
		return d, err
	}
	now, err := get(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	if now.Len() == 0 {
		return one("Database "+a.Name+" is not present and needs to be created", func(ctx context.Context) (state.Change, error) {
			ok, err := s.is(ctx, "db_create", "name", a.Name, "character_set", a.Charset, "collate", a.Collate)
			return done(ok, err, a.Name, "Present", "The database "+a.Name+" has been created", "Failed to create database "+a.Name)
		}), nil
	}
	var texts []string
	if value.Truth(a.Charset) && value.Str(a.Charset) != now.Str("character_set") {
		texts = append(texts, "Database character set "+value.Str(a.Charset)+" != "+now.Str("character_set")+" needs to be updated")
	}
	already := "Database " + a.Name + " is already present"
	collates := value.Truth(a.Collate) && value.Str(a.Collate) != now.Str("collate")
	if collates {
		if len(texts) == 0 {
			texts = append(texts, already)
		}
		texts = append(texts, "Database collate "+value.Str(a.Collate)+" != "+now.Str("collate")+" needs to be updated")
	}
	if len(texts) == 0 {
		return state.Plan{Comment: already}, nil
	}
	comment := strings.Join(texts, "\n")
	would := comment
	if !collates {
		would += "\nDatabase " + a.Name + " is going to be updated"
	}
	return one(would, func(ctx context.Context) (state.Change, error) {
		if _, err := s.call(ctx, "alter_db", "name", a.Name, "character_set", a.Charset, "collate", a.Collate); err != nil {
			return state.Change{}, err
		}
		after, err := get(ctx)
		diff := value.NewDict(2)
		for _, k := range []string{"collate", "character_set"} {
			if before, now := now.At(k), after.At(k); !value.Equal(before, now) {
				diff.Set(k, value.DictOf("before", before, "now", now))
			}
		}
		return state.Change{Diff: diff, Comment: comment}, err
	}), nil
}

type nameArgs struct {
	Name string    `salt:"name" doc:"name of the database"`
	Conn fn.Kwargs `salt:"connection_args"`
}

func databaseAbsent(ctx context.Context, e *state.Env, a nameArgs) (state.Plan, error) {
	s := server{e, "mysql", a.Conn}
	missing := "Database " + a.Name + " is not present, so it cannot be removed"
	there, err := s.is(ctx, "db_exists", "name", a.Name)
	if err != nil || !there {
		return state.Plan{Comment: missing}, err
	}
	return one("Database "+a.Name+" is present and needs to be removed", func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "db_remove", "name", a.Name)
		if err == nil && !ok {
			return state.Change{}, state.Errorf("Unable to remove database %s", a.Name)
		}
		return done(ok, err, a.Name, "Absent", "Database "+a.Name+" has been removed", "Unable to remove database "+a.Name)
	}), nil
}

const native = "mysql_native_password"

type userArgs struct {
	Name     string    `salt:"name" doc:"name of the user"`
	Host     string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Password any       `salt:"password" doc:"password" default:"null"`
	Hash     any       `salt:"password_hash" doc:"the same as a hash" default:"null"`
	Open     any       `salt:"allow_passwordless" doc:"the user needs no password" default:"false"`
	Socket   any       `salt:"unix_socket" doc:"the user comes in by the account of the machine" default:"false"`
	Column   any       `salt:"password_column" doc:"column of the table mysql.user that holds passwords" default:"null"`
	Plugin   string    `salt:"auth_plugin" doc:"plugin that lets the user in, of servers of MySQL since 8.0.11" default:"mysql_native_password"`
	Conn     fn.Kwargs `salt:"connection_args"`
}

func (a userArgs) who() string { return a.Name + "@" + a.Host }

func userPresent(ctx context.Context, e *state.Env, a userArgs) (state.Plan, error) {
	s := server{e, "mysql", a.Conn}
	passwordless := !value.Truth(a.Password) && !value.Truth(a.Hash)
	asks := []any{"user", a.Name, "host", a.Host, "unix_socket", a.Socket, "password_column", a.Column}
	already := "User " + a.who() + " is already present"
	if passwordless {
		if !salt.IsTrue(a.Open) && !value.Truth(a.Socket) {
			return state.Plan{}, state.Errorf("Either password or password_hash must be specified, unless allow_passwordless is True")
		}
		asks = append(asks, "passwordless", true)
		if value.Truth(a.Open) {
			already += " with passwordless login"
		}
	} else {
		asks = append(asks, "password", a.Password, "password_hash", a.Hash)
		switch {
		case a.Plugin != native:
			already += ". Unable to verify password."
		case value.Truth(a.Hash) && !value.Truth(a.Password):
			already += " with the desired password hash"
		default:
			already += " with the desired password"
		}
	}
	if as, err := s.is(ctx, "user_exists", asks...); err != nil || as {
		return state.Plan{Comment: already}, err
	}
	there, err := s.is(ctx, "user_exists", "user", a.Name, "host", a.Host)
	switch {
	case err != nil:
		return state.Plan{}, err
	case there:
		return a.change(s, passwordless)
	}
	return a.create(s)
}

// change returns the plan to change a user's password.
func (a userArgs) change(s server, passwordless bool) (state.Plan, error) {
	word, past := "change", "changed"
	if passwordless {
		word, past = "clear", "cleared"
	}
	would := "Password for user " + a.who() + " is set to be " + past
	if passwordless && !salt.IsTrue(a.Open) {
		would += ", but allow_passwordless != True"
	}
	p := one(would, func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "user_chpass", "user", a.Name, "host", a.Host, "password", a.Password, "password_hash", a.Hash, "allow_passwordless", a.Open,
			"unix_socket", a.Socket)
		c, err := done(ok, err, a.Name, "Updated", "Password for user "+a.who()+" has been "+past, "Failed to "+word+" password for user "+a.who())
		if err != nil && passwordless && !salt.IsTrue(a.Open) {
			err = state.Errorf("%w. Note: allow_passwordless must be True to permit passwordless login.", err)
		}
		return c, err
	})
	if passwordless && !salt.IsTrue(a.Open) {
		p.Forecast = &state.Result{Verdict: state.Failed, Comment: would}
	}
	return p, nil
}

// create returns the plan to create a user.
func (a userArgs) create(s server) (state.Plan, error) {
	would, did := "User "+a.who()+" is set to be added", "The user "+a.who()+" has been added"
	if value.Truth(a.Open) {
		would, did = would+" with passwordless login", did+" with passwordless login"
	}
	refused := value.Truth(a.Open) && !salt.IsTrue(a.Open)
	if refused {
		would += ", but allow_passwordless != True"
	}
	if value.Truth(a.Socket) {
		would, did = would+" using unix_socket", did+" using unix_socket"
	}
	p := one(would, func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "user_create", "user", a.Name, "host", a.Host, "password", a.Password, "password_hash", a.Hash, "allow_passwordless", a.Open,
			"unix_socket", a.Socket, "password_column", a.Column, "auth_plugin", a.Plugin)
		return done(ok, err, a.Name, "Present", did, "Failed to create user "+a.who())
	})
	if refused {
		p.Forecast = &state.Result{Verdict: state.Failed, Comment: would}
	}
	return p, nil
}

type goneArgs struct {
	Name string    `salt:"name" doc:"name of the user"`
	Host string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Conn fn.Kwargs `salt:"connection_args"`
}

func userAbsent(ctx context.Context, e *state.Env, a goneArgs) (state.Plan, error) {
	s, who := server{e, "mysql", a.Conn}, a.Name+"@"+a.Host
	there, err := s.is(ctx, "user_exists", "user", a.Name, "host", a.Host)
	if err != nil || !there {
		return state.Plan{Comment: "User " + who + " is not present, so it cannot be removed"}, err
	}
	return one("User "+who+" is set to be removed", func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "user_remove", "user", a.Name, "host", a.Host)
		if err != nil {
			return state.Change{}, err
		}
		return done(ok, nil, a.Name, "Absent", "User "+who+" has been removed", "User "+who+" cannot be removed")
	}), nil
}

type grantArgs struct {
	Name     string    `salt:"name" doc:"what the rights are called in the SLS"`
	Grant    string    `salt:"grant" doc:"rights, with commas" default:"null"`
	Database string    `salt:"database" doc:"database.table, either may be *" default:"null"`
	User     string    `salt:"user" doc:"name of the user" default:"null"`
	Host     string    `salt:"host" doc:"where the user comes from" default:"localhost"`
	Option   any       `salt:"grant_option" doc:"the user may give the rights to others" default:"false"`
	Escape   bool      `salt:"escape" doc:"put names in quotes" default:"true"`
	Revoke   any       `salt:"revoke_first" doc:"take the user's rights on the database before" default:"false"`
	SSL      any       `salt:"ssl_option" doc:"list of what TLS must offer: SSL, X509, or maps of CIPHER, ISSUER, SUBJECT" default:"false"`
	Conn     fn.Kwargs `salt:"connection_args"`
}

func (a grantArgs) pairs(more ...any) []any {
	return append([]any{"grant", a.Grant, "database", a.Database, "user", a.User, "host", a.Host, "grant_option", a.Option, "escape", a.Escape}, more...)
}

func (a grantArgs) complete() error {
	for _, must := range [][2]string{{"grant", a.Grant}, {"database", a.Database}, {"user", a.User}} {
		if must[1] == "" {
			return state.Errorf("%s must be given", must[0])
		}
	}
	return nil
}

func grantPresent(ctx context.Context, e *state.Env, a grantArgs) (state.Plan, error) {
	if err := a.complete(); err != nil {
		return state.Plan{}, err
	}
	s := server{e, "mysql", a.Conn}
	there, err := s.is(ctx, "grant_exists", a.pairs()...)
	text := "Grant " + a.Grant + " on " + a.Database + " to " + a.User + "@" + a.Host
	if err != nil || there {
		return state.Plan{Comment: text + " is already present"}, err
	}
	return one("MySQL grant "+a.Name+" is set to be created", func(ctx context.Context) (state.Change, error) {
		if value.Truth(a.Revoke) {
			if err := a.revoke(ctx, s); err != nil {
				return state.Change{}, err
			}
		}
		ok, err := s.is(ctx, "grant_add", a.pairs("ssl_option", a.SSL)...)
		return done(ok, err, a.Name, "Present", text+" has been added",
			`Failed to execute: "GRANT `+a.Grant+" ON "+a.Database+" TO "+a.User+"@"+a.Host+`"`)
	}), nil
}

// revoke revokes the user's privileges on the database.
func (a grantArgs) revoke(ctx context.Context, s server) error {
	v, err := s.call(ctx, "user_grants", "user", a.User, "host", a.Host)
	if err != nil {
		return err
	}
	db, _, _ := cutLast(a.Database, ".")
	bare := func(s string) string { return strings.NewReplacer("`", "", `\`, "").Replace(s) }
	all, _ := v.(*value.List)
	if all == nil {
		return nil
	}
	for _, text := range all.Items {
		t, err := s.e.Exec(ctx, "mysql.tokenize_grant", nil, text)
		if err != nil {
			return err
		}
		d, _ := t.(*value.Dict)
		of, _, _ := cutLast(bare(d.Str("database")), ".")
		rights := strings.Join(value.Texts(d.At("grant")), ",")
		if of != db || strings.EqualFold(rights, "USAGE") {
			continue
		}
		if _, err := s.call(ctx, "grant_revoke", "grant", rights, "database", a.Database, "user", a.User, "host", a.Host, "grant_option", a.Option, "escape",
			a.Escape); err != nil {
			return err
		}
	}
	return nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func grantAbsent(ctx context.Context, e *state.Env, a grantArgs) (state.Plan, error) {
	if err := a.complete(); err != nil {
		return state.Plan{}, err
	}
	s := server{e, "mysql", a.Conn}
	on := a.Grant + " on " + a.Database
	who := a.User + "@" + a.Host
	there, err := s.is(ctx, "grant_exists", a.pairs()...)
	if err != nil {
		return state.Plan{}, state.Errorf("Unable to determine if grant %s for %s exists (%w)", on, who, err)
	}
	if !there {
		return state.Plan{Comment: "Grant " + on + " to " + who + " is not present, so it cannot be revoked"}, nil
	}
	return one("MySQL grant "+a.Name+" is set to be revoked", func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "grant_revoke", a.pairs()...)
		return done(ok, err, a.Name, "Absent", "Grant "+on+" for "+who+" has been revoked", "Unable to revoke grant "+on+" for "+who)
	}), nil
}

// into are the arguments for where to store the result of statements.
type into struct {
	Output    any `salt:"output" doc:"grain, or a file to write the answer to" default:"null"`
	Grain     any `salt:"grain" doc:"grain to hold the answer" default:"null"`
	Key       any `salt:"key" doc:"key of the grain, which is a map then" default:"null"`
	Overwrite any `salt:"overwrite" doc:"run also if the grain or file is there" default:"true"`
}

type queryArgs struct {
	Name     string `salt:"name" doc:"what the statement is called in the SLS"`
	Database string `salt:"database" doc:"name of the database"`
	Query    string `salt:"query" doc:"the statement"`
	into
	Check bool      `salt:"check_db_exists" doc:"do nothing if there is no such database" default:"true"`
	Flags any       `salt:"client_flags" doc:"flags of the client library; without effect" default:"null"`
	Conn  fn.Kwargs `salt:"connection_args"`
}

type fileArgs struct {
	Name     string `salt:"name" doc:"what the statements are called in the SLS"`
	Database string `salt:"database" doc:"name of the database"`
	File     string `salt:"query_file" doc:"file with statements, or its address on a server" default:"null"`
	into
	Saltenv any       `salt:"saltenv" doc:"environment of the file" default:"null"`
	Check   bool      `salt:"check_db_exists" doc:"do nothing if there is no such database" default:"true"`
	Flags   any       `salt:"client_flags" doc:"flags of the client library; without effect" default:"null"`
	Conn    fn.Kwargs `salt:"connection_args"`
}

func queryRun(ctx context.Context, e *state.Env, a queryArgs) (state.Plan, error) {
	s := server{e, "mysql", a.Conn}
	return a.plan(ctx, s, a.Flags, a.Check, a.Database, a.Name, func(ctx context.Context) (any, error) {
		return s.call(ctx, "query", "database", a.Database, "query", a.Query)
	})
}

func queryRunFile(ctx context.Context, e *state.Env, a fileArgs) (state.Plan, error) {
	s := server{e, "mysql", a.Conn}
	path := a.File
	if strings.Contains(path, "://") {
		env := e.Saltenv
		if value.Truth(a.Saltenv) {
			env = value.Str(a.Saltenv)
		}
		v, err := e.Exec(ctx, "cp.cache_file", value.DictOf("saltenv", env), path)
		if err != nil {
			return state.Plan{}, err
		}
		path = value.Str(v)
	}
	if _, err := os.Stat(path); err != nil {
		return state.Plan{}, state.Errorf("File %s does not exist", path)
	}
	return a.plan(ctx, s, a.Flags, a.Check, a.Database, a.Database, func(ctx context.Context) (any, error) {
		return s.call(ctx, "file_query", "database", a.Database, "file_name", path)
	})
}

func (a into) plan(ctx context.Context, s server, flags any, check bool, database, shown string, run func(ctx context.Context) (any, error)) (state.Plan,
	error) {
	if _, isList := flags.(*value.List); flags != nil && !isList {
		return state.Plan{}, state.Errorf("Error: client_flags must be a list.")
	}
	if check {
		there, err := s.is(ctx, "db_exists", "name", database)
		if err != nil {
			return state.Plan{}, err
		}
		if !there { // not a failure in Salt
			r := state.Result{Verdict: state.Undecided, Comment: "Database " + shown + " is not present"}
			return state.Plan{Whole: func(context.Context, bool) state.Result { return r }}, nil
		}
	}
	where, already, err := a.where(ctx, s)
	if err != nil || already != "" {
		return state.Plan{Comment: already}, err
	}
	would := "Query would execute, not storing result"
	if where != "" {
		would = "Query would execute, storing result in " + where
	}
	return one(would, func(ctx context.Context) (state.Change, error) {
		answer, err := run(ctx)
		if err != nil {
			return state.Change{}, err
		}
		mapped(answer)
		text, err := a.store(ctx, s.e, answer)
		return state.Change{Diff: value.DictOf("query", text), Comment: value.Str(answer)}, err
	}), nil
}

// where describes where the result is stored. already is the comment if nothing
// has to be done.
func (a into) where(ctx context.Context, s server) (where, already string, err error) {
	overwrite := value.Truth(a.Overwrite)
	switch {
	case a.Output == "grain" && a.Grain == nil:
		return "", "", state.Errorf("Error: output type 'grain' needs the grain parameter\n")
	case a.Output == "grain":
		grain := value.Str(a.Grain)
		v, err := s.e.Exec(ctx, "grains.get", nil, grain)
		if err != nil {
			return "", "", err
		}
		if a.Key != nil {
			d, _ := v.(*value.Dict)
			if grain += ":" + value.Str(a.Key); !overwrite && d.Has(a.Key) {
				return "", "No execution needed. Grain " + grain + " already set", nil
			}
			return "grain: " + grain, "", nil
		}
		names, err := s.e.Exec(ctx, "grains.ls", nil)
		if err != nil {
			return "", "", err
		}
		if l, _ := names.(*value.List); !overwrite && l != nil && contains(l, a.Grain) {
			return "", "No execution needed. Grain " + grain + " already set", nil
		}
		return "grain: " + grain, "", nil
	case a.Output != nil:
		path := value.Str(a.Output)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && !overwrite {
			return "", "No execution needed. File " + path + " already set", nil
		}
		return "file: " + path, "", nil
	}
	return "", "", nil
}

func contains(l *value.List, v any) bool {
	for _, it := range l.Items {
		if value.Equal(it, v) {
			return true
		}
	}
	return false
}

// mapped converts the rows of a result to maps.
func mapped(answer any) {
	d, ok := answer.(*value.Dict)
	if !ok || !d.Has("results") {
		return
	}
	columns := items(d.At("columns"))
	out := &value.List{}
	for _, it := range d.List("results") {
		row, _ := it.(*value.List)
		line := value.NewDict(len(columns))
		for i, name := range columns {
			if row != nil && i < row.Len() {
				line.Set(name, row.Items[i])
			}
		}
		out.Append(line)
	}
	d.Set("results", out)
}

// items returns the items of a list or tuple. (The columns of a file's
// statements are a list of tuples.)
func items(v any) []any {
	switch v := v.(type) {
	case *value.List:
		return v.Items
	case value.Tuple:
		return v
	}
	return nil
}

// store stores a result and returns a description of where.
func (a into) store(ctx context.Context, e *state.Env, answer any) (string, error) {
	switch {
	case a.Output == "grain":
		name := value.Str(a.Grain)
		v := answer
		if a.Key != nil {
			old, err := e.Exec(ctx, "grains.get", nil, name)
			if err != nil {
				return "", err
			}
			d, ok := old.(*value.Dict)
			if !ok {
				d = value.NewDict(1)
			}
			d = d.Clone()
			d.Set(a.Key, answer)
			v = d
			_, err = e.Exec(ctx, "grains.setval", nil, name, v)
			return "Executed. Output into grain: " + name + ":" + value.Str(a.Key), err
		}
		_, err := e.Exec(ctx, "grains.setval", nil, name, v)
		return "Executed. Output into grain: " + name, err
	case a.Output != nil:
		path := value.Str(a.Output)
		var b strings.Builder
		d, _ := answer.(*value.Dict)
		rows := d.List("results")
		for _, it := range rows {
			row, _ := it.(*value.Dict)
			for k, v := range row.All() {
				fmt.Fprintf(&b, "%s:%s\n", value.Str(k), value.Str(v))
			}
		}
		if !d.Has("results") {
			for k, v := range d.All() {
				fmt.Fprintf(&b, "%s:%s\n", value.Str(k), value.Str(v))
			}
		}
		if err := atomicfile.Write(path, []byte(b.String()), 0o644, false); err != nil {
			return "", state.Errorf("cannot write the answer: %w", err)
		}
		return "Executed. Output into " + path, nil
	}
	return "Executed", nil
}
