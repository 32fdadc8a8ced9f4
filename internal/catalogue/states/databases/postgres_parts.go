package databases

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("postgres_group", func() state.Module {
		return state.Module{Name: "postgres_group", Doc: `Have roles of a PostgreSQL server that others are members of, or not.`, Funcs: []state.Func{
			state.Of("present", pgGroupPresent, `Have a role.`),
			state.Of("absent", pgGroupAbsent, `Have no such role.`),
		}}
	})
	units.Declare("postgres_privileges", func() state.Module {
		return state.Module{Name: "postgres_privileges", Doc: `Have roles of a PostgreSQL server with rights, or without.`, Funcs: []state.Func{
			state.Of("present", rightsGranted, `Grant rights.`),
			state.Of("absent", rightsRevoked, `Take rights back.`),
		}}
	})
	units.Declare("postgres_tablespace", func() state.Module {
		return state.Module{Name: "postgres_tablespace", Doc: `Have tablespaces of a PostgreSQL server, or not.`, Funcs: []state.Func{
			state.Of("present", spacePresent, `Have a tablespace.`),
			state.Of("absent", spaceAbsent, `Have no such tablespace.`),
		}}
	})
	units.Declare("postgres_extension", func() state.Module {
		return state.Module{Name: "postgres_extension", Doc: `Have extensions in a PostgreSQL database, or not.`, Funcs: []state.Func{
			state.Of("present", extensionPresent, `Have an extension.`),
			state.Of("absent", extensionAbsent, `Have no such extension.`),
		}}
	})
	units.Declare("postgres_schema", func() state.Module {
		return state.Module{Name: "postgres_schema", Doc: `Have schemas in a PostgreSQL database, or not.`, Funcs: []state.Func{
			state.Of("present", schemaPresent, `Have a schema.`),
			state.Of("absent", schemaAbsent, `Have no such schema.`),
		}}
	})
	units.Declare("postgres_language", func() state.Module {
		return state.Module{Name: "postgres_language", Doc: `Have languages in a PostgreSQL database, or not.`, Funcs: []state.Func{
			state.Of("present", languagePresent, `Have a language.`),
			state.Of("absent", languageAbsent, `Have no such language.`),
		}}
	})
}

type groupArgs struct {
	Name        string `salt:"name" doc:"name of the role"`
	CreateDB    any    `salt:"createdb" doc:"it may make databases" default:"null"`
	CreateRoles any    `salt:"createroles" doc:"it may make roles" default:"null"`
	Encrypted   any    `salt:"encrypted" doc:"how its password is kept: md5 (or true), scram-sha-256 or false" default:"null"`
	Superuser   any    `salt:"superuser" doc:"it may do everything" default:"null"`
	Inherit     any    `salt:"inherit" doc:"it has the rights of its groups" default:"null"`
	Login       any    `salt:"login" doc:"it may log in" default:"null"`
	Replication any    `salt:"replication" doc:"it may copy the server" default:"null"`
	Secret      any    `salt:"password" doc:"its password" default:"null"`
	Refresh     any    `salt:"refresh_password" doc:"set the password without a look at the present one, which only superusers may have" default:"null"`
	Groups      any    `salt:"groups" doc:"roles that it is a member of, as a list or with commas" default:"null"`
	reach
}

func pgGroupPresent(ctx context.Context, e *state.Env, a groupArgs) (state.Plan, error) {
	return rolePresent(ctx, e, "group", roleArgs{Name: a.Name, CreateDB: a.CreateDB, CreateRoles: a.CreateRoles, Encrypted: a.Encrypted,
		Superuser:   a.Superuser,
		Replication: a.Replication, Inherit: a.Inherit, Login: a.Login, Secret: a.Secret, Refresh: a.Refresh, Groups: a.Groups, reach: a.reach})
}

func pgGroupAbsent(ctx context.Context, e *state.Env, a pgNameArgs) (state.Plan, error) {
	return roleAbsent(ctx, e, "group", a)
}

type rightsArgs struct {
	Name   string `salt:"name" doc:"name of the role"`
	Object string `salt:"object_name" doc:"what the rights are on; ALL for all tables or sequences of the schema; a function with the types of its arguments"`
	Kind   string `salt:"object_type" doc:"table (or view), sequence, schema, tablespace, language, database, function or group"`
	Rights any    `salt:"privileges" doc:"list of rights, such as SELECT; not of a group" default:"null"`
	Option any    `salt:"grant_option" doc:"the role may pass the rights on" default:"null"`
	Schema string `salt:"prepend" doc:"schema of a table, sequence or function" default:"public"`
	reach
}

// what describes the privileges; pairs are the arguments for the functions.
func (a rightsArgs) what() (what string, pairs []any) {
	what = "None"
	pairs = []any{"name", a.Name, "object_name", a.Object, "object_type", a.Kind, "prepend", a.Schema}
	if value.Truth(a.Rights) {
		what = strings.Join(value.Texts(a.Rights), ",")
		pairs = append(pairs, "privileges", what)
	}
	if a.Kind == "group" {
		what = a.Object
	}
	return what, pairs
}

func rightsGranted(ctx context.Context, e *state.Env, a rightsArgs) (state.Plan, error) {
	s := a.server(e)
	what, pairs := a.what()
	pairs = append(pairs, "grant_option", a.Option)
	has, err := s.is(ctx, "has_privileges", pairs...)
	if err != nil || has {
		return state.Plan{Comment: "The requested privilege(s) are already set"}, err
	}
	return one("The privilege(s): "+what+" are set to be granted to "+a.Name, func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "privileges_grant", pairs...)
		return done(ok, err, a.Name, "Present", "The privilege(s): "+what+" have been granted to "+a.Name, "Failed to grant privilege(s): "+what+" to "+
			a.Name)
	}), nil
}

type revokeArgs struct {
	Name   string `salt:"name" doc:"name of the role"`
	Object string `salt:"object_name" doc:"what the rights are on; a function with the types of its arguments"`
	Kind   string `salt:"object_type" doc:"table (or view), sequence, schema, tablespace, language, database, function or group"`
	Rights any    `salt:"privileges" doc:"list of rights, such as SELECT; not of a group" default:"null"`
	Schema string `salt:"prepend" doc:"schema of a table, sequence or function" default:"public"`
	reach
}

func rightsRevoked(ctx context.Context, e *state.Env, a revokeArgs) (state.Plan, error) {
	s := a.server(e)
	what, pairs := rightsArgs{Name: a.Name, Object: a.Object, Kind: a.Kind, Rights: a.Rights, Schema: a.Schema}.what()
	has, err := s.is(ctx, "has_privileges", pairs...)
	if err != nil || !has {
		return state.Plan{Comment: "The requested privilege(s) are not set so cannot be revoked"}, err
	}
	return one("The privilege(s): "+what+" are set to be revoked from "+a.Name, func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "privileges_revoke", pairs...)
		return done(ok, err, a.Name, "Absent", "The privilege(s): "+what+" have been revoked from "+a.Name, "Failed to revoke privilege(s): "+what+" from "+
			a.Name)
	}), nil
}

type spaceArgs struct {
	Name      string `salt:"name" doc:"its name"`
	Directory string `salt:"directory" doc:"directory of the server, which must be empty and owned by the server's account"`
	Options   any    `salt:"options" doc:"options, as a map" default:"null"`
	Owner     any    `salt:"owner" doc:"role that owns it" default:"null"`
	reach
}

func spacePresent(ctx context.Context, e *state.Env, a spaceArgs) (state.Plan, error) {
	s := a.server(e)
	v, err := s.call(ctx, "tablespace_list")
	if err != nil {
		return state.Plan{}, err
	}
	all, _ := v.(*value.Dict)
	now := all.Dict(a.Name)
	if now == nil {
		return one("Tablespace "+a.Name+" is set to be created", func(ctx context.Context) (state.Change, error) {
			ok, err := s.is(ctx, "tablespace_create", "name", a.Name, "location", a.Directory, "options", a.Options, "owner", a.Owner)
			return done(ok, err, a.Name, "Present", "The tablespace "+a.Name+" has been created", "Failed to create tablespace "+a.Name)
		}), nil
	}
	if now.Str("Location") != a.Directory {
		return state.Plan{}, state.Errorf("Tablespace %s is not at the right location (%s, not %s). This is unfixable without dropping and "+
			"recreating the tablespace.", a.Name, now.Str("Location"), a.Directory)
	}
	p := state.Plan{Comment: "Tablespace " + a.Name + " is already present"}
	if value.Truth(a.Owner) && now.Str("Owner") != value.Str(a.Owner) {
		p = one("Tablespace "+a.Name+" owner to be altered", func(ctx context.Context) (state.Change, error) {
			ok, err := s.is(ctx, "tablespace_alter", "name", a.Name, "new_owner", a.Owner)
			c, err := done(ok, err, a.Name, "", "Tablespace "+a.Name+" owner changed", "Failed to change the owner of tablespace "+a.Name)
			if err == nil {
				c.Diff = value.DictOf(a.Name, value.DictOf("owner", a.Owner))
			}
			return c, err
		})
	}
	wanted := value.NewDict(2)
	if d, _ := a.Options.(*value.Dict); d != nil {
		for k, v := range d.All() {
			if !strings.Contains(now.Str("Opts"), value.Str(k)+"="+value.Str(v)) {
				wanted.Set(k, v)
			}
		}
	}
	if wanted.Len() > 0 {
		p.Steps = append(p.Steps, one("Tablespace "+a.Name+" options to be altered", func(ctx context.Context) (state.Change, error) {
			ok, err := s.is(ctx, "tablespace_alter", "name", a.Name, "set_option", wanted)
			c, err := done(ok, err, a.Name, "", "Tablespace "+a.Name+" opts changed", "Failed to change options of tablespace "+a.Name)
			if err == nil {
				c.Diff = value.DictOf(a.Name, value.DictOf("options", wanted))
			}
			return c, err
		}).Steps...)
	}
	return p, nil
}

func spaceAbsent(ctx context.Context, e *state.Env, a pgNameArgs) (state.Plan, error) {
	s := a.server(e)
	there, err := s.is(ctx, "tablespace_exists", "name", a.Name)
	if err != nil || !there {
		return state.Plan{Comment: "Tablespace " + a.Name + " is not present, so it cannot be removed"}, err
	}
	return one("Tablespace "+a.Name+" is set to be removed", func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "tablespace_remove", "name", a.Name)
		return done(ok, err, a.Name, "Absent", "Tablespace "+a.Name+" has been removed", "Tablespace "+a.Name+" failed to be removed")
	}), nil
}

type extensionArgs struct {
	Name        string `salt:"name" doc:"name of the extension"`
	IfNotExists any    `salt:"if_not_exists" doc:"no failure if another has installed it meanwhile (true)" default:"null"`
	Schema      any    `salt:"schema" doc:"schema to have it in" default:"null"`
	Version     any    `salt:"ext_version" doc:"version to have" default:"null"`
	From        any    `salt:"from_version" doc:"version of what stands for it without being an extension; servers up to 12 know this" default:"null"`
	reach
}

func extensionPresent(ctx context.Context, e *state.Env, a extensionArgs) (state.Plan, error) {
	s := a.server(e)
	v, err := s.call(ctx, "create_metadata", "name", a.Name, "schema", a.Schema, "ext_version", a.Version)
	if err != nil {
		return s.unless(ctx, a.DB, "Extension "+a.Name+" is set to be installed"), err
	}
	verb, past := "upgrade", "upgraded"
	switch found := value.Texts(v); {
	case len(found) == 1 && found[0] == "EXTENSION NOT INSTALLED":
		verb, past = "install", "installed"
	case len(found) < 2:
		return state.Plan{Comment: "Extension " + a.Name + " is already present"}, nil
	}
	return one("Extension "+a.Name+" is set to be "+past, func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "create_extension", "name", a.Name, "if_not_exists", a.IfNotExists, "schema", a.Schema, "ext_version", a.Version, "from_version",
			a.From)
		return done(ok, err, a.Name, strings.ToUpper(past[:1])+past[1:], "The extension "+a.Name+" has been "+past, "Failed to "+verb+" extension "+a.Name)
	}), nil
}

type extensionAbsentArgs struct {
	Name     string `salt:"name" doc:"name of the extension"`
	IfExists any    `salt:"if_exists" doc:"no failure if another has removed it meanwhile" default:"null"`
	Restrict any    `salt:"restrict" doc:"not if something needs it; cascade must be false then" default:"null"`
	Cascade  any    `salt:"cascade" doc:"and what needs it (true)" default:"null"`
	reach
}

func extensionAbsent(ctx context.Context, e *state.Env, a extensionAbsentArgs) (state.Plan, error) {
	s := a.server(e)
	there, err := s.is(ctx, "is_installed_extension", "name", a.Name)
	if err != nil || !there {
		return state.Plan{Comment: "Extension " + a.Name + " is not present, so it cannot be removed"}, err
	}
	return one("Extension "+a.Name+" is set to be removed", func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "drop_extension", "name", a.Name, "if_exists", a.IfExists, "restrict", a.Restrict, "cascade", a.Cascade)
		return done(ok, err, a.Name, "Absent", "Extension "+a.Name+" has been removed", "Extension "+a.Name+" failed to be removed")
	}), nil
}

// unless returns the forecast if a database cannot be queried because it does
// not exist: an earlier state may be about to create it. Otherwise the plan is
// empty.
func (s server) unless(ctx context.Context, database any, would string) state.Plan {
	kw := fn.Kwargs{Dict: s.conn.Clone()}
	kw.Delete("dbname")
	kw.Delete("maintenance_db")
	there, err := server{s.e, s.module, kw}.is(ctx, "db_exists", "name", database)
	if err != nil || there {
		return state.Plan{}
	}
	return state.Plan{Forecast: &state.Result{Comment: would}}
}

// schemaReach are the arguments for the connection to the database of a schema.
type schemaReach struct {
	User     any `salt:"user" doc:"account to run psql as" default:"null"`
	Role     any `salt:"db_user" doc:"role that asks" default:"null"`
	Password any `salt:"db_password" doc:"password of db_user" default:"null"`
	Host     any `salt:"db_host" doc:"name, address or directory of the socket" default:"null"`
	Port     any `salt:"db_port" doc:"port" default:"null"`
}

func (r schemaReach) server(e *state.Env, database string) server {
	kw := value.DictOf("dbname", database)
	for k, v := range map[string]any{"user": r.User, "db_user": r.Role, "db_password": r.Password, "db_host": r.Host, "db_port": r.Port} {
		if v != nil {
			kw.Set(k, v)
		}
	}
	return server{e, "postgres", fn.Kwargs{Dict: kw}}
}

type schemaArgs struct {
	Database string `salt:"dbname" doc:"the database"`
	Name     string `salt:"name" doc:"name of the schema"`
	Owner    any    `salt:"owner" doc:"role that owns it when it is made" default:"null"`
	schemaReach
}

func schemaPresent(ctx context.Context, e *state.Env, a schemaArgs) (state.Plan, error) {
	s := a.server(e, a.Database)
	there, err := s.is(ctx, "schema_exists", "name", a.Name)
	would := "Schema " + a.Name + " is set to be created in database " + a.Database + "."
	switch {
	case err != nil:
		return s.unless(ctx, a.Database, would), err
	case there:
		return state.Plan{Comment: "Schema " + a.Name + " already exists in database " + a.Database}, nil
	}
	return one(would, func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "schema_create", "name", a.Name, "owner", a.Owner)
		return done(ok, err, a.Name, "Present", "Schema "+a.Name+" has been created in database "+a.Database, "Failed to create schema "+a.Name+
			" in database "+a.Database)
	}), nil
}

type schemaAbsentArgs struct {
	Database string `salt:"dbname" doc:"the database"`
	Name     string `salt:"name" doc:"name of the schema"`
	schemaReach
}

func schemaAbsent(ctx context.Context, e *state.Env, a schemaAbsentArgs) (state.Plan, error) {
	s := a.server(e, a.Database)
	there, err := s.is(ctx, "schema_exists", "name", a.Name)
	if err != nil || !there {
		return state.Plan{Comment: "Schema " + a.Name + " is not present in database " + a.Database + ", so it cannot be removed"}, err
	}
	return one("Schema "+a.Name+" is set to be removed from database "+a.Database, func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "schema_remove", "name", a.Name)
		return done(ok, err, a.Name, "Absent", "Schema "+a.Name+" has been removed from database "+a.Database, "Schema "+a.Name+" failed to be removed")
	}), nil
}

type languageArgs struct {
	Name     string `salt:"name" doc:"name of the language"`
	Database string `salt:"maintenance_db" doc:"the database"`
	User     any    `salt:"user" doc:"account to run psql as" default:"null"`
	Password any    `salt:"db_password" doc:"password of db_user" default:"null"`
	Host     any    `salt:"db_host" doc:"name, address or directory of the socket" default:"null"`
	Port     any    `salt:"db_port" doc:"port" default:"null"`
	Role     any    `salt:"db_user" doc:"role that asks" default:"null"`
}

func (a languageArgs) server(e *state.Env) server {
	return reach{User: a.User, DB: a.Database, Password: a.Password, Host: a.Host, Port: a.Port, Role: a.Role}.server(e)
}

func languagePresent(ctx context.Context, e *state.Env, a languageArgs) (state.Plan, error) {
	s := a.server(e)
	there, err := s.is(ctx, "language_exists", "name", a.Name)
	would := "Language " + a.Name + " is set to be installed"
	switch {
	case err != nil:
		return s.unless(ctx, a.Database, would), err
	case there:
		return state.Plan{Comment: "Language " + a.Name + " is already installed"}, nil
	}
	return one(would, func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "language_create", "name", a.Name)
		return done(ok, err, a.Name, "Present", "Language "+a.Name+" has been installed", "Failed to install language "+a.Name)
	}), nil
}

func languageAbsent(ctx context.Context, e *state.Env, a languageArgs) (state.Plan, error) {
	s := a.server(e)
	there, err := s.is(ctx, "language_exists", "name", a.Name)
	if err != nil || !there {
		return state.Plan{Comment: "Language " + a.Name + " is not present so it cannot be removed"}, err
	}
	return one("Language "+a.Name+" is set to be removed", func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "language_remove", "name", a.Name)
		return done(ok, err, a.Name, "Absent", "Language "+a.Name+" has been removed", "Failed to remove language "+a.Name)
	}), nil
}
