package services

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/webutil"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("webutil", webutilModule) }

// webutilModule returns the states for user files of web servers.
func webutilModule() state.Module {
	when := func(fn.Reader) (string, bool) {
		return "Command not found: htpasswd", machine.Which("htpasswd") != ""
	}
	return state.Module{Name: "webutil", When: when, Doc: `Keep users in files for web servers, by htpasswd.`, Funcs: []state.Func{
		state.Of("user_exists", webUserExists, `Have a user.`),
		state.Of("user_absent", webUserAbsent, `Have no such user.`),
	}}
}

type webUserArgs struct {
	Name     string `salt:"name" doc:"user"`
	Password any    `salt:"password" doc:"password" default:"null"`
	File     string `salt:"htpasswd_file" doc:"path of the file" default:"null"`
	Options  string `salt:"options" doc:"options of htpasswd, as letters" default:""`
	Force    bool   `salt:"force" doc:"set the password each time" default:"false"`
	RunAs    any    `salt:"runas" doc:"user to run htpasswd as" default:"null"`
	Update   bool   `salt:"update" doc:"set the password of a user that has another one" default:"false"`
}

// webUser reports whether a file contains a user.
func webUser(file, name string) (bool, error) {
	if file == "" {
		return false, fn.Errorf("htpasswd_file is needed: the path of the file with the users")
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, name+":") {
			return true, nil
		}
	}
	return false, err
}

func webUserExists(ctx context.Context, e *state.Env, a webUserArgs) (state.Plan, error) {
	there, err := webUser(a.File, a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	htpasswd := webutil.Htpasswd{M: machine}
	with := webutil.Args{File: a.File, User: a.Name, Password: text(a.Password), Opts: a.Options, RunAs: a.RunAs}
	if a.Password == nil && (!there || a.Force || a.Update) {
		return state.Plan{}, fn.Errorf("password is needed, for the user %s", a.Name)
	}
	due := !there || a.Force
	if !due && a.Update {
		right, err := htpasswd.Verify(ctx, e.Call, with)
		if err != nil {
			return state.Plan{}, err
		}
		due = !right
	}
	if !due {
		return state.Plan{Comment: "User already known"}, nil
	}
	diff := value.DictOf(a.Name, true)
	would := state.Change{Diff: diff, Comment: "User '" + a.Name + "' is set to be added to htpasswd file"}
	return state.Plan{Steps: []state.Step{{Change: would, Do: func(ctx context.Context) (state.Change, error) {
		v, err := htpasswd.Add(ctx, e.Call, with)
		return htpasswdSaid(v, err, diff)
	}}}}, nil
}

// htpasswdSaid returns the outcome of a run of htpasswd.
func htpasswdSaid(v any, err error, diff *value.Dict) (state.Change, error) {
	d, _ := v.(*value.Dict)
	switch {
	case err != nil:
		return state.Change{}, err
	case d == nil:
		return state.Change{}, state.Errorf("%s", value.Str(v))
	case d.Int("retcode") != 0:
		return state.Change{}, state.Errorf("%s", d.Str("stderr"))
	}
	return state.Change{Diff: diff, Comment: d.Str("stderr")}, nil
}

type webUserAbsentArgs struct {
	Name  string `salt:"name" doc:"user"`
	File  string `salt:"htpasswd_file" doc:"path of the file" default:"null"`
	RunAs any    `salt:"runas" doc:"user to run htpasswd as" default:"null"`
}

func webUserAbsent(ctx context.Context, e *state.Env, a webUserAbsentArgs) (state.Plan, error) {
	there, err := webUser(a.File, a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	if !there {
		return state.Plan{Comment: "User already not in file"}, nil
	}
	diff := value.DictOf(a.Name, true)
	would := state.Change{Diff: diff, Comment: "User '" + a.Name + "' is set to be removed from htpasswd file"}
	return state.Plan{Steps: []state.Step{{Change: would, Do: func(ctx context.Context) (state.Change, error) {
		v, err := webutil.Htpasswd{M: machine}.Remove(ctx, e.Call, webutil.RemoveArgs{File: a.File, User: a.Name, RunAs: a.RunAs, All: true})
		return htpasswdSaid(v, err, diff)
	}}}}, nil
}
