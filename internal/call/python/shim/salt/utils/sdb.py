"""Values of sdb."""

import brine_helper as _helper


def sdb_get(uri, opts=None, utils=None, strict=False):
    """Return a value."""
    return _helper.GLOBALS["__salt__"]["sdb.get"](uri)
