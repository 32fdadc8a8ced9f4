package runner

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"

	"brine/internal/call/fn"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/host/proc"
	"brine/internal/net/wire"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// sudoName is the executor that calls functions as another user, by sudo and salt-call.
const sudoName = "sudo"

// maxSudoOutput bounds what salt-call may print: JSON has more bytes than the largest result.
const maxSudoOutput = 4 * outbox.MaxReturn

func init() {
	executors.Register(sudoName, executor{run: sudo, missing: func(r *Runner) string {
		if r.cfg.Options.SudoUser == "" {
			return "the option sudo_user is not set"
		}
		if _, err := exec.LookPath(sudoName); err != nil {
			return "the program sudo is not in PATH"
		}
		return ""
	}})
}

// printed is what salt-call --out json --metadata prints, and result what Local has.
type (
	printed struct {
		Local *value.Dict `wire:"local,required"`
		Rest  *value.Dict `wire:"*"`
	}
	result struct {
		Return  any         `wire:"return,omitempty"`
		Retcode any         `wire:"retcode,omitempty"`
		Rest    *value.Dict `wire:"*"`
	}
)

// resultOf reads what salt-call has printed.
func resultOf(stdout []byte) (r result, ok bool) {
	v, err := json.Load(string(stdout))
	whole, ok := v.(*value.Dict)
	var p printed
	if err != nil || !ok || wire.Decode(whole, &p) != nil {
		return r, false
	}
	return r, wire.Decode(p.Local, &r) == nil
}

// concurrent are functions that refuse to run beside the job that waits for them.
var concurrent = map[string]bool{"state.sls": true, "state.highstate": true, "state.apply": true}

// sudo runs salt-call as the user of the option sudo_user, with the command line of Salt's
// executor: rules of sudoers may name it. Unlike Salt, which then returns the standard error, it
// returns the result of a function that has failed.
func sudo(ctx context.Context, x *execution) (any, error) {
	o := &x.r.cfg.Options
	if x.r.cfg.Once && isUser(o.SudoUser) {
		// This is salt-call, run by sudo, and its configuration names the executor again.
		return x.call(ctx)
	}
	kwargs := x.target.Kwargs.Clone()
	if concurrent[x.fun] {
		kwargs.Set("concurrent", true)
	}
	args := []string{sudoName, "-u", o.SudoUser, "salt-call", "--out", "json", "--metadata", "-c", x.r.cfg.ConfDir, "--", x.fun}
	for _, a := range x.target.Args {
		args = append(args, value.Str(a))
	}
	for k, v := range kwargs.All() {
		args = append(args, value.Str(k)+"="+value.Str(v))
	}
	res, err := proc.Run(ctx, proc.Cmd{Args: args, Env: os.Environ(), MaxOutput: maxSudoOutput})
	var start *proc.StartError
	switch {
	case errors.As(err, &start):
		return nil, fn.Errorf("the executor sudo: %w", err)
	case err != nil:
		return nil, err
	}
	out, ok := resultOf(res.Stdout)
	switch {
	case ok:
	case res.Code != 0:
		x.target.Call.SetRetcode(res.Code)
		return string(res.Stderr), nil
	default:
		return nil, fn.Errorf("the executor sudo: salt-call did not print a result as JSON; run as the minion's user: sudo -u %s salt-call --out json "+
			"--metadata test.ping", o.SudoUser)
	}
	code, known := out.Retcode.(int64)
	if !known {
		code = int64(res.Code)
	}
	x.target.Call.SetRetcode(int(code))
	return out.Return, nil
}

// isUser reports whether this process runs as a user.
func isUser(name string) bool {
	u, err := user.Current()
	return err == nil && (u.Username == name || "#"+u.Uid == name)
}
