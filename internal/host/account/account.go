// Package account reads the users and groups of a machine, and changes the
// passwords in /etc/shadow.
//
// Names and lists come from the files in /etc; on the live machine also from
// other sources, such as LDAP, through getent(1). Numbers are looked up in the
// files only.
package account

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"brine/internal/host"
)

// User is an account.
type User struct {
	Name     string
	Password string // "x" if it is in /etc/shadow
	UID, GID int
	Comment  string // full name, room and telephones, separated by commas
	Home     string
	Shell    string
}

// Group is a group of accounts.
type Group struct {
	Name     string
	Password string
	GID      int
	Members  []string // without users whose primary group it is
}

func parseUser(line string) (User, bool) {
	f := strings.Split(line, ":")
	if len(f) < 7 || f[0] == "" {
		return User{}, false
	}
	uid, err1 := strconv.Atoi(f[2])
	gid, err2 := strconv.Atoi(f[3])
	return User{Name: f[0], Password: f[1], UID: uid, GID: gid, Comment: f[4], Home: f[5], Shell: f[6]}, err1 == nil && err2 == nil
}

func parseGroup(line string) (Group, bool) {
	f := strings.Split(line, ":")
	if len(f) < 4 || f[0] == "" {
		return Group{}, false
	}
	gid, err := strconv.Atoi(f[2])
	g := Group{Name: f[0], Password: f[1], GID: gid, Members: []string{}}
	if f[3] != "" {
		g.Members = strings.Split(f[3], ",")
	}
	return g, err == nil
}

// parse parses the valid lines.
func parse[T any](lines []string, one func(string) (T, bool)) []T {
	var out []T
	for _, line := range lines {
		if v, ok := one(strings.TrimSpace(line)); ok {
			out = append(out, v)
		}
	}
	return out
}

// database returns the lines of a file in /etc, or of all sources.
func database(ctx context.Context, m *host.Machine, name string) []string {
	if m.Live() {
		if out, exit, err := m.Run(ctx, "getent", name); err == nil && exit == 0 {
			return strings.Split(out, "\n")
		}
	}
	return read(m, name).lines
}

// entry returns the line of a name, from the file or else from another source.
func entry(ctx context.Context, m *host.Machine, database, name string) string {
	if line, ok := read(m, database).byName[name]; ok {
		return line
	}
	if !m.Live() || name == "" {
		return ""
	}
	out, exit, err := m.Run(ctx, "getent", database, "--", name)
	if line, _, _ := strings.Cut(out, "\n"); err == nil && exit == 0 && strings.HasPrefix(line, name+":") {
		return line // and not the entry of a number
	}
	return ""
}

// Users returns all accounts.
func Users(ctx context.Context, m *host.Machine) []User {
	return parse(database(ctx, m, "passwd"), parseUser)
}

// Groups returns all groups.
func Groups(ctx context.Context, m *host.Machine) []Group {
	return parse(database(ctx, m, "group"), parseGroup)
}

// ByName returns the account of a name.
func ByName(ctx context.Context, m *host.Machine, name string) (User, bool) {
	return parseUser(entry(ctx, m, "passwd", name))
}

// GroupByName returns the group of a name.
func GroupByName(ctx context.Context, m *host.Machine, name string) (Group, bool) {
	return parseGroup(entry(ctx, m, "group", name))
}

// ByID returns the first account with a user id.
func ByID(m *host.Machine, uid int) (User, bool) {
	for _, line := range read(m, "passwd").byID[strconv.Itoa(uid)] {
		if u, ok := parseUser(line); ok && u.UID == uid {
			return u, true
		}
	}
	return User{}, false
}

// GroupName returns the name of the first group with a group id.
func GroupName(m *host.Machine, gid int) (string, bool) {
	for _, line := range read(m, "group").byID[strconv.Itoa(gid)] {
		name, _, _ := strings.Cut(line, ":")
		return name, true
	}
	return "", false
}

// Memberships maps users to their groups. It reads all groups once.
type Memberships struct {
	m      *host.Machine
	groups []Group
	remote bool // sources other than files have groups
}

// ReadMemberships reads the groups of the machine.
func ReadMemberships(ctx context.Context, m *host.Machine) *Memberships {
	ms := &Memberships{m: m, groups: Groups(ctx, m)}
	for _, line := range m.Lines("/etc/nsswitch.conf") {
		for _, name := range []string{"group:", "initgroups:"} {
			sources, ok := strings.CutPrefix(strings.TrimSpace(line), name)
			if ok && slices.ContainsFunc(strings.Fields(sources), func(s string) bool { return !slices.Contains([]string{"files", "compat", "systemd"}, s) }) {
				ms.remote = m.Live()
			}
		}
	}
	return ms
}

// Of returns the sorted names of the groups that list a user as a member, and
// of the user's primary group gid, unless gid is below 0.
func (ms *Memberships) Of(ctx context.Context, user string, gid int) []string {
	gids := map[int]bool{gid: gid >= 0}
	for _, g := range ms.groups {
		if slices.Contains(g.Members, user) {
			gids[g.GID] = true
		}
	}
	names := []string{}
	if ms.remote && gid >= 0 && !strings.HasPrefix(user, "-") {
		out, exit, err := ms.m.Run(ctx, "getent", "initgroups", user)
		if f := strings.Fields(out); err == nil && exit == 0 && len(f) > 1 {
			for _, id := range f[1:] {
				names = append(names, ms.add(ctx, gids, id)...)
			}
		}
	}
	for _, g := range ms.groups {
		if gids[g.GID] {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// add adds a group id. It returns the name if the group is missing in the list
// of all groups, which some sources do not provide.
func (ms *Memberships) add(ctx context.Context, gids map[int]bool, id string) []string {
	gid, err := strconv.Atoi(id)
	if err != nil || gids[gid] {
		return nil
	}
	gids[gid] = true
	if slices.ContainsFunc(ms.groups, func(g Group) bool { return g.GID == gid }) {
		return nil
	}
	out, exit, err := ms.m.Run(ctx, "getent", "group", id)
	if g, ok := parseGroup(out); err == nil && exit == 0 && ok {
		return []string{g.Name}
	}
	return nil
}
