"""Merging of dicts."""

import copy
from collections.abc import Mapping


def update(dest, upd, recursive_update=True, merge_lists=False):
    """Merge upd into dest and return it."""
    if not isinstance(dest, Mapping) or not isinstance(upd, Mapping):
        raise TypeError("Cannot update using non-dict types in dictupdate.update()")
    if not recursive_update:
        for key in upd:
            dest[key] = upd[key]
        return dest
    for key, value in upd.items():
        old = dest.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            dest[key] = update(old, value, merge_lists=merge_lists)
        elif isinstance(old, list) and isinstance(value, list) and merge_lists:
            dest[key] = old + [v for v in value if v not in old]
        else:
            dest[key] = value
    return dest


def merge_list(obj_a, obj_b):
    """Return the first; under a key that the second has, too, with a list of both values."""
    return {key: [value, obj_b[key]] if key in obj_b else value for key, value in obj_a.items()}


def merge_recurse(obj_a, obj_b, merge_lists=False):
    """Return both merged, down to every level."""
    return update(copy.deepcopy(obj_a), obj_b, merge_lists=merge_lists)


def merge_overwrite(obj_a, obj_b, merge_lists=False):
    """Return the first with the keys of the second over it."""
    out = copy.deepcopy(obj_a)
    for key, value in obj_b.items():
        out[key] = value
    return out


def merge_aggregate(obj_a, obj_b):
    """Return the first with the keys of the second over it. Only yamlex has tags that ask for more."""
    return merge_overwrite(obj_a, obj_b)


def merge(obj_a, obj_b, strategy="smart", renderer="yaml", merge_lists=False):
    """Return both merged by a strategy."""
    if strategy == "list":
        return merge_list(obj_a, obj_b)
    if strategy == "overwrite":
        return merge_overwrite(obj_a, obj_b, merge_lists)
    if strategy == "aggregate" or strategy == "smart" and renderer.split("|")[-1].startswith("yamlex"):
        return merge_aggregate(obj_a, obj_b)
    return merge_recurse(obj_a, obj_b, merge_lists)


def _below(data, keys, delimiter, make):
    parts = keys.split(delimiter)
    at = data
    for part in parts[:-1]:
        if part not in at or at[part] is None:
            at[part] = make()
        at = at[part]
    return at, parts[-1]


def ensure_dict_key(in_dict, keys, delimiter=":", ordered_dict=False):
    """Make dicts along a path of keys."""
    at, last = _below(in_dict, keys, delimiter, dict)
    at.setdefault(last, {})
    return in_dict


def set_dict_key_value(in_dict, keys, value, delimiter=":", ordered_dict=False):
    """Set the value at a path of keys."""
    at, last = _below(in_dict, keys, delimiter, dict)
    at[last] = value
    return in_dict


def update_dict_key_value(in_dict, keys, value, delimiter=":", ordered_dict=False):
    """Update the dict at a path of keys."""
    at, last = _below(in_dict, keys, delimiter, dict)
    at[last] = dict(at.get(last) or {}, **value)
    return in_dict


def append_dict_key_value(in_dict, keys, value, delimiter=":", ordered_dict=False):
    """Append to the list at a path of keys."""
    at, last = _below(in_dict, keys, delimiter, dict)
    at[last] = (at.get(last) or []) + [value]
    return in_dict


def extend_dict_key_value(in_dict, keys, value, delimiter=":", ordered_dict=False):
    """Extend the list at a path of keys."""
    at, last = _below(in_dict, keys, delimiter, dict)
    at[last] = (at.get(last) or []) + list(value)
    return in_dict
