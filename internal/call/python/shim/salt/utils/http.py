"""HTTP by Brine's function http.query."""

import brine_helper as _helper


def query(url, method="GET", **kwargs):
    """Query a URL."""
    for name in ("opts", "hide_fields", "backend", "raise_error"):
        kwargs.pop(name, None)
    return _helper.GLOBALS["__salt__"]["http.query"](url, method=method, **kwargs)


def update_ca_bundle(*args, **kwargs):
    """Update the bundle of authorities."""
    return _helper.GLOBALS["__salt__"]["http.update_ca_bundle"](*args, **kwargs)
