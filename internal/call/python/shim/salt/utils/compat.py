"""Older names."""

import copy


def deepcopy_bound(name):
    """Return a copy."""
    return copy.deepcopy(name)
