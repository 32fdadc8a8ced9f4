package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNoUser and ErrNoGroup mean that a name is unknown on the machine.
var (
	ErrNoUser  = errors.New("no such user")
	ErrNoGroup = errors.New("no such group")
)

// lookupTime bounds a query of a directory service or a login shell.
const lookupTime = 20 * time.Second

// User is a user to run a program as.
type User struct {
	Name   string
	Home   string
	UID    uint32
	GID    uint32
	Groups []uint32
}

// LookupUser returns the user of a name with all groups. Users that only a
// directory service knows are found through getent(1) and id(1). The error is
// ErrNoUser if there is none.
func LookupUser(ctx context.Context, name string) (*User, error) {
	var uid, gid, home string
	var ids []string
	if known, err := user.Lookup(name); err == nil {
		uid, gid, home = known.Uid, known.Gid, known.HomeDir
		if ids, err = known.GroupIds(); err != nil {
			return nil, fmt.Errorf("cannot read the groups of user %s: %w", name, err)
		}
	} else {
		f := strings.Split(ask(ctx, "getent", "passwd", name), ":")
		if len(f) < 7 || f[0] != name {
			return nil, ErrNoUser
		}
		uid, gid, home = f[2], f[3], f[5]
		ids = strings.Fields(ask(ctx, "id", "-G", name))
	}
	u := &User{Name: name, Home: home}
	numbers := make([]uint32, 0, len(ids)+2)
	for _, s := range append([]string{uid, gid}, ids...) {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("cannot read the entry of user %s: %w", name, err)
		}
		numbers = append(numbers, uint32(n))
	}
	u.UID, u.GID = numbers[0], numbers[1]
	u.Groups = numbers[1:]
	slices.Sort(u.Groups)
	u.Groups = slices.Compact(u.Groups)
	return u, nil
}

// LookupGroup returns the number of a group.
func LookupGroup(ctx context.Context, name string) (uint32, error) {
	var id string
	if g, err := user.LookupGroup(name); err == nil {
		id = g.Gid
	} else if f := strings.Split(ask(ctx, "getent", "group", name), ":"); len(f) >= 3 && f[0] == name {
		id = f[2]
	} else {
		return 0, ErrNoGroup
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("cannot read the entry of group %s: %w", name, err)
	}
	return uint32(n), nil
}

// ask returns the first line of a program's output, "" if it fails.
func ask(ctx context.Context, args ...string) string {
	r, err := Run(ctx, Cmd{Args: args, Env: os.Environ(), Timeout: lookupTime, MaxOutput: 1 << 20})
	if err != nil || r.Code != 0 || r.TimedOut {
		return ""
	}
	line, _, _ := strings.Cut(string(r.Stdout), "\n")
	return line
}

// LoginEnv returns the user's environment after login, set by su from the
// profile with shell.
func LoginEnv(ctx context.Context, name, shell string) ([]string, error) {
	const mark = "<<<environment>>>"
	args := []string{"su"}
	if shell != "" {
		args = append(args, "-s", shell)
	}
	args = append(args, "-", name, "-c", "printf '%s\\0' '"+mark+"'; env -0")
	r, err := Run(ctx, Cmd{Args: args, Env: os.Environ(), Dir: "/", Timeout: lookupTime, MaxOutput: 4 << 20})
	if err != nil {
		return nil, err
	}
	_, list, ok := bytes.Cut(r.Stdout, []byte(mark+"\x00"))
	if !ok || r.Code != 0 || r.TimedOut {
		return nil, fmt.Errorf("su of user %s ended with status %d: %s", name, r.Code, bytes.TrimSpace(r.Stderr))
	}
	var env []string
	for v := range bytes.SplitSeq(list, []byte{0}) {
		if bytes.IndexByte(v, '=') > 0 {
			env = append(env, string(v))
		}
	}
	return env, nil
}
