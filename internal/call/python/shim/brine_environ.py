"""Functions of the module environ that read: the variables are those of the module's process.

Brine's own environment is another one, so that it lacks what a module puts into os.environ. It
sends its own changes to this process.
"""

import os


def get(key, default=""):
    """Return the value of a variable."""
    return os.environ.get(key, default) if isinstance(key, str) else False


def has_value(key, value=None):
    """Say whether there is a variable, possibly with a given value."""
    if not isinstance(key, str):
        return False
    found = os.environ.get(key)
    return found is not None and value in (None, found)


def item(keys, default=""):
    """Return the values of some variables."""
    return {key: os.environ.get(key, default) for key in ([keys] if isinstance(keys, str) else keys)}


def items():
    """Return all variables."""
    return dict(os.environ)
