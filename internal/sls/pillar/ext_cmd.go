package pillar

import (
	"context"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"brine/internal/base/salt"
	"brine/internal/host/proc"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

func init() { externals.Register("cmd_yaml", cmdYAML) }

func init() { externals.Register("cmd_yamlex", cmdYAML) } // the same format; yamlex tags are not supported

// cmdYAML runs a command in a shell and reads its output as YAML. %s in the
// command is the minion's id.
func cmdYAML(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	out, command, err := runCommand(ctx, r, a, true)
	if err != nil {
		return nil, err
	}
	v, err := yaml.Load([]byte(out), command)
	if err != nil {
		r.log.Error("YAML data from '"+command+"' failed to parse", "minion", r.q.ID, "err", err)
		return nil, nil
	}
	return v, nil
}

func init() { externals.Register("cmd_json", cmdJSON) }

// cmdJSON runs a command and reads its output as JSON.
func cmdJSON(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	out, command, err := runCommand(ctx, r, a, false)
	if err != nil {
		return nil, err
	}
	v, err := json.Load(out)
	if err != nil {
		r.log.Error("JSON data from "+command+" failed to parse", "minion", r.q.ID, "err", err)
		return nil, nil
	}
	return v, nil
}

var cmdArgs = []string{"command"}

// runCommand returns the output of a command. The id of a minion cannot contain
// shell metacharacters; it is quoted anyway.
func runCommand(ctx context.Context, r *run, a args, shell bool) (out, command string, err error) {
	in, err := a.bind(cmdArgs...)
	if err != nil {
		return "", "", err
	}
	text, ok := in["command"].(string)
	if !ok {
		return "", "", salt.Errorf(salt.Invalid, "the command is a %s, not a text", value.TypeName(in["command"]))
	}
	id := r.q.ID
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@+:,=") != "" {
		id = proc.Quote(id)
	}
	command = strings.ReplaceAll(text, "%s", id)
	// Programs use English, and without a shell their stderr is part of the output,
	// as in Salt.
	c := proc.Cmd{Dir: "/root", Env: append(os.Environ(), "LC_ALL=C"), Combined: !shell, MaxOutput: maxAnswer}
	if unix.Faccessat(unix.AT_FDCWD, c.Dir, unix.R_OK|unix.X_OK, unix.AT_EACCESS) != nil { // if the master does not run as root
		c.Dir = "/"
	}
	if shell {
		c.Args = []string{"/bin/sh", "-c", command}
	} else if c.Args, err = proc.Split(command); err != nil {
		return "", "", err
	}
	res, err := proc.Run(ctx, c)
	if err != nil {
		return "", "", err
	}
	if res.Code != 0 {
		r.log.Error("ext_pillar command failed", "command", command, "retcode", res.Code, "minion", r.q.ID, "stderr", strings.TrimSpace(string(res.Stderr)))
	}
	return string(res.Stdout), command, nil
}
