package managed

import (
	"context"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state/perms"
)

// Owner is the declared user, group and mode of a file; nil and "" mean no
// change.
type Owner struct {
	User, Group any
	Mode        string
	// UID, GID and Bits are the numeric values, -1 if not declared.
	UID, GID int
	Bits     int
	// Problem names the user and group that do not exist.
	Problem string
}

// OwnerOf reads user, group and mode. A user or group that does not exist is an
// error of Available, so that a test run can predict files of users that an
// earlier state creates.
func OwnerOf(ctx context.Context, m *host.Machine, user, group any, mode string) (Owner, error) {
	o := Owner{User: user, Group: group, Mode: mode}
	var err error
	if o.Bits, err = filesys.ParseMode(mode); err != nil {
		return o, fn.Errorf("%w", err)
	}
	var ok bool
	if o.UID, ok = filesys.UserID(ctx, m, user); !ok {
		o.UID, o.Problem = -1, "User "+value.Str(user)+" is not available "
	}
	if o.GID, ok = filesys.GroupID(ctx, m, group); !ok {
		o.GID = -1
		o.Problem += "Group " + value.Str(group) + " is not available"
	}
	return o, nil
}

// Available fails if the user or the group does not exist.
func (o Owner) Available() error {
	if o.Problem != "" {
		return fn.Errorf("%s", o.Problem)
	}
	return nil
}

// Differs returns how the owner and mode differ from the declared ones. The mode
// of a symbolic link cannot be set.
func (o Owner) Differs(now filesys.Facts) *value.Dict {
	return perms.Differs(o.User, o.Group, o.Mode, now)
}

// Apply sets the owner and mode of a file, and returns the changes.
func (o Owner) Apply(m *host.Machine, path string, follow bool) (*value.Dict, error) {
	now, err := filesys.Look(m, path, follow)
	if err != nil {
		return nil, err
	}
	d := o.Differs(now)
	if d.Has("user") || d.Has("group") {
		if err := filesys.SetOwner(path, o.UID, o.GID, follow); err != nil {
			what, who := "user", o.User
			if !d.Has("user") {
				what, who = "group", o.Group
			}
			return nil, fn.Errorf("Failed to change %s to %s: %w", what, value.Str(who), atomicfile.Cause(err))
		}
	}
	if d.Has("mode") {
		if err := filesys.SetMode(path, o.Bits); err != nil {
			return nil, fn.Errorf("Failed to change mode to %s: %w", o.Mode, atomicfile.Cause(err))
		}
	}
	return d, nil
}
