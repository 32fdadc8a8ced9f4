package accounts

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/py/value"
)

type user struct{ m *host.Machine }

func init() { units.Register("user", userModule) }

func userModule(m *host.Machine) fn.Module {
	u := user{m}
	const noClass = "login classes are those of OpenBSD"
	mod := fn.Module{Name: "user", Doc: `Users of the machine.`, Funcs: []fn.Func{
		fn.Of("info", u.info, `Return what is known of a user, an empty map if there is none.`, fn.Example("salt '*' user.info root")),
		fn.Of("getent", u.getent, `Return what is known of all users.`, fn.Example("salt '*' user.getent")),
		fn.Of("list_users", u.listUsers, `Return the names of all users.`, fn.Example("salt '*' user.list_users")),
		fn.Of("list_groups", u.listGroups, `Return the names of the groups that a user belongs to.`, fn.Example("salt '*' user.list_groups foo")),
		fn.Of("primary_group", u.primaryGroup, `Return the name of a user's own group.`, fn.Example("salt '*' user.primary_group saltadmin")),
		fn.Of("add", u.add, `Add a user.`, fn.Example("salt '*' user.add fred uid=2000 shell=/bin/bash")),
		fn.Of("delete", u.delete, `Remove a user.`, fn.Example("salt '*' user.delete fred remove=true")),
		fn.Of("rename", u.rename, `Give a user another name.`, fn.Example("salt '*' user.rename fred alfred")),
		fn.Of("chgroups", u.chgroups, `Set the groups that a user belongs to besides the own one.`,
			fn.Example("salt '*' user.chgroups foo wheel,root append=true")),
		fn.Of("chuid", change(u, "uid", "-u"), `Set the id of a user.`, fn.Params("name", "uid", "root"), fn.Example("salt '*' user.chuid foo 4376")),
		fn.Of("chgid", change(u, "gid", "-g"), `Set the own group of a user.`, fn.Params("name", "gid", "root"), fn.Example("salt '*' user.chgid foo 4376")),
		fn.Of("chshell", change(u, "shell", "-s"), `Set the login shell of a user.`, fn.Params("name", "shell", "root"),
			fn.Example("salt '*' user.chshell foo /bin/zsh")),
		fn.Of("chhome", change(u, "home", "-d"), `Set the home of a user.`, fn.Params("name", "home", "persist", "root"),
			fn.Example("salt '*' user.chhome foo /home/users/foo persist=true")),
		fn.Of("get_loginclass", u.noClass, `Return false: login classes are those of OpenBSD.`, fn.Params("name"), fn.Ignored(noClass, "name"),
			fn.Example("salt '*' user.get_loginclass foo")),
		fn.Of("chloginclass", u.noClass, `Return false: login classes are those of OpenBSD.`, fn.Ignored(noClass, "name", "loginclass"),
			fn.Example("salt '*' user.chloginclass foo staff")),
	}}
	for i, key := range commentKeys {
		mod.Funcs = append(mod.Funcs, fn.Of("ch"+key, u.comment(i), `Set the `+commentDocs[i]+` of a user.`,
			fn.Params("name", key, "root"), fn.Example("salt '*' user.ch"+key+" foo 'Foo Bar'")))
	}
	return mod
}

type classArgs struct {
	Name  string `salt:"name" doc:"name of the user"`
	Class string `salt:"loginclass" doc:"name of the class"`
	Root  any    `salt:"root" ignored:"login classes are those of BSD" default:"null"`
}

func (user) noClass(context.Context, *fn.Call, classArgs) (bool, error) { return false, nil }

// commentKeys lists the parts of an account's comment, in order.
var (
	commentKeys = []string{"fullname", "roomnumber", "workphone", "homephone", "other"}
	commentDocs = []string{"full name", "room number", "telephone number at work", "telephone number at home", "further information"}
)

type userArgs struct {
	Name string `salt:"name" doc:"name of the user"`
	rootArg
}

func (u user) info(ctx context.Context, _ *fn.Call, a userArgs) (*value.Dict, error) {
	m := a.below(u.m)
	if acc, ok := account.ByName(ctx, m, a.Name); ok {
		return describe(ctx, account.ReadMemberships(ctx, m), acc), nil
	}
	return value.NewDict(0), nil
}

func describe(ctx context.Context, groups *account.Memberships, u account.User) *value.Dict {
	d := value.DictOf("gid", u.GID, "groups", groups.Of(ctx, u.Name, u.GID), "home", u.Home, "name", u.Name, "passwd", u.Password, "shell", u.Shell, "uid",
		u.UID)
	for i, part := range commentParts(u.Comment) {
		d.Set(commentKeys[i], part)
	}
	return d
}

// commentParts splits a comment into five parts, which may be empty.
func commentParts(comment string) []string {
	parts := strings.SplitN(comment, ",", 5)
	return append(parts, make([]string, 5-len(parts))...)
}

type getentArgs struct {
	Refresh bool `salt:"refresh" ignored:"nothing is remembered between calls" default:"false"`
	rootArg
}

func (u user) getent(ctx context.Context, _ *fn.Call, a getentArgs) (*value.List, error) {
	m := a.below(u.m)
	groups, out := account.ReadMemberships(ctx, m), &value.List{}
	for _, acc := range account.Users(ctx, m) {
		out.Append(describe(ctx, groups, acc))
	}
	return out, nil
}

func (u user) listUsers(ctx context.Context, _ *fn.Call, a rootArg) (*value.List, error) {
	var names []string
	for _, acc := range account.Users(ctx, a.below(u.m)) {
		names = append(names, acc.Name)
	}
	slices.Sort(names)
	return value.Strings(names), nil
}

type nameArgs struct {
	Name string `salt:"name" doc:"name of the user"`
}

func (u user) listGroups(ctx context.Context, _ *fn.Call, a nameArgs) (*value.List, error) {
	return value.Strings(u.groupsOf(ctx, u.m, a.Name)), nil
}

func (u user) groupsOf(ctx context.Context, m *host.Machine, name string) []string {
	gid := -1
	if acc, ok := account.ByName(ctx, m, name); ok {
		gid = acc.GID
	}
	return account.ReadMemberships(ctx, m).Of(ctx, name, gid)
}

func (u user) primaryGroup(ctx context.Context, _ *fn.Call, a nameArgs) (string, error) {
	acc, ok := account.ByName(ctx, u.m, a.Name)
	if !ok {
		return "", missingUser(a.Name)
	}
	if name, ok := account.GroupName(u.m, acc.GID); ok {
		return name, nil
	}
	for _, g := range account.Groups(ctx, u.m) {
		if g.GID == acc.GID {
			return g.Name, nil
		}
	}
	return "", fn.Errorf("the group %d of user %s has no name", acc.GID, a.Name)
}

func missingUser(name string) error { return fn.Errorf("User '%s' does not exist", name) }

type userAddArgs struct {
	Name       string `salt:"name" doc:"name of the user"`
	UID        any    `salt:"uid" doc:"id of the user" default:"null"`
	GID        any    `salt:"gid" doc:"own group, by name or id" default:"null"`
	Groups     any    `salt:"groups" doc:"further groups, as a list or with commas" default:"null"`
	Home       any    `salt:"home" doc:"path of the home" default:"null"`
	Shell      any    `salt:"shell" doc:"path of the login shell" default:"null"`
	Unique     bool   `salt:"unique" doc:"refuse an id that another user has" default:"true"`
	System     bool   `salt:"system" doc:"make a system user" default:"false"`
	Fullname   string `salt:"fullname" doc:"full name" default:""`
	Roomnumber string `salt:"roomnumber" doc:"room number" default:""`
	Workphone  string `salt:"workphone" doc:"telephone number at work" default:""`
	Homephone  string `salt:"homephone" doc:"telephone number at home" default:""`
	Other      string `salt:"other" doc:"further information" default:""`
	Createhome bool   `salt:"createhome" doc:"make the home" default:"true"`
	Loginclass any    `salt:"loginclass" ignored:"login classes are those of BSD" default:"null"`
	Nologinit  bool   `salt:"nologinit" doc:"keep the user out of lastlog and faillog" default:"false"`
	rootArg
	Usergroup *bool `salt:"usergroup" doc:"make a group of the user's name; as useradd(8) does by default if null" default:"null"`
	Local     bool  `salt:"local" doc:"use luseradd, for local users beside a directory service" default:"false"`
}

func (u user) add(ctx context.Context, c *fn.Call, a userAddArgs) (bool, error) {
	if err := plainName("user", a.Name); err != nil {
		return false, err
	}
	program := "useradd"
	if a.Local {
		program = "luseradd"
	}
	out, err := do(ctx, c, u.m, program, u.addOptions(a)...)
	if err != nil || out.Exit != 0 {
		return false, err
	}
	if value.Truth(a.Groups) {
		if _, err := u.chgroups(ctx, c, chgroupsArgs{Name: a.Name, Groups: a.Groups, rootArg: a.rootArg}); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (u user) addOptions(a userAddArgs) []string {
	var args []string
	add := func(option string, v any) bool {
		if v == nil || v == "" {
			return false
		}
		args = append(args, option, value.Str(v))
		return true
	}
	flag := func(on bool, option string) {
		if on {
			args = append(args, option)
		}
	}
	add("-s", a.Shell)
	add("-u", a.UID)
	switch group := add("-g", a.GID); {
	case group:
	case a.Usergroup != nil && *a.Usergroup:
		flag(!a.Local, "-U")
	case slices.Contains(list(a.Groups), a.Name) && u.userGroups():
		// A group with the user's name in the list becomes the primary group.
		add("-g", a.Name)
	}
	if a.Usergroup != nil && !*a.Usergroup {
		flag(a.Local, "-n")
		flag(!a.Local, "-N")
	}
	flag(a.Createhome && !a.Local, "-m")
	flag(!a.Createhome, "-M")
	flag(a.Nologinit, "-l")
	add("-d", a.Home)
	flag(!a.Unique, "-o")
	flag(a.System, "-r")
	add("-c", strings.TrimRight(strings.Join([]string{a.Fullname, a.Roomnumber, a.Workphone, a.Homephone, a.Other}, ","), ","))
	if !a.Local {
		args = append(args, a.change("-R")...)
	}
	return append(args, a.Name)
}

// userGroups reports whether useradd makes a group for each user.
func (u user) userGroups() bool {
	for _, line := range u.m.Lines("/etc/login.defs") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "USERGROUPS_ENAB" {
			return f[1] == "yes"
		}
	}
	return false
}

type userDeleteArgs struct {
	Name   string `salt:"name" doc:"name of the user"`
	Remove bool   `salt:"remove" doc:"remove the home and the mail too" default:"false"`
	Force  bool   `salt:"force" doc:"even if the user is logged in" default:"false"`
	rootArg
	Local bool `salt:"local" doc:"use luserdel" default:"false"`
}

// exitHome is the exit status of userdel if it could not remove all files.
const exitHome = 12

func (u user) delete(ctx context.Context, c *fn.Call, a userDeleteArgs) (bool, error) {
	if err := plainName("user", a.Name); err != nil {
		return false, err
	}
	program, args := "userdel", []string{}
	if a.Local {
		program = "luserdel"
	}
	if a.Remove {
		args = append(args, "-r")
	}
	if !a.Local {
		if a.Force {
			args = append(args, "-f")
		}
		args = append(args, a.change("-R")...)
	}
	out, err := do(ctx, c, u.m, program, append(args, a.Name)...)
	if err != nil {
		return false, err
	}
	// Debian's userdel fails when there is no mail to remove.
	noMail := out.Exit == exitHome && c.Grains.Get("os_family") == "Debian" &&
		(strings.Contains(out.Stderr, "var/mail") || strings.Contains(out.Stderr, "var/spool/mail"))
	return out.Exit == 0 || noMail, nil
}

type renameArgs struct {
	Name    string `salt:"name" doc:"name of the user"`
	NewName string `salt:"new_name" doc:"new name"`
	rootArg
}

func (u user) rename(ctx context.Context, c *fn.Call, a renameArgs) (bool, error) {
	if err := plainName("user", a.NewName); err != nil {
		return false, err
	}
	m := a.below(u.m)
	if _, ok := account.ByName(ctx, m, a.NewName); ok {
		return false, fn.Errorf("User '%s' already exists", a.NewName)
	}
	if _, ok := account.ByName(ctx, m, a.Name); !ok {
		return false, missingUser(a.Name)
	}
	if _, err := do(ctx, c, u.m, "usermod", append(a.change("-R"), "-l", a.NewName, a.Name)...); err != nil {
		return false, err
	}
	_, ok := account.ByName(ctx, m, a.NewName)
	return ok, nil
}

type userChangeArgs struct {
	Name    string `salt:"name" doc:"name of the user"`
	UID     any    `salt:"uid" doc:"new id"`
	GID     any    `salt:"gid" doc:"name or id of the new group"`
	Shell   any    `salt:"shell" doc:"path of the new shell"`
	Home    any    `salt:"home" doc:"path of the new home"`
	Persist bool   `salt:"persist" doc:"move the content of the old home" default:"false"`
	rootArg
}

// change returns a function that sets one property of an account with an
// option of usermod.
func change(u user, key, option string) func(context.Context, *fn.Call, userChangeArgs) (bool, error) {
	return func(ctx context.Context, c *fn.Call, a userChangeArgs) (bool, error) {
		v := map[string]any{"uid": a.UID, "gid": a.GID, "shell": a.Shell, "home": a.Home}[key]
		have := func() (any, bool) {
			acc, ok := account.ByName(ctx, a.below(u.m), a.Name)
			return map[string]any{"uid": int64(acc.UID), "gid": int64(acc.GID), "shell": acc.Shell, "home": acc.Home}[key], ok
		}
		switch old, ok := have(); {
		case !ok:
			return false, missingUser(a.Name)
		case value.Str(old) == value.Str(v):
			return true, nil
		}
		text := value.Str(v)
		if g, ok := account.GroupByName(ctx, a.below(u.m), text); ok && key == "gid" {
			if text = strconv.Itoa(g.GID); text == value.Str(first(have())) {
				return true, nil
			}
		}
		if _, err := strconv.Atoi(text); err != nil && option != "-s" && option != "-d" || strings.HasPrefix(text, "-") {
			return false, fn.Invalidf("%q is no %s", text, key)
		}
		args := a.change("-R")
		if a.Persist {
			args = append(args, "-m")
		}
		if _, err := do(ctx, c, u.m, "usermod", append(args, option, text, a.Name)...); err != nil {
			return false, err
		}
		now, _ := have()
		return value.Str(now) == text, nil
	}
}

func first(v any, _ bool) any { return v }

type chgroupsArgs struct {
	Name   string `salt:"name" doc:"name of the user"`
	Groups any    `salt:"groups" doc:"names of groups, as a list or with commas"`
	Append bool   `salt:"append" doc:"keep the groups that the user is in" default:"false"`
	rootArg
}

func (u user) chgroups(ctx context.Context, c *fn.Call, a chgroupsArgs) (bool, error) {
	if err := plainName("user", a.Name); err != nil {
		return false, err
	}
	groups := list(a.Groups)
	for _, g := range groups {
		if g != "" {
			if err := plainName("group", g); err != nil {
				return false, err
			}
		}
	}
	want := slices.Clone(groups)
	slices.Sort(want)
	if slices.Equal(u.groupsOf(ctx, a.below(u.m), a.Name), slices.Compact(want)) {
		return true, nil
	}
	args := a.change("-R")
	if a.Append {
		args = append(args, "-a")
	}
	out, err := do(ctx, c, u.m, "usermod", append(args, "-G", strings.Join(groups, ","), a.Name)...)
	if err != nil {
		return false, err
	}
	if out.Exit == 0 || !strings.Contains(out.Stderr, "not found in") {
		return out.Exit == 0, nil
	}
	// The user comes from a directory service, which usermod cannot change.
	all := true
	for _, g := range groups {
		out, err := do(ctx, c, u.m, "gpasswd", "-a", a.Name, g)
		if err != nil {
			return false, err
		}
		all = all && out.Exit == 0
	}
	return all, nil
}

type commentArgs struct {
	Name       string `salt:"name" doc:"name of the user"`
	Fullname   any    `salt:"fullname" doc:"full name"`
	Roomnumber any    `salt:"roomnumber" doc:"room number"`
	Workphone  any    `salt:"workphone" doc:"telephone number at work"`
	Homephone  any    `salt:"homephone" doc:"telephone number at home"`
	Other      any    `salt:"other" doc:"further information"`
	rootArg
}

// comment returns a function that sets one part of an account's comment.
func (u user) comment(i int) func(context.Context, *fn.Call, commentArgs) (bool, error) {
	return func(ctx context.Context, c *fn.Call, a commentArgs) (bool, error) {
		text := ""
		if v := []any{a.Fullname, a.Roomnumber, a.Workphone, a.Homephone, a.Other}[i]; v != nil {
			text = value.Str(v)
		}
		acc, ok := account.ByName(ctx, a.below(u.m), a.Name)
		if !ok {
			return false, missingUser(a.Name)
		}
		parts := commentParts(acc.Comment)
		if parts[i] == text {
			return true, nil
		}
		parts[i] = text
		args := append(a.change("-R"), "-c", strings.TrimRight(strings.Join(parts, ","), ","), a.Name)
		if _, err := do(ctx, c, u.m, "usermod", args...); err != nil {
			return false, err
		}
		now, _ := account.ByName(ctx, a.below(u.m), a.Name)
		return commentParts(now.Comment)[i] == text, nil
	}
}
