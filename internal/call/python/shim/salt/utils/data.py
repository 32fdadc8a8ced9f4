"""Nested data."""

import collections.abc
import fnmatch
import re

DEFAULT_TARGET_DELIM = ":"


def traverse_dict(data, key, default=None, delimiter=DEFAULT_TARGET_DELIM):
    """Return the value at a path of keys."""
    for part in str(key).split(delimiter):
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return default
    return data


def traverse_dict_and_list(data, key, default=None, delimiter=DEFAULT_TARGET_DELIM):
    """Return the value at a path of keys and places in lists."""
    parts = key if isinstance(key, (list, tuple)) else str(key).split(delimiter)
    for part in parts:
        if isinstance(data, (list, tuple)):
            try:
                data = data[int(part)]
                continue
            except IndexError:
                return default
            except (TypeError, ValueError):
                found = [d for d in data if isinstance(d, dict) and part in d]
                if not found:
                    return default
                data = found[0][part]
                continue
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            try:
                data = data[int(part)]
            except (KeyError, IndexError, TypeError, ValueError):
                return default
    return data


def is_list(value):
    """Report whether a value is a list."""
    return isinstance(value, list)


def is_iter(thing, ignore=(str, bytes)):
    """Report whether a value can be gone through."""
    return not isinstance(thing, ignore) and hasattr(thing, "__iter__")


def is_dictlist(data):
    """Report whether a value is a list of dicts with one key each."""
    return isinstance(data, list) and all(isinstance(d, dict) and len(d) == 1 for d in data)


def is_true(value=None):
    """Report whether a value or its text means true."""
    try:
        value = int(value)
    except (TypeError, ValueError):
        pass
    if isinstance(value, (int, float)):
        return value > 0
    if isinstance(value, str):
        return value.lower() == "true"
    return bool(value)


def repack_dictlist(data, strict=False, recurse=False, key_cb=None, val_cb=None):
    """Return a list of dicts and texts as one dict."""
    out = {}
    for item in data if isinstance(data, list) else []:
        if isinstance(item, dict) and len(item) == 1:
            key, value = next(iter(item.items()))
            if recurse and is_dictlist(value):
                value = repack_dictlist(value, recurse=True)
        elif isinstance(item, dict) or strict:
            return {}
        else:
            key, value = item, None
        key = key_cb(key) if key_cb else key
        out[key] = val_cb(key, value) if val_cb else value
    return out


def compare_dicts(old=None, new=None):
    """Return what differs between two dicts, as old and new."""
    old, new = old or {}, new or {}
    out = {}
    for key in set(old) | set(new):
        if key not in new:
            out[key] = {"old": old[key], "new": ""}
        elif key not in old:
            out[key] = {"old": "", "new": new[key]}
        elif old[key] != new[key]:
            out[key] = {"old": old[key], "new": new[key]}
    return out


def compare_lists(old=None, new=None):
    """Return what differs between two lists, as old and new."""
    old, new = old or [], new or []
    out = {}
    added = [v for v in new if v not in old]
    gone = [v for v in old if v not in new]
    if added:
        out["new"] = added
    if gone:
        out["old"] = gone
    return out


def recursive_diff(old, new, ignore_keys=None, ignore_order=False, ignore_missing_keys=False):
    """Return what differs between nested values, as old and new."""
    ignored = ignore_keys or []
    if isinstance(old, collections.abc.Mapping) and isinstance(new, collections.abc.Mapping):
        was, now = {}, {}
        for key in list(old) + [k for k in new if k not in old]:
            if key in ignored:
                continue
            if key not in new:
                if not ignore_missing_keys:
                    was[key] = old[key]
            elif key not in old:
                now[key] = new[key]
            else:
                part = recursive_diff(old[key], new[key], ignore_keys, ignore_order, ignore_missing_keys)
                if part:
                    was[key], now[key] = part["old"], part["new"]
        return {"old": was, "new": now} if was or now else {}
    if isinstance(old, set) and isinstance(new, set):
        return {"old": old - new, "new": new - old} if old != new else {}
    if is_iter(old) and is_iter(new):
        was, now = list(old), list(new)

        def differs(first, second):
            return recursive_diff(first, second, ignore_keys, ignore_order, ignore_missing_keys)
        if ignore_order:
            for first in old:
                for second in new:
                    if not differs(first, second):
                        was.remove(first)
                        now.remove(second)
        else:
            parts = [differs(*pair) for pair in zip(old, new)]
            was = [p["old"] for p in parts if p] + was[len(parts):]
            now = [p["new"] for p in parts if p] + now[len(parts):]
        return {"old": type(old)(was), "new": type(new)(now)} if was or now else {}
    return {} if old == new else {"old": old, "new": new}


def subdict_match(data, expr, delimiter=DEFAULT_TARGET_DELIM, regex_match=False, exact_match=False):
    """Report whether the value at a path of keys matches a pattern."""
    parts = expr.split(delimiter)

    def fits(value, pattern):
        value, pattern = str(value).lower(), pattern.lower()
        if exact_match:
            return value == pattern
        if regex_match:
            return bool(re.match(pattern, value))
        return fnmatch.fnmatch(value, pattern)
    for i in range(1, len(parts)):
        found = traverse_dict_and_list(data, delimiter.join(parts[:i]), {}, delimiter)
        pattern = delimiter.join(parts[i:])
        if found == {}:
            continue
        if isinstance(found, dict):
            if pattern == "*" or any(fits(k, pattern) for k in found):
                return True
        elif isinstance(found, list):
            if any(fits(v, pattern) for v in found if not isinstance(v, dict)):
                return True
        elif fits(found, pattern):
            return True
    return False


def substr_in_list(string_to_search_for, list_to_search):
    """Report whether a text is part of an item."""
    return any(string_to_search_for in s for s in list_to_search)


def mysql_to_dict(data, key):
    """Return the lines of a table that mysql prints as dicts by a column."""
    from salt.utils.stringutils import to_num
    out, headers = {}, []
    for line in data:
        if not line or line.startswith("+"):
            continue
        comps = [c.strip() for c in line.split("|")][1:-1]
        if not headers:
            headers = comps
            continue
        row = dict(zip(headers, map(to_num, comps)))
        out[row[key]] = row
    return out


def decode(data, encoding=None, errors="strict", keep=False, normalize=False, preserve_dict_class=False, preserve_tuples=False,
           to_str=False):
    """Return nested data with text in the place of bytes. Bytes that are no text are an error, or stay as they are with keep.

    Mappings become dicts, and tuples lists unless preserve_tuples is set."""
    options = encoding, errors, keep, normalize, preserve_dict_class, preserve_tuples, to_str
    if isinstance(data, bytes):
        from salt.utils.stringutils import to_unicode
        try:
            return to_unicode(data, encoding, errors)
        except UnicodeDecodeError:
            if keep:
                return data
            raise
    if isinstance(data, collections.abc.Mapping):
        return {decode(k, *options[:5], True): decode(v, *options) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        kind = tuple if isinstance(data, tuple) and preserve_tuples else list
        return kind(decode(v, *options) for v in data)
    return data


decode_dict = decode_list = decode_tuple = decode


def encode(data, *args, **kwargs):
    """Return nested data with bytes in the place of text."""
    if isinstance(data, str):
        return data.encode("utf-8")
    if isinstance(data, dict):
        return type(data)((encode(k), encode(v)) for k, v in data.items())
    if isinstance(data, list):
        return [encode(v) for v in data]
    if isinstance(data, tuple):
        return tuple(encode(v) for v in data)
    return data


encode_dict = encode_list = encode_tuple = encode


def stringify(data):
    """Return the items of a list as texts."""
    return [v if isinstance(v, str) else str(v) for v in data]


def flatten(data, levels=None, preserve_nulls=False, _ids=None):
    """Return nested lists as one."""
    out = []
    for item in data:
        if item is None and not preserve_nulls:
            continue
        if isinstance(item, (list, tuple)) and (levels is None or levels > 0):
            out += flatten(item, None if levels is None else levels - 1, preserve_nulls)
        else:
            out.append(item)
    return out


def sorted_ignorecase(values):
    """Return texts sorted without regard to case."""
    return sorted(values, key=str.lower)


def filter_falsey(data, recurse_depth=None, ignore_types=()):
    """Return data without what is false."""
    def clean(value):
        if not recurse_depth or not isinstance(value, (dict, list)):
            return value
        return filter_falsey(value, recurse_depth - 1, ignore_types)

    def keep(value):
        return type(value) in ignore_types or bool(value)
    if isinstance(data, dict):
        pairs = ((k, clean(v)) for k, v in data.items())
        return type(data)((k, v) for k, v in pairs if keep(v))
    return type(data)(v for v in map(clean, data) if keep(v))


def json_query(data, expr):
    """Search nested data by a JMESPath expression."""
    import jmespath
    return jmespath.search(expr, data)


def get_value(obj, path, default=None):
    """Return the values at a path of keys as a list of dicts. A key in braces is all keys; the dicts have it under that name."""
    if not path:
        return [{"value": obj}]
    key, _, rest = path.partition(":")
    if key.startswith("{") and key.endswith("}"):
        if obj is None:
            return [{"value": None}]
        items = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
        return [dict(found, **{key[1:-1]: one}) for one, value in items for found in get_value(value, rest, default)]
    if isinstance(obj, dict):
        return get_value(obj[key], rest, default) if key in obj else [{"value": default}]
    return [{"value": default}]


class CaseInsensitiveDict(dict):
    """A dict whose keys are texts in any case."""

    def __init__(self, init=None, **kwargs):
        super().__init__()
        self.update(init or {}, **kwargs)

    @staticmethod
    def _key(key):
        return key.lower() if isinstance(key, str) else key

    def __getitem__(self, key):
        return dict.__getitem__(self, self._key(key))

    def __setitem__(self, key, value):
        dict.__setitem__(self, self._key(key), value)

    def __contains__(self, key):
        return dict.__contains__(self, self._key(key))

    def get(self, key, default=None):
        return dict.get(self, self._key(key), default)

    def update(self, *args, **kwargs):
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


def _with_case(data, change):
    if isinstance(data, dict):
        return {_with_case(k, change): _with_case(v, change) for k, v in data.items()}
    if isinstance(data, (list, tuple, set)):
        return type(data)(_with_case(v, change) for v in data)
    return change(data) if isinstance(data, str) else data


def to_lowercase(data, preserve_dict_class=False):
    """Return data with all texts in lower case."""
    return _with_case(data, str.lower)


def to_uppercase(data, preserve_dict_class=False):
    """Return data with all texts in upper case."""
    return _with_case(data, str.upper)


def exactly_n(iterable, amount=1):
    """Report whether a number of elements is true."""
    return sum(1 for v in iterable if v) == amount


def exactly_one(iterable):
    """Report whether one element is true."""
    return exactly_n(iterable)


def filter_by(lookup_dict, lookup, traverse, merge=None, default="default", base=None):
    """Return the values of a dict whose key matches a value of data."""
    import copy
    import fnmatch
    import salt.utils.dictupdate
    found = None
    value = traverse_dict_and_list(traverse, lookup, [])
    for each in value if isinstance(value, list) else [value]:
        for key in lookup_dict:
            if fnmatch.fnmatchcase(str(each), str(key)):
                found = lookup_dict[key]
                break
        if found is not None:
            break
    if found is None:
        found = lookup_dict.get(default)
    if base and base in lookup_dict:
        start = lookup_dict[base]
        if found is None:
            found = start
        elif isinstance(start, dict) and isinstance(found, dict):
            found = salt.utils.dictupdate.update(copy.deepcopy(start), copy.deepcopy(found))
    if merge:
        from salt.exceptions import SaltException
        if not isinstance(merge, dict):
            raise SaltException("filter_by merge argument must be a dictionary.")
        if found is None:
            found = merge
        else:
            salt.utils.dictupdate.update(found, copy.deepcopy(merge))
    return found


def hash(value, algorithm="sha512"):  # noqa: A001
    """Return the digest of a text."""
    import hashlib
    data = value.encode() if isinstance(value, str) else value
    return hashlib.new(algorithm, data).hexdigest()


def sample(value, size, seed=None):
    """Return random elements of a list."""
    import random
    return random.Random(hash(seed)).sample(value, size) if seed is not None else random.sample(value, size)


def shuffle(value, seed=None):
    """Return the elements of a list in a random order."""
    return sample(value, len(value), seed)


def to_entries(data):
    """Return the keys and values of a dict or list as a list of dicts."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    return [{"key": k, "value": v} for k, v in items]


def from_entries(entries):
    """Return the dict of such a list."""
    out = {}
    for entry in entries:
        key = next((entry[n] for n in ("key", "Key", "name", "Name") if n in entry), None)
        if key is not None:
            out[key] = entry.get("value", entry.get("Value"))
    return out


def simple_types_filter(data):
    """Return data with text in the place of what is no simple value."""
    if isinstance(data, (list, tuple)):
        return [simple_types_filter(v) if isinstance(v, (dict, list)) else
                v if v is None or isinstance(v, (str, int, float, bool, tuple)) else repr(v) for v in data]
    if isinstance(data, dict):
        return {(k if isinstance(k, (str, int, float, bool)) else repr(k)):
                simple_types_filter(v) if isinstance(v, (dict, list)) else
                v if v is None or isinstance(v, (str, int, float, bool, tuple)) else repr(v) for k, v in data.items()}
    return data
