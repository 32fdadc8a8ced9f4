"""Values that should not change; they are copies."""

import copy


def freeze(obj):
    """Return a copy."""
    return copy.deepcopy(obj)


ImmutableDict, ImmutableList, ImmutableSet = dict, list, set
