// Package git runs git(1). It hides secrets in URLs of its output and errors.
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
	"brine/internal/host/filesys"
)

// Git holds the settings for running git. With only Machine set, git runs as
// the user of this process.
type Git struct {
	Machine *host.Machine
	// Dir is the directory to work in; "" means "/".
	Dir string
	// User runs git; "" means the user of this process.
	User string
	// Identities are files of private keys for SSH, tried one after another.
	Identities []string
}

// Error is a failed run of git with its message.
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

// WithPassword adds a name and a password to an HTTPS URL.
func WithPassword(address, user, password string) (string, error) {
	if user == "" && password == "" {
		return address, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		return "", errors.New("Basic Auth only supported for HTTPS") //lint:ignore ST1005 it is Salt's text
	}
	if u.User = url.User(user); password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String(), nil
}

// Run runs git and returns its stdout. A failure is an *Error.
func (g Git) Run(ctx context.Context, args ...string) (string, error) {
	out, err := g.output(ctx, false, args)
	return out.Stdout, err
}

// Said runs git and returns stdout and stderr in the order written.
func (g Git) Said(ctx context.Context, args ...string) (string, error) {
	out, err := g.output(ctx, true, args)
	return redact.Text(out.Stdout), err
}

// IsWorktree reports whether the directory is a linked worktree.
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
	var missing, failed []string
	for _, file := range g.Identities {
		if !g.Machine.IsFile(file) || strings.ContainsAny(file, "'\n\x00") {
			missing = append(missing, file)
			continue
		}
		one := c
		one.Env = append(append([]string{}, c.Env...), "GIT_SSH_COMMAND=ssh -oBatchMode=yes -oIdentitiesOnly=yes -i '"+file+"'")
		out, err := g.once(ctx, one)
		if err == nil {
			return out, nil
		}
		var e *Error
		if !errors.As(err, &e) {
			return out, err
		}
		if e.Text != "" {
			failed = append(failed, e.Text)
		}
	}
	return host.Output{}, unauthenticated(failed, missing)
}

// unauthenticated returns the error if no identity file is accepted, in Salt's words.
func unauthenticated(failed, missing []string) error {
	text := "Unable to authenticate using identity file:\n\n" + strings.Join(failed, "\n")
	if len(missing) > 0 {
		if len(failed) > 0 {
			text += "\n\n"
		}
		text += "The following identity file(s) were not found: " + strings.Join(missing, ", ")
	}
	return errors.New(text)
}

func (g Git) as(ctx context.Context, c *host.Cmd) error {
	if g.User == "" {
		return nil
	}
	u, ok := account.ByName(ctx, g.Machine, g.User)
	if !ok {
		return fmt.Errorf("User '%s' is not available", g.User) //lint:ignore ST1005 it is the text of cmd.run
	}
	c.Env = append(c.Env, "HOME="+u.Home, "USER="+u.Name, "LOGNAME="+u.Name)
	if u.UID != os.Geteuid() {
		c.As = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	}
	return nil
}

func (g Git) once(ctx context.Context, c host.Cmd) (host.Output, error) {
	if c.Dir != "" && !filesys.IsDir(c.Dir) {
		return host.Output{}, fmt.Errorf("Specified cwd '%s' either not absolute or does not exist", c.Dir) //lint:ignore ST1005 it is the text of cmd.run
	}
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
