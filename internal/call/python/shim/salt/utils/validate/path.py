"""Checks of paths."""

import os


def is_writeable(path, check_parent=False):
    """Report whether a path can be written to."""
    if os.access(path, os.F_OK):
        return os.access(path, os.W_OK)
    return check_parent and os.access(os.path.dirname(path) or ".", os.W_OK)


def is_readable(path):
    """Report whether a path can be read."""
    return os.access(path, os.R_OK)


def is_executable(path):
    """Report whether a path is a program."""
    return os.access(path, os.X_OK)
