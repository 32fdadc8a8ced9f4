"""Paths and programs."""

import os
import shutil


def which(exe=None):
    """Return the path of a program, or None."""
    return shutil.which(exe) if exe else None


def which_bin(exes):
    """Return the path of the first program that there is, or None."""
    for exe in exes or ():
        found = which(exe)
        if found:
            return found
    return None


def join(*parts, **_):
    """Join the parts of a path; a later part that begins with a slash does not start again."""
    if not parts:
        return ""
    root = parts[0].rstrip("/") if parts[0] != "/" else ""
    rest = [p.strip("/") if i < len(parts) - 2 else p.lstrip("/") for i, p in enumerate(parts[1:])]
    return os.path.normpath("/".join([root] + [p for p in rest if p])) if root or rest else "/"


def islink(path):
    """Report whether a path is a symbolic link."""
    return os.path.islink(path)


def readlink(path, canonicalize=False):
    """Return the target of a symbolic link."""
    return os.path.realpath(path) if canonicalize else os.readlink(path)


def os_walk(top, *args, **kwargs):
    """Walk a directory tree."""
    return os.walk(top, *args, **kwargs)


def safe_path(path, allow_path=None):
    """Report whether a path stays below a directory."""
    real = os.path.realpath(path)
    base = os.path.realpath(allow_path or ".")
    return real == base or real.startswith(base.rstrip("/") + "/")


def is_abs(path):
    """Report whether a path is absolute."""
    return os.path.isabs(path)


def check_or_die(command):
    """Raise an error unless there is a program."""
    from salt.exceptions import CommandNotFoundError
    if not command or not which(command):
        raise CommandNotFoundError("'{}' is not in the path".format(command))


def expand(path):
    """Expand a home directory, variables and symbolic links."""
    return os.path.realpath(os.path.expandvars(os.path.expanduser(path)))


def sanitize_win_path(path):
    """Return a path without what paths of Windows cannot have."""
    return path.translate({ord(c): "_" for c in "<>:|?*"}) if isinstance(path, str) else path


def filter_path(*_):
    """Return nothing: only Windows needs it."""
    return None
