package accounts

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("group", func() state.Module {
		return state.Module{Name: "group", Doc: `Keep groups of users.`, Funcs: []state.Func{
			state.Of("present", groupPresent, `Have a group, possibly with an id and members.`),
			state.Of("absent", groupAbsent, `Have no such group.`),
		}}
	})
}

type groupArgs struct {
	Name      string `salt:"name" doc:"name of the group"`
	GID       any    `salt:"gid" doc:"id; the next free one if null" default:"null"`
	System    bool   `salt:"system" doc:"make a system group" default:"false"`
	Add       any    `salt:"addusers" doc:"users that are to be members" default:"null"`
	Del       any    `salt:"delusers" doc:"users that are not to be members" default:"null"`
	Members   any    `salt:"members" doc:"the users that are to be the only members" default:"null"`
	NonUnique bool   `salt:"non_unique" doc:"allow an id that another group has" default:"false"`
	Local     bool   `salt:"local" doc:"the machine's own groups, past a directory service" default:"false"`
}

// groupChange is one difference between a group and its declaration.
type groupChange struct {
	key   string
	users []string // for every key but gid
	gid   int64
	set   bool // shown as a set
}

func (c groupChange) value() any {
	switch {
	case c.key == "gid":
		return c.gid
	case c.set:
		quoted := make([]string, len(c.users))
		for i, u := range c.users {
			quoted[i] = value.Repr(u)
		}
		return "{" + strings.Join(quoted, ", ") + "}"
	}
	return value.Strings(c.users)
}

// differs compares an existing group with the declared one.
func (a groupArgs) differs(have *value.Dict) (list []groupChange, err error) {
	if value.Truth(a.GID) {
		gid, err := strconv.ParseInt(value.Str(a.GID), 10, 64)
		if err != nil {
			return nil, fn.Errorf("Invalid gid")
		}
		if have.Int("gid") != gid {
			list = append(list, groupChange{key: "gid", gid: gid})
		}
	}
	now, want := value.Texts(have.At("members")), value.Texts(a.Members)
	same := len(now) == len(want)
	for _, u := range want {
		same = same && slices.Contains(now, u)
	}
	switch {
	case a.Members == nil || same:
	case len(want) == 0:
		list = append(list, groupChange{key: "delusers", users: now, set: true})
	default:
		list = append(list, groupChange{key: "members", users: want})
	}
	for _, c := range []struct {
		key   string
		users any
		there bool
	}{{"addusers", a.Add, false}, {"delusers", a.Del, true}} {
		var users []string
		for _, u := range value.Texts(c.users) {
			if slices.Contains(now, u) == c.there {
				users = append(users, u)
			}
		}
		if len(users) > 0 {
			list = append(list, groupChange{key: c.key, users: users})
		}
	}
	return list, nil
}

func shownChanges(list []groupChange) *value.Dict {
	d := value.NewDict(len(list))
	for _, c := range list {
		v := c.value()
		if c.set {
			v = value.Strings(c.users)
		}
		d.Set(c.key, v)
	}
	return d
}

// conflict finds arguments that contradict each other.
func (a groupArgs) conflict() string {
	if a.Members != nil && (a.Add != nil || a.Del != nil) {
		return `Error: Conflicting options "members" with "addusers" and/or "delusers" can not be used together. `
	}
	for _, u := range value.Texts(a.Add) {
		if slices.Contains(value.Texts(a.Del), u) {
			return "Error. Same user(s) can not be added and deleted simultaneously"
		}
	}
	return ""
}

func groupPresent(ctx context.Context, e *state.Env, a groupArgs) (state.Plan, error) {
	if text := a.conflict(); text != "" {
		return state.Plan{Forecast: &state.Result{Comment: text}}, fn.Errorf("%s", text)
	}
	have, err := info(ctx, e, "group", a.Name, a.Local)
	if err != nil {
		return state.Plan{}, err
	}
	if have.Len() == 0 {
		return a.create(ctx, e)
	}
	list, err := a.differs(have)
	if err != nil || len(list) == 0 {
		return state.Plan{Comment: "Group " + a.Name + " is present and up to date"}, err
	}
	comment := "The following group attributes are set to be changed:\n"
	for _, c := range list {
		comment += c.key + ": " + value.Str(c.value()) + "\n"
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: comment},
		Do: func(ctx context.Context) (state.Change, error) {
			for _, c := range list {
				if err := a.apply(ctx, e, c); err != nil {
					return state.Change{}, err
				}
			}
			left, err := a.left(ctx, e)
			switch {
			case err != nil:
				return state.Change{}, err
			case len(left) > 0:
				return state.Change{Diff: value.DictOf("Failed", shownChanges(left))}, fn.Errorf("%sSome changes could not be applied", comment)
			}
			return state.Change{Diff: value.DictOf("Final", "All changes applied successfully"), Comment: comment}, nil
		},
	}}}, nil
}

func (a groupArgs) left(ctx context.Context, e *state.Env) ([]groupChange, error) {
	have, err := info(ctx, e, "group", a.Name, a.Local)
	if err != nil {
		return nil, err
	}
	return a.differs(have)
}

// apply makes one change.
func (a groupArgs) apply(ctx context.Context, e *state.Env, c groupChange) (err error) {
	switch c.key {
	case "gid":
		_, err = e.Exec(ctx, "group.chgid", value.DictOf("non_unique", a.NonUnique), a.Name, c.gid)
	case "members":
		_, err = e.Exec(ctx, "group.members", nil, a.Name, strings.Join(c.users, ","))
	default:
		fun := "group.adduser"
		if c.key == "delusers" {
			fun = "group.deluser"
		}
		for _, u := range c.users {
			if _, err := e.Exec(ctx, fun, nil, a.Name, u); err != nil {
				return err
			}
		}
	}
	return err
}

// create returns the plan to add the group.
func (a groupArgs) create(ctx context.Context, e *state.Env) (state.Plan, error) {
	p := state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Group " + a.Name + " set to be added"},
		Do:     func(ctx context.Context) (state.Change, error) { return a.add(ctx, e) },
	}}}
	return p, nil
}

func (a groupArgs) add(ctx context.Context, e *state.Env) (state.Change, error) {
	if a.GID != nil && !a.NonUnique {
		all, err := e.Exec(ctx, "group.getent", nil)
		if err != nil {
			return state.Change{}, err
		}
		l, _ := all.(*value.List)
		for i := range l.Len() {
			if d, ok := l.Items[i].(*value.Dict); ok && value.Equal(d.At("gid"), a.GID) {
				return state.Change{}, fn.Errorf("Group %s is not present but gid %s is already taken by group %s", a.Name, value.Str(a.GID), value.Str(d.At("name")))
			}
		}
	}
	ok, err := e.Exec(ctx, "group.add", value.DictOf("gid", a.GID, "system", a.System, "non_unique", a.NonUnique, "local", a.Local), a.Name)
	if err != nil || !value.Truth(ok) {
		if err == nil {
			err = fn.Errorf("Failed to create new group %s", a.Name)
		}
		return state.Change{}, err
	}
	users := value.Texts(a.Members)
	if more := value.Texts(a.Add); len(more) > 0 {
		users = more
	}
	if len(users) > 0 {
		if _, err := e.Exec(ctx, "group.members", nil, a.Name, strings.Join(users, ",")); err != nil {
			return state.Change{}, err
		}
	}
	have, err := info(ctx, e, "group", a.Name, a.Local)
	if err != nil {
		return state.Change{}, err
	}
	left, err := a.differs(have)
	switch {
	case err != nil:
		return state.Change{Diff: have}, err
	case len(left) > 0:
		return state.Change{Diff: value.DictOf("Failed", shownChanges(left))}, fn.Errorf("Group %s has been created but, some changes could not be applied", a.Name)
	}
	return state.Change{Diff: have, Comment: "New group " + a.Name + " created"}, nil
}

type groupAbsentArgs struct {
	Name  string `salt:"name" doc:"name of the group"`
	Local bool   `salt:"local" doc:"the machine's own groups, past a directory service" default:"false"`
}

func groupAbsent(ctx context.Context, e *state.Env, a groupAbsentArgs) (state.Plan, error) {
	have, err := info(ctx, e, "group", a.Name, a.Local)
	if err != nil || have.Len() == 0 {
		return state.Plan{Comment: "Group not present"}, err
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Group " + a.Name + " is set for removal"},
		Do: func(ctx context.Context) (state.Change, error) {
			ok, err := e.Exec(ctx, "group.delete", value.DictOf("local", a.Local), a.Name)
			if err == nil && !value.Truth(ok) {
				err = fn.Errorf("Failed to remove group %s", a.Name)
			}
			if err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: value.DictOf(a.Name, ""), Comment: "Removed group " + a.Name}, nil
		},
	}}}, nil
}
