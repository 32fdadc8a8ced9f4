"""Checks of names and paths."""

import os


def clean_path(root, path, subdir=False, realpath=True):
    """Return a path if it is in a directory, else ""."""
    if not os.path.isabs(root):
        return ""
    root = os.path.normpath(root)
    path = os.path.normpath(path if os.path.isabs(path) else os.path.join(root, path))
    if realpath:
        root, path = os.path.realpath(root), os.path.realpath(path)
    inside = path.startswith(root + os.sep) if subdir else os.path.dirname(path) == root
    return path if inside else ""


def clean_join(root, *paths, subdir=False, realpath=True):
    """Return paths put together if the result is in a directory."""
    from salt.exceptions import SaltValidationError
    path = clean_path(root, os.path.join(root, *paths), subdir, realpath)
    if not path:
        raise SaltValidationError("Invalid path: {!r}".format(os.path.join(root, *paths)))
    return path


def valid_id(opts, id_):
    """Report whether a text can be the id of a minion."""
    return isinstance(id_, str) and bool(id_) and not any(c in id_ for c in ("/", "\\", "\0")) and id_ not in (".", "..")


def safe_py_code(code):
    """Report whether a text has none of some words of Python."""
    return not any(word in code for word in ("subprocess", "input", "exec", "eval", "open", "file"))


def insecure_log():
    """Return the names of the log levels that may show secrets."""
    return ["all", "debug", "garbage", "profile", "trace"]


def check_user(user):
    """Report whether this process runs as a user."""
    from salt.utils.user import get_user
    return get_user() == user


def verify_files(files, user):
    """Create files that are missing, for a user."""
    import pwd
    owner = pwd.getpwnam(user)
    for name in files:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "a", encoding="utf-8"):
            pass
        if os.geteuid() == 0:
            os.chown(name, owner.pw_uid, owner.pw_gid)
    return True
