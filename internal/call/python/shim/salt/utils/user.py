"""Users and groups."""

import grp
import os
import pwd


def get_user():
    """Return the name of the user of this process."""
    return pwd.getpwuid(os.geteuid()).pw_name


def get_uid(user=None):
    """Return the number of a user, or None."""
    try:
        return os.geteuid() if user is None else pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def get_gid(group=None):
    """Return the number of a group, or None."""
    try:
        return os.getegid() if group is None else grp.getgrnam(group).gr_gid
    except KeyError:
        return None


def get_specific_user():
    """Return the user of this process, and who called sudo."""
    sudo = os.environ.get("SUDO_USER")
    return "sudo_" + sudo if sudo else get_user()


def get_group_dict(user=None, include_default=True):
    """Return the groups of a user by name."""
    user = user or get_user()
    own = pwd.getpwnam(user).pw_gid
    out = {g.gr_name: g.gr_gid for g in grp.getgrall() if user in g.gr_mem}
    if include_default:
        out[grp.getgrgid(own).gr_name] = own
    return out


def get_group_list(user, include_default=True):
    """Return the names of a user's groups."""
    return sorted(get_group_dict(user, include_default))


def get_gid_list(user, include_default=True):
    """Return the numbers of a user's groups."""
    return sorted(set(get_group_dict(user, include_default).values()))


def get_default_group(user):
    """Return the name of a user's primary group."""
    return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name


def chugid(runas, group=None):
    """Make this process one of another user, and of that user's groups."""
    from salt.exceptions import CommandExecutionError
    user = pwd.getpwnam(runas)
    try:
        gid = grp.getgrnam(group).gr_gid if group else user.pw_gid
        os.setgid(gid)
        os.setgroups(get_gid_list(runas))
        os.setuid(user.pw_uid)
    except (KeyError, OSError) as exc:
        raise CommandExecutionError("cannot become the user {}: {}".format(runas, exc))


def chugid_and_umask(runas, umask, group=None):
    """Change user and umask, for a process that is about to start a program."""
    if runas and runas != get_user() or group:
        chugid(runas or get_user(), group)
    if umask is not None:
        os.umask(umask)
