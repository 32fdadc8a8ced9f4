package databases

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// partsFuncs returns the functions for tablespaces, extensions, schemas, languages and
// other parts of a server.
func (x postgres) partsFuncs() []fn.Func {
	return []fn.Func{
		fn.Of("tablespace_list", x.tablespaceList, `Return the tablespaces.`, fn.Example("salt '*' postgres.tablespace_list")),
		fn.Of("tablespace_exists", x.tablespaceExists, `Say whether there is a tablespace.`, fn.Example("salt '*' postgres.tablespace_exists 'dbname'")),
		fn.Of("tablespace_create", x.tablespaceCreate, `Make a tablespace, and say whether that was done.`,
			fn.Example("salt '*' postgres.tablespace_create tablespacename '/path/datadir'")),
		fn.Of("tablespace_alter", x.tablespaceAlter, `Change the name, owner or options of a tablespace, and say whether that was done.`,
			fn.Example("salt '*' postgres.tablespace_alter tsname new_owner=otheruser")),
		fn.Of("tablespace_remove", x.tablespaceRemove, `Delete a tablespace, and say whether that was done.`,
			fn.Example("salt '*' postgres.tablespace_remove tsname")),
		fn.Of("available_extensions", x.availableExtensions, `Return the extensions that can be installed.`,
			fn.Example("salt '*' postgres.available_extensions")),
		fn.Of("installed_extensions", x.installedExtensions, `Return the extensions of the database.`, fn.Example("salt '*' postgres.installed_extensions")),
		fn.Of("get_available_extension", x.getAvailableExtension, `Return what is known of an extension that can be installed, or nothing.`,
			fn.Example("salt '*' postgres.get_available_extension plpgsql")),
		fn.Of("get_installed_extension", x.getInstalledExtension, `Return what is known of an extension of the database, or nothing.`,
			fn.Example("salt '*' postgres.get_installed_extension plpgsql")),
		fn.Of("is_available_extension", x.isAvailableExtension, `Say whether an extension can be installed.`,
			fn.Example("salt '*' postgres.is_available_extension hstore")),
		fn.Of("is_installed_extension", x.isInstalledExtension, `Say whether the database has an extension.`,
			fn.Example("salt '*' postgres.is_installed_extension hstore")),
		fn.Of("create_metadata", x.createMetadata,
			`Say what is to be done about an extension: EXTENSION NOT INSTALLED, or EXTENSION INSTALLED and perhaps EXTENSION TO UPGRADE and `+
				`EXTENSION TO MOVE.`,
			fn.Example("salt '*' postgres.create_metadata adminpack")),
		fn.Of("create_extension", x.createExtension, `Install an extension, or move or upgrade it, and say whether it is as wanted now.`,
			fn.Example("salt '*' postgres.create_extension 'adminpack'")),
		fn.Of("drop_extension", x.dropExtension, `Remove an extension, and say whether it is gone.`,
			fn.Example("salt '*' postgres.drop_extension 'adminpack'")),
		fn.Of("schema_list", x.schemaList, `Return the schemas of a database.`, fn.Example("salt '*' postgres.schema_list dbname")),
		fn.Of("schema_get", x.schemaGet, `Return what is known of a schema, or nothing.`, fn.Example("salt '*' postgres.schema_get dbname name")),
		fn.Of("schema_exists", x.schemaExists, `Say whether a database has a schema.`, fn.Example("salt '*' postgres.schema_exists dbname schemaname")),
		fn.Of("schema_create", x.schemaCreate, `Make a schema, and say whether that was done.`,
			fn.Example("salt '*' postgres.schema_create dbname name owner='owner'")),
		fn.Of("schema_remove", x.schemaRemove, `Delete a schema, and say whether that was done.`,
			fn.Example("salt '*' postgres.schema_remove dbname schemaname")),
		fn.Of("language_list", x.languageList, `Return the languages of a database.`, fn.Example("salt '*' postgres.language_list dbname")),
		fn.Of("language_exists", x.languageExists, `Say whether a database has a language.`, fn.Example("salt '*' postgres.language_exists plpgsql dbname")),
		fn.Of("language_create", x.languageCreate, `Install a language in a database, and say whether that was done.`,
			fn.Example("salt '*' postgres.language_create plpgsql dbname")),
		fn.Of("language_remove", x.languageRemove, `Remove a language of a database, and say whether that was done.`,
			fn.Example("salt '*' postgres.language_remove plpgsql dbname")),
	}
}

// keyed returns the rows of a query as a map, with one column as the key.
func (x postgres) keyed(ctx context.Context, c *fn.Call, to pg, runas any, column string, keep bool, query string) (*value.Dict, error) {
	s, err := x.at(ctx, c, to, runas)
	if err != nil {
		return nil, err
	}
	l, err := s.rows(ctx, query)
	if err != nil {
		return nil, err
	}
	d := value.NewDict(l.Len())
	for _, it := range l.Items {
		row := it.(*value.Dict)
		name := row.Str(column)
		if !keep {
			row.Delete(column)
		}
		d.Set(name, row)
	}
	return d, nil
}

// run executes statements one by one and reports whether all succeeded.
func (x postgres) run(ctx context.Context, c *fn.Call, to pg, runas any, statements ...string) (bool, error) {
	s, err := x.at(ctx, c, to, runas)
	if err != nil {
		return false, err
	}
	for _, q := range statements {
		if ok, err := s.do(ctx, q); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func (x postgres) tablespaceList(ctx context.Context, c *fn.Call, a pgArgs) (*value.Dict, error) {
	return x.keyed(ctx, c, a.pg, a.RunAs, "Name", false,
		`SELECT spcname AS "Name", pg_get_userbyid(spcowner) AS "Owner", spcacl AS "ACL", spcoptions AS "Opts",
		pg_tablespace_location(oid) AS "Location" FROM pg_tablespace`)
}

func (x postgres) tablespaceExists(ctx context.Context, c *fn.Call, a pgNameArgs) (bool, error) {
	d, err := x.tablespaceList(ctx, c, pgArgs{a.pg, a.RunAs})
	return d.Has(a.Name), err
}

type pgSpaceArgs struct {
	Name     string `salt:"name" doc:"its name"`
	Location string `salt:"location" doc:"directory of the server"`
	Options  any    `salt:"options" doc:"options, as a map" default:"null"`
	Owner    any    `salt:"owner" doc:"role that owns it" default:"null"`
	pg
	RunAs any `salt:"runas" doc:"account to run psql as" default:"null"`
}

// setting formats an option of a tablespace as SQL.
func setting(name, v any) string { return ident(name) + " = " + literal(v) }

func (x postgres) tablespaceCreate(ctx context.Context, c *fn.Call, a pgSpaceArgs) (bool, error) {
	q := "CREATE TABLESPACE " + ident(a.Name)
	if value.Truth(a.Owner) {
		q += " OWNER " + ident(a.Owner)
	}
	q += " LOCATION " + literal(a.Location)
	if d, _ := a.Options.(*value.Dict); d.Len() > 0 {
		var all []string
		for k, v := range d.All() {
			all = append(all, setting(k, v))
		}
		q += " WITH (" + strings.Join(all, ", ") + ")"
	}
	return x.run(ctx, c, a.pg, a.RunAs, q)
}

type pgSpaceAlterArgs struct {
	Name string `salt:"name" doc:"its name"`
	pg
	NewName  any `salt:"new_name" doc:"its name from now on" default:"null"`
	NewOwner any `salt:"new_owner" doc:"role that is to own it" default:"null"`
	Set      any `salt:"set_option" doc:"options to set, as a map" default:"null"`
	Reset    any `salt:"reset_option" doc:"option to forget" default:"null"`
	RunAs    any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) tablespaceAlter(ctx context.Context, c *fn.Call, a pgSpaceAlterArgs) (bool, error) {
	var queries []string
	of := func(change string) { queries = append(queries, "ALTER TABLESPACE "+ident(a.Name)+" "+change) }
	if value.Truth(a.NewOwner) {
		of("OWNER TO " + ident(a.NewOwner))
	}
	if d, _ := a.Set.(*value.Dict); d.Len() > 0 {
		for k, v := range d.All() {
			of("SET (" + setting(k, v) + ")")
		}
	}
	if value.Truth(a.Reset) {
		of("RESET (" + ident(a.Reset) + ")")
	}
	if value.Truth(a.NewName) {
		of("RENAME TO " + ident(a.NewName))
	}
	return x.run(ctx, c, a.pg, a.RunAs, queries...)
}

func (x postgres) tablespaceRemove(ctx context.Context, c *fn.Call, a pgNameArgs) (bool, error) {
	return x.run(ctx, c, a.pg, a.RunAs, "DROP TABLESPACE "+ident(a.Name))
}

func (x postgres) availableExtensions(ctx context.Context, c *fn.Call, a pgArgs) (*value.Dict, error) {
	return x.keyed(ctx, c, a.pg, a.RunAs, "name", true, `SELECT * FROM pg_available_extensions()`)
}

func (x postgres) installedExtensions(ctx context.Context, c *fn.Call, a pgArgs) (*value.Dict, error) {
	return x.keyed(ctx, c, a.pg, a.RunAs, "extname", true,
		`SELECT e.*, n.nspname AS schema_name FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace`)
}

func (x postgres) getAvailableExtension(ctx context.Context, c *fn.Call, a pgNameArgs) (any, error) {
	d, err := x.availableExtensions(ctx, c, pgArgs{a.pg, a.RunAs})
	return d.At(a.Name), err
}

func (x postgres) getInstalledExtension(ctx context.Context, c *fn.Call, a pgNameArgs) (any, error) {
	d, err := x.installedExtensions(ctx, c, pgArgs{a.pg, a.RunAs})
	return d.At(a.Name), err
}

func (x postgres) isAvailableExtension(ctx context.Context, c *fn.Call, a pgNameArgs) (bool, error) {
	d, err := x.availableExtensions(ctx, c, pgArgs{a.pg, a.RunAs})
	if err != nil {
		return false, err
	}
	for k := range d.All() {
		if strings.EqualFold(value.Str(k), a.Name) {
			return true, nil
		}
	}
	return false, nil
}

func (x postgres) isInstalledExtension(ctx context.Context, c *fn.Call, a pgNameArgs) (bool, error) {
	d, err := x.getInstalledExtension(ctx, c, a)
	return d != nil, err
}

type pgMetadataArgs struct {
	Name    string `salt:"name" doc:"name of the extension"`
	Version any    `salt:"ext_version" doc:"version that it should have at least" default:"null"`
	Schema  any    `salt:"schema" doc:"schema that it should be in" default:"null"`
	pg
	RunAs any `salt:"runas" doc:"account to run psql as" default:"null"`
}

// Results of create_metadata.
const (
	extensionMissing   = "EXTENSION NOT INSTALLED"
	extensionInstalled = "EXTENSION INSTALLED"
	extensionOld       = "EXTENSION TO UPGRADE"
	extensionElsewhere = "EXTENSION TO MOVE"
)

// todo says which changes an extension needs.
type todo struct{ install, upgrade, move bool }

// extension returns which changes an extension needs.
func (x postgres) extension(ctx context.Context, c *fn.Call, a pgMetadataArgs) (todo, error) {
	v, err := x.getInstalledExtension(ctx, c, pgNameArgs{a.Name, a.pg, a.RunAs})
	d, _ := v.(*value.Dict)
	if err != nil || d == nil {
		return todo{install: true}, err
	}
	return todo{
		upgrade: a.Version != nil && olderVersion(d.Str("extversion"), strings.Trim(value.Str(a.Version), "'")),
		move:    a.Schema != nil && d.Str("extrelocatable") == "t" && d.Str("schema_name") != value.Str(a.Schema),
	}, nil
}

// olderVersion compares versions of extensions by their numbers and words.
func olderVersion(a, b string) bool {
	x, y := versionParts(a), versionParts(b)
	for i := range min(len(x), len(y)) {
		if x[i] == y[i] {
			continue
		}
		digits := func(s string) bool { return s[0] >= '0' && s[0] <= '9' }
		if digits(x[i]) && digits(y[i]) {
			m, n := strings.TrimLeft(x[i], "0"), strings.TrimLeft(y[i], "0")
			if len(m) != len(n) {
				return len(m) < len(n)
			}
			if m != n {
				return m < n
			}
			continue
		}
		return x[i] < y[i]
	}
	return len(x) < len(y)
}

// versionParts splits a version into numbers and words.
func versionParts(v string) (parts []string) {
	kind := func(r rune) int {
		switch {
		case r >= '0' && r <= '9':
			return 1
		case r == '.':
			return 0
		}
		return 2
	}
	last := 0
	for _, r := range v {
		k := kind(r)
		if k != 0 {
			if k != last {
				parts = append(parts, "")
			}
			parts[len(parts)-1] += string(r)
		}
		last = k
	}
	return parts
}

func (x postgres) createMetadata(ctx context.Context, c *fn.Call, a pgMetadataArgs) ([]string, error) {
	t, err := x.extension(ctx, c, a)
	if err != nil {
		return nil, err
	}
	if t.install {
		return []string{extensionMissing}, nil
	}
	out := []string{extensionInstalled}
	if t.upgrade {
		out = append(out, extensionOld)
	}
	if t.move {
		out = append(out, extensionElsewhere)
	}
	return out, nil
}

type pgExtensionArgs struct {
	Name        string `salt:"name" doc:"name of the extension"`
	IfNotExists any    `salt:"if_not_exists" doc:"no failure if another has installed it meanwhile (true)" default:"null"`
	Schema      any    `salt:"schema" doc:"schema to have it in" default:"null"`
	Version     any    `salt:"ext_version" doc:"version to have" default:"null"`
	From        any    `salt:"from_version" doc:"version of what stands for it without being an extension; servers up to 12 know this" default:"null"`
	pg
	RunAs any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) createExtension(ctx context.Context, c *fn.Call, a pgExtensionArgs) (bool, error) {
	meta := pgMetadataArgs{a.Name, a.Version, a.Schema, a.pg, a.RunAs}
	t, err := x.extension(ctx, c, meta)
	if err != nil {
		return false, err
	}
	there, err := x.isAvailableExtension(ctx, c, pgNameArgs{a.Name, a.pg, a.RunAs})
	if err != nil || !there {
		return false, err
	}
	version := func(v any) string { return literal(strings.Trim(value.Str(v), "'")) } // users quote versions for Salt
	var queries []string
	if t.install {
		q := "CREATE EXTENSION "
		if a.IfNotExists == nil || value.Truth(a.IfNotExists) {
			q += "IF NOT EXISTS "
		}
		q += ident(a.Name)
		if value.Truth(a.Schema) {
			q += " SCHEMA " + ident(a.Schema)
		}
		if value.Truth(a.Version) {
			q += " VERSION " + version(a.Version)
		}
		if value.Truth(a.From) {
			q += " FROM " + version(a.From)
		}
		queries = append(queries, q)
	}
	if t.move {
		queries = append(queries, "ALTER EXTENSION "+ident(a.Name)+" SET SCHEMA "+ident(a.Schema))
	}
	if t.upgrade {
		queries = append(queries, "ALTER EXTENSION "+ident(a.Name)+" UPDATE TO "+version(a.Version))
	}
	if ok, err := x.run(ctx, c, a.pg, a.RunAs, queries...); err != nil || !ok {
		return false, err
	}
	t, err = x.extension(ctx, c, meta)
	return t == todo{}, err
}

type pgDropArgs struct {
	Name     string `salt:"name" doc:"name of the extension"`
	IfExists any    `salt:"if_exists" doc:"no failure if another has removed it meanwhile" default:"null"`
	Restrict any    `salt:"restrict" doc:"not if something needs it; cascade must be false then" default:"null"`
	Cascade  any    `salt:"cascade" doc:"and what needs it (true)" default:"null"`
	pg
	RunAs any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (x postgres) dropExtension(ctx context.Context, c *fn.Call, a pgDropArgs) (bool, error) {
	name := pgNameArgs{a.Name, a.pg, a.RunAs}
	there, err := x.isInstalledExtension(ctx, c, name)
	if err != nil || !there {
		return !there, err
	}
	q := "DROP EXTENSION "
	if value.Truth(a.IfExists) {
		q += "IF EXISTS "
	}
	q += ident(a.Name)
	if a.Cascade == nil || value.Truth(a.Cascade) {
		q += " CASCADE"
	}
	if value.Truth(a.Restrict) {
		q += " RESTRICT"
	}
	return x.run(ctx, c, a.pg, a.RunAs, q)
}

// pgSchemas are the arguments for the connection to the database of schemas.
type pgSchemas struct {
	RunAs    any `salt:"user" doc:"account to run psql as" default:"null"`
	User     any `salt:"db_user" doc:"role that asks" default:"null"`
	Password any `salt:"db_password" doc:"password of db_user" default:"null"`
	Host     any `salt:"db_host" doc:"name, address or directory of the socket" default:"null"`
	Port     any `salt:"db_port" doc:"port" default:"null"`
}

func (a pgSchemas) pg(database string) pg { return pg{a.User, a.Host, a.Port, database, a.Password} }

type pgSchemasArgs struct {
	Database string `salt:"dbname" doc:"the database"`
	pgSchemas
}

func (x postgres) schemaList(ctx context.Context, c *fn.Call, a pgSchemasArgs) (*value.Dict, error) {
	return x.keyed(ctx, c, a.pg(a.Database), a.RunAs, "name", false,
		`SELECT nspname AS name, pg_get_userbyid(nspowner) AS owner, nspacl AS acl FROM pg_namespace`)
}

type pgSchemaArgs struct {
	Database string `salt:"dbname" doc:"the database"`
	Name     string `salt:"name" doc:"name of the schema"`
	pgSchemas
}

func (x postgres) schemaGet(ctx context.Context, c *fn.Call, a pgSchemaArgs) (any, error) {
	d, err := x.schemaList(ctx, c, pgSchemasArgs{a.Database, a.pgSchemas})
	return d.At(a.Name), err
}

func (x postgres) schemaExists(ctx context.Context, c *fn.Call, a pgSchemaArgs) (bool, error) {
	d, err := x.schemaGet(ctx, c, a)
	return d != nil, err
}

type pgSchemaCreateArgs struct {
	Database string `salt:"dbname" doc:"the database"`
	Name     string `salt:"name" doc:"name of the schema"`
	Owner    any    `salt:"owner" doc:"role that owns it" default:"null"`
	pgSchemas
}

func (x postgres) schemaCreate(ctx context.Context, c *fn.Call, a pgSchemaCreateArgs) (bool, error) {
	there, err := x.schemaExists(ctx, c, pgSchemaArgs{a.Database, a.Name, a.pgSchemas})
	if err != nil || there {
		return false, err
	}
	q := "CREATE SCHEMA " + ident(a.Name)
	if a.Owner != nil {
		q += " AUTHORIZATION " + ident(a.Owner)
	}
	return x.run(ctx, c, a.pg(a.Database), a.RunAs, q)
}

func (x postgres) schemaRemove(ctx context.Context, c *fn.Call, a pgSchemaArgs) (bool, error) {
	there, err := x.schemaExists(ctx, c, a)
	if err != nil || !there {
		return false, err
	}
	return x.run(ctx, c, a.pg(a.Database), a.RunAs, "DROP SCHEMA "+ident(a.Name))
}

// pgLanguages are the arguments for the connection to the database of languages.
type pgLanguages struct {
	Database any `salt:"maintenance_db" doc:"the database"`
	User     any `salt:"user" doc:"role that asks" default:"null"`
	Host     any `salt:"host" doc:"name, address or directory of the socket" default:"null"`
	Port     any `salt:"port" doc:"port" default:"null"`
	Password any `salt:"password" doc:"password of the role that asks" default:"null"`
	RunAs    any `salt:"runas" doc:"account to run psql as" default:"null"`
}

func (a pgLanguages) pg() pg { return pg{a.User, a.Host, a.Port, a.Database, a.Password} }

func (x postgres) languageList(ctx context.Context, c *fn.Call, a pgLanguages) (*value.Dict, error) {
	all, err := x.keyed(ctx, c, a.pg(), a.RunAs, "Name", false, `SELECT lanname AS "Name" FROM pg_language`)
	for k := range all.All() {
		all.Set(k, k)
	}
	return all, err
}

type pgLanguageArgs struct {
	Name string `salt:"name" doc:"name of the language"`
	pgLanguages
}

func (x postgres) languageExists(ctx context.Context, c *fn.Call, a pgLanguageArgs) (bool, error) {
	d, err := x.languageList(ctx, c, a.pgLanguages)
	return d.Has(a.Name), err
}

func (x postgres) languageCreate(ctx context.Context, c *fn.Call, a pgLanguageArgs) (bool, error) {
	there, err := x.languageExists(ctx, c, a)
	if err != nil || there {
		return false, err
	}
	return x.run(ctx, c, a.pg(), a.RunAs, "CREATE LANGUAGE "+ident(a.Name))
}

func (x postgres) languageRemove(ctx context.Context, c *fn.Call, a pgLanguageArgs) (bool, error) {
	there, err := x.languageExists(ctx, c, a)
	if err != nil || !there {
		return false, err
	}
	return x.run(ctx, c, a.pg(), a.RunAs, "DROP LANGUAGE "+ident(a.Name))
}
