package databases

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

func (x postgres) rightsFuncs() []fn.Func {
	return []fn.Func{
		fn.Of("privileges_list", x.privilegesList, `Return who has which rights on something, and whether they may pass them on.
			Of a group, the members and whether they may take in others.`,
			fn.Example("salt '*' postgres.privileges_list table_name table maintenance_db=db_name")),
		fn.Of("has_privileges", x.hasPrivileges, `Say whether a role has rights on something, as its owner or because they were granted.`,
			fn.Example("salt '*' postgres.has_privileges user_name table_name table SELECT,INSERT maintenance_db=db_name")),
		fn.Of("privileges_grant", x.privilegesGrant, `Grant rights, and say whether that was done. Rights that are there already are not.`,
			fn.Example("salt '*' postgres.privileges_grant user_name table_name table SELECT,UPDATE maintenance_db=db_name")),
		fn.Of("privileges_revoke", x.privilegesRevoke, `Take rights back, and say whether that was done.`,
			fn.Example("salt '*' postgres.privileges_revoke user_name table_name table SELECT,UPDATE maintenance_db=db_name")),
	}
}

// grantable is a type of object that privileges are granted on.
type grantable struct {
	// acl is the letter of the type for acldefault().
	acl string
	// from is the end of a query with the columns acl and owner. %s stands for
	// the name of the object, %n for that of its schema.
	from   string
	rights []string
}

var grantables = map[string]grantable{
	"table": {"r", `relacl AS acl, relowner AS owner FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %n AND relname = %s ` +
		`AND relkind IN ('r', 'p', 'v', 'm', 'f')`,
		[]string{"INSERT", "SELECT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN"}},
	"sequence": {"s", `relacl AS acl, relowner AS owner FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %n AND relname = ` +
		`%s AND relkind = 'S'`,
		[]string{"SELECT", "UPDATE", "USAGE"}},
	"schema": {"n", `nspacl AS acl, nspowner AS owner FROM pg_namespace WHERE nspname = %s`, []string{"USAGE", "CREATE"}},
	"function": {"f", `proacl AS acl, proowner AS owner FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = %n AND ` +
		`p.oid::regprocedure::text = %s`,
		[]string{"EXECUTE"}},
	"tablespace": {"t", `spcacl AS acl, spcowner AS owner FROM pg_tablespace WHERE spcname = %s`, []string{"CREATE"}},
	"language":   {"l", `lanacl AS acl, lanowner AS owner FROM pg_language WHERE lanname = %s`, []string{"USAGE"}},
	"database":   {"d", `datacl AS acl, datdba AS owner FROM pg_database WHERE datname = %s`, []string{"CREATE", "TEMPORARY", "CONNECT"}},
}

// thing is the object of a grant.
type thing struct {
	name, kind, schema string
}

func (o thing) group() bool { return o.kind == "group" }

// query returns the end of a query with the columns acl and owner.
func (o thing) query() string {
	return strings.NewReplacer("%n", literal(o.schema), "%s", literal(o.name)).Replace(grantables[o.kind].from)
}

// all reports whether the object is every table or sequence of the schema.
func (o thing) all() bool {
	return (o.kind == "table" || o.kind == "sequence") && strings.EqualFold(o.name, "ALL")
}

// sql returns the object as GRANT and REVOKE name it. A function's name includes
// the types of its arguments, so it cannot be quoted.
func (o thing) sql() string {
	switch {
	case o.all():
		return "ALL " + strings.ToUpper(o.kind) + "S IN SCHEMA " + ident(o.schema)
	case o.kind == "table", o.kind == "sequence":
		return strings.ToUpper(o.kind) + " " + ident(o.schema) + "." + ident(o.name)
	case o.kind == "function":
		return "FUNCTION " + o.name
	}
	return strings.ToUpper(o.kind) + " " + ident(o.name)
}

func thingOf(name, kind, schema string) (thing, error) {
	o := thing{name, strings.ToLower(kind), schema}
	if _, ok := grantables[o.kind]; !ok && !o.group() {
		return o, fn.Invalidf("Invalid object_type: %s provided", o.kind)
	}
	return o, nil
}

// granted returns the privileges of each role, each with whether it may be
// passed on. For a group, it returns the members, each with whether it may add
// others.
func (s *session) granted(ctx context.Context, o thing) (*value.Dict, error) {
	if o.group() {
		l, err := s.rows(ctx, `SELECT r.rolname AS role, m.admin_option AS option FROM pg_auth_members m JOIN pg_roles r ON m.member = r.oid
			JOIN pg_roles g ON m.roleid = g.oid WHERE g.rolname = `+literal(o.name)+` ORDER BY 1`)
		if err != nil {
			return nil, err
		}
		d := value.NewDict(l.Len())
		for _, it := range l.Items {
			row := it.(*value.Dict)
			d.Set(row.Str("role"), row.At("option") == "t")
		}
		return d, nil
	}
	// The ACL is null if it was never changed. Then the default of the type
	// applies.
	l, err := s.rows(ctx,
		`SELECT CASE a.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(a.grantee) END AS role, a.privilege_type AS "right", a.is_grantable AS option
		FROM (SELECT `+o.query()+`) o, aclexplode(coalesce(o.acl, acldefault('`+grantables[o.kind].acl+`', o.owner))) a`)
	if err != nil {
		return nil, err
	}
	d := value.NewDict(4)
	for _, it := range l.Items {
		row := it.(*value.Dict)
		if !d.Has(row.Str("role")) {
			d.Set(row.Str("role"), value.NewDict(4))
		}
		of := d.Dict(row.Str("role"))
		of.Set(row.Str("right"), row.At("option") == "t" || of.At(row.Str("right")) == true)
	}
	return d, nil
}

// every returns all privileges that the server has for a type; newer servers
// have more.
func (s *session) every(ctx context.Context, o thing) (rights []string, err error) {
	l, err := s.rows(ctx, `SELECT privilege_type AS "right" FROM aclexplode(acldefault('`+grantables[o.kind].acl+`', 10)) WHERE grantee = 10`)
	if err != nil {
		return nil, err
	}
	for _, it := range l.Items {
		rights = append(rights, it.(*value.Dict).Str("right"))
	}
	return rights, nil
}

// wantedRights validates the comma-separated privileges of a request.
func (o thing) wantedRights(privileges any) ([]string, error) {
	text := ""
	if privileges != nil {
		text = value.Str(privileges)
	}
	if o.group() {
		if text != "" {
			return nil, fn.Invalidf("The privileges option should not be set for object_type group")
		}
		return nil, nil
	}
	rights := strings.Split(strings.ToUpper(text), ",")
	for i, r := range rights {
		rights[i] = strings.TrimSpace(r)
		if rights[i] != "ALL" && !slices.Contains(grantables[o.kind].rights, rights[i]) {
			return nil, fn.Invalidf("Invalid privilege(s): %s provided for object %s", text, o.kind)
		}
	}
	return rights, nil
}

// has reports whether a role has all of the privileges and, if option is set,
// may pass them on.
func (s *session) has(ctx context.Context, role string, o thing, rights []string, option bool) (bool, error) {
	all, err := s.granted(ctx, o)
	if err != nil {
		return false, err
	}
	if o.group() {
		return all.Has(role) && (!option || all.At(role) == true), nil
	}
	l, err := s.rows(ctx, `SELECT pg_get_userbyid(o.owner) AS name FROM (SELECT `+o.query()+`) o`)
	if err != nil {
		return false, err
	}
	if l.Len() > 0 && l.Items[0].(*value.Dict).Str("name") == role {
		return true, nil
	}
	if slices.Contains(rights, "ALL") {
		if rights, err = s.every(ctx, o); err != nil {
			return false, err
		}
	}
	have := all.Dict(role)
	for _, r := range rights {
		if !have.Has(r) || option && have.At(r) != true {
			return false, nil
		}
	}
	return have != nil, nil
}

type pgThingArgs struct {
	Name     string `salt:"name" doc:"what the rights are on"`
	Kind     string `salt:"object_type" doc:"table (or view), sequence, schema, tablespace, language, database, function or group"`
	Schema   string `salt:"prepend" doc:"schema of a table, sequence or function" default:"public"`
	Database any    `salt:"maintenance_db" doc:"database to connect to" default:"null"`
	User     any    `salt:"user" doc:"role that asks" default:"null"`
	Host     any    `salt:"host" doc:"name, address or directory of the socket" default:"null"`
	Port     any    `salt:"port" doc:"port" default:"null"`
	Password any    `salt:"password" doc:"password of the role that asks" default:"null"`
	RunAs    any    `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) privilegesList(ctx context.Context, c *fn.Call, a pgThingArgs) (*value.Dict, error) {
	o, err := thingOf(a.Name, a.Kind, a.Schema)
	if err != nil {
		return nil, err
	}
	s, err := x.at(ctx, c, pg{a.User, a.Host, a.Port, a.Database, a.Password}, a.RunAs)
	if err != nil {
		return nil, err
	}
	return s.granted(ctx, o)
}

type pgRightsArgs struct {
	Name     string `salt:"name" doc:"name of the role"`
	Object   string `salt:"object_name" doc:"what the rights are on; ALL for all tables or sequences of the schema; a function with the types of its arguments"`
	Kind     string `salt:"object_type" doc:"table (or view), sequence, schema, tablespace, language, database, function or group"`
	Rights   any    `salt:"privileges" doc:"the rights, such as SELECT, with commas; not of a group" default:"null"`
	Option   any    `salt:"grant_option" doc:"the role may pass the rights on" default:"null"`
	Schema   string `salt:"prepend" doc:"schema of a table, sequence or function" default:"public"`
	Database any    `salt:"maintenance_db" doc:"database to connect to" default:"null"`
	User     any    `salt:"user" doc:"role that asks" default:"null"`
	Host     any    `salt:"host" doc:"name, address or directory of the socket" default:"null"`
	Port     any    `salt:"port" doc:"port" default:"null"`
	Password any    `salt:"password" doc:"password of the role that asks" default:"null"`
	RunAs    any    `salt:"runas" doc:"account to run psql as" default:"null"`
}

// request validates a request and looks up whether the role already has the
// privileges.
func (x postgres) request(ctx context.Context, c *fn.Call, a pgRightsArgs) (s *session, o thing, rights []string, has bool, err error) {
	if o, err = thingOf(a.Object, a.Kind, a.Schema); err != nil {
		return
	}
	if rights, err = o.wantedRights(a.Rights); err != nil {
		return
	}
	if s, err = x.at(ctx, c, pg{a.User, a.Host, a.Port, a.Database, a.Password}, a.RunAs); err != nil {
		return
	}
	has, err = s.has(ctx, a.Name, o, rights, value.Truth(a.Option))
	return
}

func (x postgres) hasPrivileges(ctx context.Context, c *fn.Call, a pgRightsArgs) (bool, error) {
	_, _, _, has, err := x.request(ctx, c, a)
	return has, err
}

func (x postgres) privilegesGrant(ctx context.Context, c *fn.Call, a pgRightsArgs) (bool, error) {
	s, o, rights, has, err := x.request(ctx, c, a)
	if err != nil || has {
		return false, err
	}
	q, option := "GRANT "+strings.Join(rights, ",")+" ON "+o.sql()+" TO "+ident(a.Name), " WITH GRANT OPTION"
	if o.group() {
		q, option = "GRANT "+ident(o.name)+" TO "+ident(a.Name), " WITH ADMIN OPTION"
	}
	if value.Truth(a.Option) {
		q += option
	}
	return s.do(ctx, q)
}

type pgRevokeArgs struct {
	Name     string `salt:"name" doc:"name of the role"`
	Object   string `salt:"object_name" doc:"what the rights are on; a function with the types of its arguments"`
	Kind     string `salt:"object_type" doc:"table (or view), sequence, schema, tablespace, language, database, function or group"`
	Rights   any    `salt:"privileges" doc:"the rights, such as SELECT, with commas; not of a group" default:"null"`
	Schema   string `salt:"prepend" doc:"schema of a table, sequence or function" default:"public"`
	Database any    `salt:"maintenance_db" doc:"database to connect to" default:"null"`
	User     any    `salt:"user" doc:"role that asks" default:"null"`
	Host     any    `salt:"host" doc:"name, address or directory of the socket" default:"null"`
	Port     any    `salt:"port" doc:"port" default:"null"`
	Password any    `salt:"password" doc:"password of the role that asks" default:"null"`
	RunAs    any    `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) privilegesRevoke(ctx context.Context, c *fn.Call, a pgRevokeArgs) (bool, error) {
	s, o, rights, has, err := x.request(ctx, c, pgRightsArgs{Name: a.Name, Object: a.Object, Kind: a.Kind, Rights: a.Rights, Schema: a.Schema,
		Database: a.Database,
		User:     a.User, Host: a.Host, Port: a.Port, Password: a.Password, RunAs: a.RunAs})
	if err != nil || !has {
		return false, err
	}
	if o.group() {
		return s.do(ctx, "REVOKE "+ident(o.name)+" FROM "+ident(a.Name))
	}
	return s.do(ctx, "REVOKE "+strings.Join(rights, ",")+" ON "+o.sql()+" FROM "+ident(a.Name))
}
