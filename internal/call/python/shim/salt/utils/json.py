"""JSON."""

import json as _json
from json import JSONDecodeError, JSONDecoder, JSONEncoder  # noqa: F401


def loads(s, **kwargs):
    """Return the value of a text."""
    kwargs.pop("_json_module", None)
    return _json.loads(s, **kwargs)


def load(fp, **kwargs):
    """Return the value of a file."""
    return loads(fp.read(), **kwargs)


def _plain(value):
    if hasattr(value, "value") and callable(value.value):
        return value.value()
    return str(value)


def dumps(obj, **kwargs):
    """Return a value as text."""
    kwargs.pop("_json_module", None)
    kwargs.setdefault("ensure_ascii", False)
    kwargs.setdefault("default", _plain)
    return _json.dumps(obj, **kwargs)


def dump(obj, fp, **kwargs):
    """Write a value to a file."""
    fp.write(dumps(obj, **kwargs))


def find_json(raw):
    """Return the value of the first JSON object or list in a text."""
    for i, char in enumerate(raw):
        if char in "{[":
            try:
                return _json.JSONDecoder().raw_decode(raw[i:])[0]
            except ValueError:
                continue
    raise ValueError("there is no JSON in the text")


def import_json():
    """Return Python's module."""
    return _json
