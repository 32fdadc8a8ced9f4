"""Values that sdb://profile/key refers to."""

import brine_helper as _helper
from salt.exceptions import SaltInvocationError


def _own(opts):
    """Report whether options are those of the daemon, which Brine has itself."""
    return opts is None or isinstance(opts, _helper.Context)


def _with(opts, uri):
    """Return what other options say of the profile that a reference names."""
    name = uri[len("sdb://"):].partition("/")[0] if isinstance(uri, str) else ""
    return {name: opts.get(name) or (opts.get("pillar") or {}).get(name)}


def _ask(function, opts, uri, *args):
    if _own(opts):
        return _helper.pipe.ask("sdb", function, None, uri, *args)
    return _helper.pipe.ask("sdb", function, _with(opts, uri), uri, *args)


def sdb_get(uri, opts=None, utils=None, strict=False):
    """Return a value, or what is no reference as it is."""
    if not isinstance(uri, str):
        if strict:
            raise SaltInvocationError('SDB uri must start with "sdb://"')
        return uri
    return _ask("get", opts, uri, True) if strict else _ask("get", opts, uri)


def sdb_set(uri, value, opts=None, utils=None):
    """Store a value."""
    return _ask("set", opts, uri, value)


def sdb_delete(uri, opts=None, utils=None):
    """Delete a value."""
    return _ask("delete", opts, uri)


def sdb_get_or_set_hash(uri, opts=None, length=8, chars="abcdefghijklmnopqrstuvwxyz0123456789!@#$%^&*(-_=+)", utils=None):
    """Return a value, which is set to random characters if there is none."""
    return _ask("get_or_set_hash", opts, uri, length, chars)
