"""Older names."""

import copy


def deepcopy_bound(name):
    """Return a copy."""
    return copy.deepcopy(name)


def cmp(x, y):
    """Compare two values."""
    return (x > y) - (x < y)


def pack_dunder(name):
    """Do nothing: modules have the variables of the loader."""


def reload(module):
    """Load a module again."""
    import importlib
    return importlib.reload(module)
