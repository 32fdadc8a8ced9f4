"""Values of sdb."""

import brine_helper as _helper


def sdb_get(uri, opts=None, utils=None, strict=False):
    """Return a value."""
    return _helper.GLOBALS["__salt__"]["sdb.get"](uri)


def sdb_set(uri, value, opts=None, utils=None):
    """Set a value."""
    return _helper.GLOBALS["__salt__"]["sdb.set"](uri, value)


def sdb_delete(uri, opts=None, utils=None):
    """Delete a value."""
    return _helper.GLOBALS["__salt__"]["sdb.delete"](uri)


def sdb_get_or_set_hash(uri, opts=None, length=8, chars="abcdefghijklmnopqrstuvwxyz0123456789!@#$%^&*(-_=+)", utils=None):
    """Return a value, which is set to a random one if there is none."""
    return _helper.GLOBALS["__salt__"]["sdb.get_or_set_hash"](uri, length, chars)
