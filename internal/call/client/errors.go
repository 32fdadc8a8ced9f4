package client

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Messages that users know and search for.
const (
	textNoMatch     = "No minions matched the target. No command was sent, no jid was assigned."
	textUnreachable = "The salt master could not be contacted. Is master running?"
	textTimeout     = "Salt request timed out. The master is not responding. You may need to run your command with `--async` in order to " +
		"bypass the congested event bus. With `--async`, the CLI tool will print the job id (jid) and exit immediately without " +
		"listening for responses. You can then use `salt-run jobs.lookup_jid` to look up the results of the job in the job cache later."
	textNotPermitted = "Failed to authenticate! This is most likely because this user is not permitted to execute commands, " +
		"but there is a small possibility that a disk error occurred (check disk/inode usage)."
	textNodegroup = "Node group %s unavailable in %s"
	textLost      = "the connection to the master's events was lost, so no more returns of this job can be received: the master has probably stopped. " +
		"Minions continue to run the job; look up their returns when the master is up again"
)

type constError string

func (e constError) Error() string { return string(e) }

var (
	// ErrNoMatch means that no minion matches the target. Its message is Salt's.
	ErrNoMatch error = &salt.Error{Kind: salt.NotFound, Err: constError(textNoMatch)}
	// ErrNoReply means that the master answered with an empty map.
	ErrNoReply error = &salt.Error{Kind: salt.Internal, Err: constError("the master sent an empty reply")}
)

// unreachable has Salt's message and wraps the cause.
type unreachable struct{ cause error }

func (unreachable) Error() string   { return textUnreachable }
func (e unreachable) Unwrap() error { return e.cause }

// NotRunning reports whether an error means that no master listens on this machine. A permission
// error means that a master does listen.
func NotRunning(err error) bool {
	var u unreachable
	return errors.As(err, &u) && !errors.Is(err, fs.ErrPermission)
}

// NoAccess means that the user of this process is not permitted to connect to the master of this
// machine.
type NoAccess struct {
	User string
	Path string // of the socket
	// Group has access, "" if it could not be determined.
	Group string
	Err   error
}

func (e *NoAccess) Error() string {
	who := "the user of the master, and members of the group of that socket"
	how := "use sudo"
	if e.Group != "" {
		who += " (" + e.Group + ")"
		how = fmt.Sprintf("add %s to the group %s of the socket, or use sudo", e.User, e.Group)
		if e.Group == "root" {
			how = "use sudo, or run the master as a user with a group of its own (option user) and add " + e.User + " to that group"
		}
	}
	return fmt.Sprintf("user %s cannot connect to the master: permission denied on %s. Only %s can, regardless of publisher_acl: %s", e.User, e.Path, who, how)
}

func (e *NoAccess) Unwrap() error { return e.Err }

// UnknownNodegroup means that the configuration File has no nodegroup of this name. Its message is Salt's.
type UnknownNodegroup struct{ Name, File string }

func (e *UnknownNodegroup) Error() string { return fmt.Sprintf(textNodegroup, e.Name, e.File) }

type timedOut struct{ cause error }

func (timedOut) Error() string   { return textTimeout }
func (e timedOut) Unwrap() error { return e.cause }

// Lost means that the event stream ended while waiting.
type Lost struct{ Err error }

func (e *Lost) Error() string { return textLost + " (" + e.Err.Error() + ")" }
func (e *Lost) Unwrap() error { return e.Err }

// Refused means that the master rejected a request.
type Refused struct {
	// Name is the name of Salt's exception, such as AuthorizationError.
	Name string
	Text string
}

func (e *Refused) Error() string { return e.Text }

// unreadable returns the error for a reply that violates the protocol.
func unreadable(err error) error {
	return salt.Errorf(salt.Internal, "cannot read the master's answer: %w", err)
}

// checkReply returns the reply as a dict, or the error that it contains.
func checkReply(reply any) (*value.Dict, error) {
	d, ok := reply.(*value.Dict)
	if !ok {
		if s, ok := reply.(string); ok && s != "" {
			return nil, &Refused{Name: "SaltClientError", Text: s}
		}
		return nil, &salt.Error{Kind: salt.Denied, Err: &Refused{Name: "EauthAuthenticationError", Text: textNotPermitted}}
	}
	if d.Len() == 0 {
		return nil, ErrNoReply
	}
	switch e := d.At("error").(type) {
	case nil:
		return d, nil
	case *value.Dict:
		var in wire.Failure
		if err := wire.Decode(e, &in); err != nil {
			return nil, unreadable(err)
		}
		text := cmp.Or(in.Message, in.Name)
		kind := salt.Invalid
		switch in.Name {
		case "AuthenticationError", "AuthorizationError", "EauthAuthenticationError", "TokenAuthenticationError", "UserAuthenticationError":
			kind = salt.Denied
		case wire.NotFoundError:
			kind = salt.NotFound
		case wire.UnavailableError:
			kind = salt.Unavailable
		}
		return nil, &salt.Error{Kind: kind, Err: &Refused{Name: in.Name, Text: text}}
	default:
		return nil, &Refused{Name: "PublishError", Text: value.Str(e)}
	}
}
