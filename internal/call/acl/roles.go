package acl

import (
	"fmt"
	"strings"

	"brine/internal/base/field"
	"brine/internal/py/value"
)

// RolePrefix begins an entry of a list of permissions that names a role. Salt grants nothing by such
// an entry: no function and no module has a name like this.
const RolePrefix = "@role:"

// RolesOption is the option with the roles.
const RolesOption = "permission_roles"

// Role is a named list of permissions.
type Role struct {
	Name, Description string
	// Permissions has no names of roles.
	Permissions []any
}

// RoleName returns the role that an entry of a list names.
func RoleName(entry any) (name string, ok bool) {
	s, isText := entry.(string)
	if !isText {
		return "", false
	}
	return strings.CutPrefix(s, RolePrefix)
}

// Roles returns the roles of the option permission_roles in its order. A role with a wrong form is
// left out, and so are wrong entries: what CheckRoles reports grants nothing.
func Roles(option *value.Dict) []Role {
	var all []Role
	for k, v := range option.All() {
		d, ok := v.(*value.Dict)
		name, isText := k.(string)
		if !ok || !isText {
			continue
		}
		r := Role{Name: name, Description: d.Str("description")}
		for _, e := range d.List("permissions") {
			if !namesRole(e) {
				r.Permissions = append(r.Permissions, e)
			}
		}
		all = append(all, r)
	}
	return all
}

// namesRole reports whether an entry names a role, also as the key of a map, where it has no meaning.
func namesRole(entry any) bool {
	if d, ok := entry.(*value.Dict); ok {
		for k := range d.All() {
			if _, is := RoleName(k); is {
				return true
			}
		}
	}
	_, is := RoleName(entry)
	return is
}

// Granted is an entry of a list of permissions, and the role that it comes from, if any.
type Granted struct {
	Entry any
	Role  string
}

// Grants replaces the entries that name a role by the permissions of this role. An unknown role has
// none.
func Grants(list []any, option *value.Dict) []Granted {
	var roles map[string][]any
	out := make([]Granted, 0, len(list))
	for _, e := range list {
		name, ok := RoleName(e)
		if !ok {
			out = append(out, Granted{Entry: e})
			continue
		}
		if roles == nil {
			roles = map[string][]any{}
			for _, r := range Roles(option) {
				roles[r.Name] = r.Permissions
			}
		}
		for _, p := range roles[name] {
			out = append(out, Granted{p, name})
		}
	}
	return out
}

// Expand returns a list of permissions with those of its roles. A list without roles is returned as
// it is.
func Expand(list []any, option *value.Dict) []any {
	for _, e := range list {
		if _, ok := RoleName(e); !ok {
			continue
		}
		granted := Grants(list, option)
		out := make([]any, len(granted))
		for i, g := range granted {
			out[i] = g.Entry
		}
		return out
	}
	return list
}

// CheckRoles returns an error about the first role of the option permission_roles that cannot be
// granted.
func CheckRoles(option *value.Dict) error {
	for k, v := range option.All() {
		name, ok := k.(string)
		d, isMap := v.(*value.Dict)
		switch {
		case !ok || strings.TrimSpace(name) != name || name == "":
			return fmt.Errorf("%.80q is no name of a role: use a word", value.Str(k))
		case !isMap:
			return fmt.Errorf("%s: expected a map of description and permissions, got %s", name, field.Describe(v))
		}
		for key, x := range d.All() {
			switch key {
			case "description":
				if _, ok := x.(string); !ok {
					return fmt.Errorf("%s.description: expected a string, got %s", name, field.Describe(x))
				}
			case "permissions":
				if _, ok := x.(*value.List); !ok {
					return fmt.Errorf("%s.permissions: expected a list, got %s", name, field.Describe(x))
				}
			default:
				return fmt.Errorf("%s: there is no key %.80q; use description and permissions", name, value.Str(key))
			}
		}
		if len(d.List("permissions")) == 0 {
			return fmt.Errorf("%s has no permissions", name)
		}
		for _, e := range d.List("permissions") {
			if namesRole(e) {
				return fmt.Errorf("%s: a role cannot contain a role; list the permissions instead of %.80q", name, value.Str(e))
			}
		}
	}
	return nil
}

// CheckGrants returns an error about the first entry in the lists of users (publisher_acl, or a system
// of external_auth) that names a role which does not exist.
func CheckGrants(users, option *value.Dict) error {
	known := map[string]bool{}
	for _, r := range Roles(option) {
		known[r.Name] = true
	}
	for who, v := range users.All() {
		l, ok := v.(*value.List)
		if !ok || strings.HasPrefix(value.Str(who), "^") { // a setting of a system
			continue
		}
		for _, e := range l.Items {
			name, ok := RoleName(e)
			switch {
			case ok && !known[name]:
				return fmt.Errorf("%s: there is no role %.80q in %s", value.Str(who), name, RolesOption)
			case !ok && namesRole(e):
				return fmt.Errorf("%s: a role is an entry of its own, without a target or functions: %.80q", value.Str(who), value.Str(e))
			}
		}
	}
	return nil
}
