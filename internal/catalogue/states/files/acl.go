package files

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/acl"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Register("acl", aclModule) }

// aclModule returns the states for access control lists.
func aclModule(m *host.Machine) state.Module {
	when := func(fn.Reader) (string, bool) {
		return "The linux_acl state cannot be loaded: the getfacl or setfacl binary is not in the path.", m.Which("getfacl") != "" && m.Which("setfacl") != ""
	}
	return state.Module{Name: "acl", When: when, Doc: `Keep access control lists of files.`, Funcs: []state.Func{
		state.Of("present", aclPresent, `Have a user or group with rights.`),
		state.Of("absent", aclAbsent, `Have a user or group without rights of its own.`),
		state.Of("list_present", aclListPresent, `Have several users or groups with the same rights.`),
		state.Of("list_absent", aclListAbsent, `Have several users or groups without rights of their own.`),
	}}
}

// aclNow holds the present entries of one type.
type aclNow struct {
	files     *value.Dict
	name      string
	kind      string
	byDefault bool
	entries   *value.List // entries of the file itself
}

// aclLists accesses the lists of this machine.
var aclLists = acl.Lists{M: &host.Machine{}}

// aclKeywords returns keywords that request errors, and recursion if set.
func aclKeywords(recurse bool) fn.Kwargs {
	return fn.Kwargs{Dict: value.DictOf("recursive", recurse, "raise_err", true)}
}

// aclLook reads the entries of a file. An invalid type is an error.
func aclLook(ctx context.Context, e *state.Env, name, kind string, recurse bool) (aclNow, error) {
	if _, err := os.Stat(name); err != nil {
		return aclNow{}, state.Errorf("%s does not exist", name)
	}
	files, err := aclLists.Get(ctx, e.Call, acl.Args{Files: fn.Args{name}, Kwargs: aclKeywords(recurse)})
	n := aclNow{name: name, kind: kind, files: files}
	for _, d := range []string{"d:", "default:"} {
		if rest, ok := strings.CutPrefix(kind, d); ok {
			n.kind, n.byDefault = rest, true
			break
		}
	}
	n.entries = n.of(n.files.Dict(name))
	switch {
	case err != nil:
	case !n.files.Has(name):
		err = state.Errorf("getfacl tells nothing of %s", name)
	case n.entries.Len() == 0 && !n.byDefault:
		err = state.Errorf("ACL Type does not exist")
	}
	return n, err
}

// of returns the entries of a file with the type.
func (n aclNow) of(file *value.Dict) *value.List {
	if n.byDefault {
		file = file.Dict("defaults")
	}
	l, _ := file.At(n.kind).(*value.List)
	return l
}

// find returns the permissions of a user or group as a number.
func find(l *value.List, who string) (octal int64, ok bool) {
	if l == nil {
		return 0, false
	}
	for _, it := range l.Items {
		if d, _ := it.(*value.Dict); d.Has(who) {
			return d.Dict(who).Int("octal"), true
		}
	}
	return 0, false
}

// who returns the name to look for: the owner if none is given.
func (n aclNow) who(name string) string {
	if name == "" {
		return n.files.Dict(n.name).Dict("comment").Str(ownerKey(n.kind))
	}
	return name
}

// ownerKey returns getfacl's key for the owner of a type.
func ownerKey(kind string) string {
	if kind == "user" {
		return "owner"
	}
	return kind
}

// octal converts permissions such as rwx, or a digit, to a number.
func octal(perms string) (n int64) {
	for _, c := range perms {
		switch c {
		case 'r':
			n += 4
		case 'w':
			n += 2
		case 'x':
			n++
		default:
			if d, err := strconv.Atoi(string(c)); err == nil {
				n += int64(d)
			}
		}
	}
	return n
}

// letters formats old permissions as Salt does: with r for the bit of x, and
// vice versa.
func letters(n int64) string {
	b := []byte("---")
	for i, c := range []byte("rwx") {
		if n&(1<<i) != 0 {
			b[i] = c
		}
	}
	return string(b)
}

type aclArgs struct {
	Name    string `salt:"name" doc:"path of the file"`
	Type    string `salt:"acl_type" doc:"user, group or mask, with d: or default: before it for the rights that new files get"`
	ACLName string `salt:"acl_name" doc:"name of the user or group; none for the owner" default:""`
	Perms   string `salt:"perms" doc:"rights, as rwx" default:""`
	Recurse bool   `salt:"recurse" doc:"of all files in a directory, too" default:"false"`
	Force   bool   `salt:"force" doc:"remove all other entries first" default:"false"`
}

func aclPresent(ctx context.Context, e *state.Env, a aclArgs) (state.Plan, error) {
	n, err := aclLook(ctx, e, a.Name, a.Type, a.Recurse)
	if err != nil {
		return state.Plan{}, err
	}
	who, want := n.who(a.ACLName), octal(a.Perms)
	now, there := find(n.entries, who)
	same := there && now == want
	if there && a.Recurse {
		for path, v := range n.files.All() {
			if info, err := os.Stat(value.Str(path)); n.byDefault && (err != nil || !info.IsDir()) {
				continue
			}
			file, _ := v.(*value.Dict)
			got, ok := find(n.of(file), who)
			same = same && ok && got == want
		}
	}
	if same {
		return state.Plan{Comment: "Permissions are in the desired state"}, nil
	}
	entry := func(perms string) *value.Dict {
		return value.DictOf("acl_name", a.ACLName, "acl_type", a.Type, "perms", perms)
	}
	diff, would, did := value.DictOf("new", entry(a.Perms)), "New permissions will be applied for "+a.ACLName+": "+a.Perms, "Applied new permissions for "+
		a.ACLName
	if there && (a.ACLName != "" || n.kind != "user") { // Salt does not show old permissions of owners
		diff.Set("old", entry(letters(now)))
		would, did = "Updated permissions will be applied for "+a.ACLName+": "+letters(now)+" -> "+a.Perms, "Updated permissions for "+a.ACLName
	}
	return aclPlan(e, a, []string{a.ACLName}, a.ACLName, diff, would, did), nil
}

// aclPlan returns a plan that sets the permissions of users or groups. shown
// is how messages call them.
func aclPlan(e *state.Env, a aclArgs, names []string, shown string, diff *value.Dict, would, did string) state.Plan {
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: diff, Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		var err error
		if a.Force {
			_, err = aclLists.Wipe(ctx, e.Call, acl.Args{Files: fn.Args{a.Name}, Kwargs: aclKeywords(a.Recurse)})
		}
		for _, name := range names {
			if err == nil {
				_, err = aclLists.Modify(ctx, e.Call, acl.ModifyArgs{Type: a.Type, Name: name, Perms: a.Perms, Files: fn.Args{a.Name},
					Kwargs: aclKeywords(a.Recurse)})
			}
		}
		if err != nil {
			return state.Change{}, state.Errorf("Error updating permissions for %s: %w", shown, err)
		}
		return state.Change{Diff: diff, Comment: did}, nil
	}}}}
}

type aclAbsentArgs struct {
	Name    string `salt:"name" doc:"path of the file"`
	Type    string `salt:"acl_type" doc:"user, group or mask, with d: or default: before it for the rights that new files get"`
	ACLName string `salt:"acl_name" doc:"name of the user or group" default:""`
	Perms   string `salt:"perms" ignored:"all permissions are removed" default:""`
	Recurse bool   `salt:"recurse" doc:"of all files in a directory, too" default:"false"`
}

func aclAbsent(ctx context.Context, e *state.Env, a aclAbsentArgs) (state.Plan, error) {
	n, err := aclLook(ctx, e, a.Name, a.Type, a.Recurse)
	if err != nil {
		return state.Plan{}, err
	}
	there := false
	for _, v := range n.files.All() {
		file, _ := v.(*value.Dict)
		_, ok := find(n.of(file), n.who(a.ACLName))
		there = there || ok
	}
	return aclRemoval(e, a.Name, a.Type, []string{a.ACLName}, a.Recurse, there), nil
}

func aclRemoval(e *state.Env, file, kind string, names []string, recurse, there bool) state.Plan {
	if !there {
		return state.Plan{Comment: "Permissions are in the desired state"}
	}
	c := state.Change{Comment: "Removing permissions"}
	return state.Plan{Steps: []state.Step{{Change: c, Do: func(ctx context.Context) (state.Change, error) {
		for _, name := range names {
			due := acl.RemoveArgs{Type: kind, Name: name, Files: fn.Args{file}, Kwargs: aclKeywords(recurse)}
			if _, err := aclLists.Remove(ctx, e.Call, due); err != nil {
				return state.Change{}, state.Errorf("Error removing permissions of %s: %w", name, err)
			}
		}
		return c, nil
	}}}}
}

type aclListArgs struct {
	Name    string `salt:"name" doc:"path of the file"`
	Type    string `salt:"acl_type" doc:"user or group, with d: or default: before it for the rights that new files get"`
	Names   any    `salt:"acl_names" doc:"list of users or groups" default:"null"`
	Perms   string `salt:"perms" doc:"rights, as rwx" default:""`
	Recurse bool   `salt:"recurse" doc:"of all files in a directory, too" default:"false"`
	Force   bool   `salt:"force" doc:"remove all other entries first" default:"false"`
}

func aclListPresent(ctx context.Context, e *state.Env, a aclListArgs) (state.Plan, error) {
	n, err := aclLook(ctx, e, a.Name, a.Type, false)
	if err != nil {
		return state.Plan{}, err
	}
	names := value.Texts(a.Names)
	want, other, there, none := octal(a.Perms), int64(0), 0, true
	for _, name := range names {
		now, ok := find(n.entries, name)
		none = none && !ok
		switch {
		case ok && now == want:
			there++
		case ok:
			other = now
		}
	}
	if there == len(names) && !a.Force {
		return state.Plan{Comment: "Permissions are in the desired state"}, nil
	}
	all, shown := strings.Join(names, ", "), value.Repr(value.Strings(names))
	entry := func(perms any) *value.Dict {
		return value.DictOf("acl_name", all, "acl_type", a.Type, "perms", perms)
	}
	one := aclArgs{Name: a.Name, Type: a.Type, Perms: a.Perms, Recurse: a.Recurse, Force: a.Force}
	if !none && slices.ContainsFunc(names, func(name string) bool { now, ok := find(n.entries, name); return ok && now != want }) {
		old := strconv.FormatInt(other, 10)
		return aclPlan(e, one, names, shown, value.DictOf("new", entry(want), "old", entry(old)),
			"Updated permissions will be applied for "+shown+": "+old+" -> "+a.Perms, "Updated permissions for "+shown), nil
	}
	return aclPlan(e, one, names, shown, value.DictOf("new", entry(a.Perms)), "New permissions will be applied for "+shown+": "+a.Perms,
		"Applied new permissions for "+all), nil
}

type aclListAbsentArgs struct {
	Name    string `salt:"name" doc:"path of the file"`
	Type    string `salt:"acl_type" doc:"user or group, with d: or default: before it for the rights that new files get"`
	Names   any    `salt:"acl_names" doc:"list of users or groups" default:"null"`
	Recurse bool   `salt:"recurse" doc:"of all files in a directory, too" default:"false"`
}

func aclListAbsent(ctx context.Context, e *state.Env, a aclListAbsentArgs) (state.Plan, error) {
	n, err := aclLook(ctx, e, a.Name, a.Type, false)
	if err != nil {
		return state.Plan{}, err
	}
	names := value.Texts(a.Names)
	names = slices.DeleteFunc(names, func(name string) bool { _, ok := find(n.entries, name); return !ok })
	return aclRemoval(e, a.Name, a.Type, names, a.Recurse, len(names) > 0), nil
}
