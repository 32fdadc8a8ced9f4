// Package git runs git(1). What is secret in the URLs that it prints or
// complains about is hidden.
package git

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"brine/internal/base/log/redact"
	"brine/internal/host"
	"brine/internal/host/account"
)

// Git is how git is run. The zero value but for Machine runs it as this
// process.
type Git struct {
	Machine *host.Machine
	// Dir is the folder to work in; "" means "/".
	Dir string
	// User is who git runs as; "" means the user of this process.
	User string
	// Identities are files of private keys for SSH, tried one after another.
	Identities []string
}

// Error is what git complained about.
type Error struct {
	Command string
	Exit    int
	Text    string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("Command '%s' failed", e.Command)
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// WithPassword puts a name and a password into an HTTPS URL.
func WithPassword(address, user, password string) (string, error) {
	if user == "" && password == "" {
		return address, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		return "", errors.New("a name and a password are sent to https addresses only")
	}
	if u.User = url.User(user); password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String(), nil
}

// Run runs git and returns what it prints. A failure is an *Error.
func (g Git) Run(ctx context.Context, args ...string) (string, error) {
	out, err := g.output(ctx, false, args)
	return out.Stdout, err
}

// Said runs git and returns what it prints to both outputs, in the order in
// which it does.
func (g Git) Said(ctx context.Context, args ...string) (string, error) {
	out, err := g.output(ctx, true, args)
	return redact.Text(out.Stdout), err
}

// IsWorktree reports whether the folder is a further checkout of a repository.
func (g Git) IsWorktree(ctx context.Context) bool {
	top, err := g.Run(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return false
	}
	path, ok := strings.CutPrefix(strings.TrimSpace(g.Machine.Text(filepath.Join(top, ".git"))), "gitdir: ")
	return ok && filepath.IsAbs(path)
}

func (g Git) output(ctx context.Context, joined bool, args []string) (host.Output, error) {
	c := host.Cmd{Program: "git", Args: args, Dir: g.Dir, Env: []string{"GIT_TERMINAL_PROMPT=0"}, Joined: joined}
	if err := g.as(ctx, &c); err != nil {
		return host.Output{}, err
	}
	if len(g.Identities) == 0 {
		return g.once(ctx, c)
	}
	var faults []error
	for _, file := range g.Identities {
		if !g.Machine.IsFile(file) || strings.ContainsAny(file, "'\n\x00") {
			faults = append(faults, fmt.Errorf("there is no identity file %q", file))
			continue
		}
		one := c
		one.Env = append(append([]string{}, c.Env...), "GIT_SSH_COMMAND=ssh -oBatchMode=yes -oIdentitiesOnly=yes -i '"+file+"'")
		out, err := g.once(ctx, one)
		if err == nil {
			return out, nil
		}
		faults = append(faults, err)
	}
	return host.Output{}, fmt.Errorf("unable to authenticate using identity file:\n\n%w", errors.Join(faults...))
}

func (g Git) as(ctx context.Context, c *host.Cmd) error {
	if g.User == "" {
		return nil
	}
	u, ok := account.ByName(ctx, g.Machine, g.User)
	if !ok {
		return fmt.Errorf("there is no user %q", g.User)
	}
	c.Env = append(c.Env, "HOME="+u.Home, "USER="+u.Name, "LOGNAME="+u.Name)
	if u.UID != os.Geteuid() {
		c.As = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	}
	return nil
}

func (g Git) once(ctx context.Context, c host.Cmd) (host.Output, error) {
	out, err := g.Machine.Command(ctx, c)
	if err != nil {
		return out, fmt.Errorf("cannot run git: %w", err)
	}
	out.Stderr = redact.Text(out.Stderr)
	if out.Exit != 0 {
		text := out.Stderr
		if text == "" {
			text = redact.Text(out.Stdout)
		}
		return out, &Error{Command: redact.Text("git " + strings.Join(c.Args, " ")), Exit: out.Exit, Text: text}
	}
	return out, nil
}
