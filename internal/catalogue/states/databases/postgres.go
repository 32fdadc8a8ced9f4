package databases

import (
	"context"
	"slices"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("postgres_database", func() state.Module {
		return state.Module{Name: "postgres_database", Doc: `Have databases of a PostgreSQL server, or not.`, Funcs: []state.Func{
			state.Of("present", pgDatabasePresent, `Have a database.`),
			state.Of("absent", pgDatabaseAbsent, `Have no such database.`),
		}}
	})
	units.Declare("postgres_user", func() state.Module {
		return state.Module{Name: "postgres_user", Doc: `Have roles of a PostgreSQL server that may log in, or not.`, Funcs: []state.Func{
			state.Of("present", roleNeeded, `Have a role.`),
			state.Of("absent", roleUnwanted, `Have no such role.`),
		}}
	})
}

// reach are the arguments for the connection to a PostgreSQL server.
type reach struct {
	User     any `salt:"user" doc:"account to run psql as" default:"null"`
	DB       any `salt:"maintenance_db" doc:"database to connect to" default:"null"`
	Password any `salt:"db_password" doc:"password of db_user" default:"null"`
	Host     any `salt:"db_host" doc:"name, address or directory of the socket" default:"null"`
	Port     any `salt:"db_port" doc:"port" default:"null"`
	Role     any `salt:"db_user" doc:"role that asks" default:"null"`
}

func (r reach) server(e *state.Env) server {
	kw := value.NewDict(6)
	for k, v := range map[string]any{"maintenance_db": r.DB, "runas": r.User, "host": r.Host, "user": r.Role, "port": r.Port, "password": r.Password} {
		if v != nil {
			kw.Set(k, v)
		}
	}
	return server{e, "postgres", fn.Kwargs{Dict: kw}}
}

type pgDatabaseArgs struct {
	Name       string `salt:"name" doc:"name of the database"`
	Tablespace any    `salt:"tablespace" doc:"tablespace" default:"null"`
	Encoding   any    `salt:"encoding" doc:"encoding of texts" default:"null"`
	Collate    any    `salt:"lc_collate" doc:"order of texts" default:"null"`
	Ctype      any    `salt:"lc_ctype" doc:"kinds of characters" default:"null"`
	Owner      any    `salt:"owner" doc:"role that owns it" default:"null"`
	Recurse    any    `salt:"owner_recurse" doc:"the role owns what is in it, too" default:"false"`
	Template   any    `salt:"template" doc:"database to copy" default:"null"`
	reach
}

func pgDatabasePresent(ctx context.Context, e *state.Env, a pgDatabaseArgs) (state.Plan, error) {
	s := a.server(e)
	v, err := s.call(ctx, "db_list")
	if err != nil {
		return state.Plan{}, err
	}
	all, _ := v.(*value.Dict)
	now := all.Dict(a.Name)
	differs := func(key string, want any) bool { return value.Truth(want) && value.Str(want) != now.Str(key) }
	switch {
	case now == nil:
		return one("Database "+a.Name+" is set to be created", func(ctx context.Context) (state.Change, error) {
			ok, err := s.is(ctx, "db_create", "name", a.Name, "tablespace", a.Tablespace, "encoding", a.Encoding, "lc_collate", a.Collate, "lc_ctype",
				a.Ctype,
				"owner", a.Owner, "template", a.Template)
			return done(ok, err, a.Name, "Present", "The database "+a.Name+" has been created", "Failed to create database "+a.Name)
		}), nil
	case value.Truth(a.Encoding) && !strings.EqualFold(value.Str(a.Encoding), now.Str("Encoding")), differs("Collate", a.Collate), differs("Ctype", a.Ctype):
		return state.Plan{}, state.Errorf("Database %s has wrong parameters which couldn't be changed on fly.", a.Name)
	case differs("Tablespace", a.Tablespace), differs("Owner", a.Owner):
		return one("Database "+a.Name+" exists, but parameters need to be changed", func(ctx context.Context) (state.Change, error) {
			ok, err := s.is(ctx, "db_alter", "name", a.Name, "tablespace", a.Tablespace, "owner", a.Owner, "owner_recurse", a.Recurse)
			return done(ok, err, a.Name, "Parameters changed", "Parameters for database "+a.Name+" have been changed",
				"Failed to change parameters for database "+a.Name)
		}), nil
	}
	return state.Plan{Comment: "Database " + a.Name + " is already present"}, nil
}

type pgNameArgs struct {
	Name string `salt:"name" doc:"its name"`
	reach
}

func pgDatabaseAbsent(ctx context.Context, e *state.Env, a pgNameArgs) (state.Plan, error) {
	s := a.server(e)
	there, err := s.is(ctx, "db_exists", "name", a.Name)
	if err != nil || !there {
		return state.Plan{Comment: "Database " + a.Name + " is not present, so it cannot be removed"}, err
	}
	return one("Database "+a.Name+" is set to be removed", func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, "db_remove", "name", a.Name)
		return done(ok, err, a.Name, "Absent", "Database "+a.Name+" has been removed", "Database "+a.Name+" cannot be removed")
	}), nil
}

type roleArgs struct {
	Name        string `salt:"name" doc:"name of the role"`
	CreateDB    any    `salt:"createdb" doc:"it may make databases" default:"null"`
	CreateRoles any    `salt:"createroles" doc:"it may make roles" default:"null"`
	Encrypted   any    `salt:"encrypted" doc:"how its password is kept: md5 (or true), scram-sha-256 or false" default:"null"`
	Superuser   any    `salt:"superuser" doc:"it may do everything" default:"null"`
	Replication any    `salt:"replication" doc:"it may copy the server" default:"null"`
	Inherit     any    `salt:"inherit" doc:"it has the rights of its groups" default:"null"`
	Login       any    `salt:"login" doc:"it may log in" default:"null"`
	Secret      any    `salt:"password" doc:"its password" default:"null"`
	FirstSecret any    `salt:"default_password" doc:"its password when it is made, unless password is given" default:"null"`
	Refresh     any    `salt:"refresh_password" doc:"set the password without a look at the present one, which only superusers may have" default:"null"`
	Until       any    `salt:"valid_until" doc:"when its password ends" default:"null"`
	Groups      any    `salt:"groups" doc:"roles that it is a member of, as a list or with commas" default:"null"`
	reach
}

// expiry returns when a password expires, in the server's format.
func (a roleArgs) expiry(ctx context.Context, s server) (any, error) {
	v, err := s.call(ctx, "psql_query", "query", "SELECT '"+strings.ReplaceAll(value.Str(a.Until), "'", "''")+"'::timestamp(0) as dt")
	if err != nil {
		return nil, err
	}
	if l, _ := v.(*value.List); l != nil && l.Len() > 0 {
		if d, _ := l.Items[0].(*value.Dict); d != nil {
			if _, err := time.Parse(time.DateTime, d.Str("dt")); err == nil {
				return d.Str("dt"), nil
			}
		}
	}
	return nil, nil // for example, infinity
}

// update returns the attributes of a role that must change.
func (a roleArgs) update(ctx context.Context, s server, now *value.Dict, password bool) (*value.Dict, error) {
	diff := value.NewDict(4)
	for _, o := range []struct {
		key, of string
		v       any
	}{{"createdb", "can create databases", a.CreateDB}, {"inherit", "inherits privileges", a.Inherit}, {"login", "can login", a.Login},
		{"createroles", "can create roles", a.CreateRoles}, {"replication", "replication", a.Replication}, {"superuser", "superuser", a.Superuser}} {
		if o.v != nil && !value.Equal(o.v, now.At(o.of)) {
			diff.Set(o.key, o.v)
		}
	}
	if password {
		diff.Set("password", true)
	}
	if a.Until != nil {
		until, err := a.expiry(ctx, s)
		if err != nil {
			return nil, err
		}
		if !value.Equal(until, now.At("expiry time")) {
			diff.Set("valid_until", a.Until)
		}
	}
	groups := value.Texts(a.Groups)
	if text, ok := a.Groups.(string); ok {
		groups = strings.Split(text, ",")
	}
	have := value.Texts(now.At("groups"))
	if missing := slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return slices.Contains(have, g) }); len(missing) > 0 {
		diff.Set("groups", value.Strings(missing))
	}
	return diff, nil
}

func roleNeeded(ctx context.Context, e *state.Env, a roleArgs) (state.Plan, error) {
	return rolePresent(ctx, e, "user", a)
}

// rolePresent ensures that a role exists. kind is what messages call it, a user or a
// group.
func rolePresent(ctx context.Context, e *state.Env, kind string, a roleArgs) (state.Plan, error) {
	s := a.server(e)
	label := strings.ToUpper(kind[:1]) + kind[1:] + " " + a.Name
	v, err := s.call(ctx, "role_get", "name", a.Name, "return_password", !value.Truth(a.Refresh))
	if err != nil {
		return state.Plan{}, err
	}
	now, _ := v.(*value.Dict)
	secret := a.Secret
	if now == nil && secret == nil {
		secret = a.FirstSecret
	}
	if secret != nil {
		if now != nil && !value.Truth(a.Refresh) && remote.IsPostgresSecret(now.Str("password"), a.Name, value.Str(secret), a.Encrypted) {
			secret = nil
		} else if secret, err = remote.PostgresSecret(a.Name, value.Str(secret), a.Encrypted); err != nil {
			return state.Plan{}, state.Errorf("%w", err)
		}
	}
	verb, diff := "create", value.DictOf(a.Name, "Present")
	predicted := (*value.Dict)(nil)
	if now != nil {
		verb = "update"
		changes, err := a.update(ctx, s, now, secret != nil)
		if err != nil || changes.Len() == 0 {
			return state.Plan{Comment: label + " is already present"}, err
		}
		diff = value.DictOf(a.Name, changes)
		predicted = diff
		if s := a.Superuser; s != nil && value.Equal(s, now.At("superuser")) {
			a.Superuser = nil // only superusers may set it
		}
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: label + " is set to be " + verb + "d", Diff: predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			ok, err := s.is(ctx, kind+"_"+verb, kind+"name", a.Name, "createdb", a.CreateDB, "createroles", a.CreateRoles, "encrypted", a.Encrypted,
				"superuser", a.Superuser,
				"login", a.Login, "inherit", a.Inherit, "replication", a.Replication, "rolepassword", secret, "valid_until", a.Until, "groups", a.Groups)
			c, err := done(ok, err, a.Name, "Present", "The "+kind+" "+a.Name+" has been "+verb+"d", "Failed to "+verb+" "+kind+" "+a.Name)
			if err == nil {
				c.Diff = diff
			}
			return c, err
		}}}}, nil
}

func roleUnwanted(ctx context.Context, e *state.Env, a pgNameArgs) (state.Plan, error) {
	return roleAbsent(ctx, e, "user", a)
}

// roleAbsent ensures that a role does not exist. kind is what messages call it, a user or
// a group.
func roleAbsent(ctx context.Context, e *state.Env, kind string, a pgNameArgs) (state.Plan, error) {
	s := a.server(e)
	label := strings.ToUpper(kind[:1]) + kind[1:] + " " + a.Name
	there, err := s.is(ctx, "user_exists", "name", a.Name)
	if err != nil || !there {
		return state.Plan{Comment: label + " is not present, so it cannot be removed"}, err
	}
	return one(label+" is set to be removed", func(ctx context.Context) (state.Change, error) {
		ok, err := s.is(ctx, kind+"_remove", kind+"name", a.Name)
		return done(ok, err, a.Name, "Absent", label+" has been removed", label+" failed to be removed")
	}), nil
}
