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

type group struct{ m *host.Machine }

func init() { units.Register("group", groupModule) }

func groupModule(m *host.Machine) fn.Module {
	g := group{m}
	return fn.Module{Name: "group", Doc: `Groups of the machine.`, Funcs: []fn.Func{
		fn.Of("info", g.info, `Return what is known of a group, an empty map if there is none.`, fn.Example("salt '*' group.info foo")),
		fn.Of("getent", g.getent, `Return what is known of all groups.`, fn.Example("salt '*' group.getent")),
		fn.Of("add", g.add, `Add a group.`, fn.Example("salt '*' group.add foo 3456")),
		fn.Of("delete", g.delete, `Remove a group.`, fn.Example("salt '*' group.delete foo")),
		fn.Of("chgid", g.chgid, `Set the id of a group.`, fn.Example("salt '*' group.chgid foo 4376")),
		fn.Of("adduser", g.adduser, `Make a user a member of a group.`, fn.Example("salt '*' group.adduser foo bar")),
		fn.Of("deluser", g.deluser, `Take a member out of a group.`, fn.Example("salt '*' group.deluser foo bar")),
		fn.Of("members", g.members, `Set all members of a group.`, fn.Example("salt '*' group.members foo user1,user2")),
	}}
}

type groupArgs struct {
	Name string `salt:"name" doc:"name of the group"`
	rootArg
}

func (g group) info(ctx context.Context, _ *fn.Call, a groupArgs) (*value.Dict, error) {
	if gr, ok := account.GroupByName(ctx, a.below(g.m), a.Name); ok {
		return describeGroup(gr), nil
	}
	return value.NewDict(0), nil
}

func describeGroup(g account.Group) *value.Dict {
	return value.DictOf("name", g.Name, "passwd", g.Password, "gid", g.GID, "members", g.Members)
}

func (g group) getent(ctx context.Context, _ *fn.Call, a getentArgs) (*value.List, error) {
	out := &value.List{}
	for _, gr := range account.Groups(ctx, a.below(g.m)) {
		out.Append(describeGroup(gr))
	}
	return out, nil
}

type groupAddArgs struct {
	Name   string `salt:"name" doc:"name of the group"`
	GID    any    `salt:"gid" doc:"id of the group" default:"null"`
	System bool   `salt:"system" doc:"make a system group" default:"false"`
	rootArg
	NonUnique bool `salt:"non_unique" doc:"allow an id that another group has" default:"false"`
	Local     bool `salt:"local" doc:"use lgroupadd, for local groups beside a directory service" default:"false"`
}

func (g group) add(ctx context.Context, c *fn.Call, a groupAddArgs) (bool, error) {
	if err := plainName("group", a.Name); err != nil {
		return false, err
	}
	program, args := "groupadd", []string{}
	if a.Local {
		program = "lgroupadd"
	}
	if value.Truth(a.GID) {
		args = append(args, "-g", value.Str(a.GID))
		if a.NonUnique && !a.Local {
			args = append(args, "-o")
		}
	}
	if a.System {
		args = append(args, "-r")
	}
	if !a.Local {
		args = append(args, a.change("-R")...)
	}
	out, err := do(ctx, c, g.m, program, append(args, a.Name)...)
	return err == nil && out.Exit == 0, err
}

type groupDeleteArgs struct {
	Name string `salt:"name" doc:"name of the group"`
	rootArg
	Local bool `salt:"local" doc:"use lgroupdel" default:"false"`
}

func (g group) delete(ctx context.Context, c *fn.Call, a groupDeleteArgs) (bool, error) {
	if err := plainName("group", a.Name); err != nil {
		return false, err
	}
	program, args := "groupdel", a.change("-R")
	if a.Local {
		program, args = "lgroupdel", nil
	}
	out, err := do(ctx, c, g.m, program, append(args, a.Name)...)
	return err == nil && out.Exit == 0, err
}

type groupChgidArgs struct {
	Name string `salt:"name" doc:"name of the group"`
	GID  int    `salt:"gid" doc:"new id"`
	rootArg
	NonUnique bool `salt:"non_unique" doc:"allow an id that another group has" default:"false"`
}

func (g group) chgid(ctx context.Context, c *fn.Call, a groupChgidArgs) (bool, error) {
	gr, ok := account.GroupByName(ctx, a.below(g.m), a.Name)
	if !ok {
		return false, nil
	}
	if gr.GID == a.GID {
		return true, nil
	}
	args := a.change("-R")
	if a.NonUnique {
		args = append(args, "-o")
	}
	if _, err := do(ctx, c, g.m, "groupmod", append(args, "-g", strconv.Itoa(a.GID), a.Name)...); err != nil {
		return false, err
	}
	gr, _ = account.GroupByName(ctx, a.below(g.m), a.Name)
	return gr.GID == a.GID, nil
}

type memberArgs struct {
	Name     string `salt:"name" doc:"name of the group"`
	Username string `salt:"username" doc:"name of the user"`
	rootArg
}

func (g group) adduser(ctx context.Context, c *fn.Call, a memberArgs) (bool, error) {
	return g.gpasswd(ctx, c, a, "--add")
}

func (g group) deluser(ctx context.Context, c *fn.Call, a memberArgs) (bool, error) {
	gr, ok := account.GroupByName(ctx, a.below(g.m), a.Name)
	if !ok || !slices.Contains(gr.Members, a.Username) {
		return true, nil
	}
	return g.gpasswd(ctx, c, a, "--del")
}

func (g group) gpasswd(ctx context.Context, c *fn.Call, a memberArgs, option string) (bool, error) {
	if err := plainName("group", a.Name); err != nil {
		return false, err
	}
	if err := plainName("user", a.Username); err != nil {
		return false, err
	}
	out, err := do(ctx, c, g.m, "gpasswd", append(a.change("--root"), option, a.Username, a.Name)...)
	return err == nil && out.Exit == 0, err
}

type membersArgs struct {
	Name    string `salt:"name" doc:"name of the group"`
	Members any    `salt:"members_list" doc:"names of users, with commas or as a list"`
	rootArg
}

func (g group) members(ctx context.Context, c *fn.Call, a membersArgs) (bool, error) {
	if err := plainName("group", a.Name); err != nil {
		return false, err
	}
	users := strings.Join(list(a.Members), ",")
	if users != "" {
		if err := plainName("user", users); err != nil {
			return false, err
		}
	}
	out, err := do(ctx, c, g.m, "gpasswd", append(a.change("--root"), "--members", users, a.Name)...)
	return err == nil && out.Exit == 0, err
}
