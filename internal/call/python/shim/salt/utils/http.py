"""HTTP by Brine's function http.query."""

import brine_helper as _helper


def query(url, method="GET", **kwargs):
    """Query a URL."""
    for name in ("opts", "hide_fields", "backend", "raise_error"):
        kwargs.pop(name, None)
    return _helper.GLOBALS["__salt__"]["http.query"](url, method=method, **kwargs)


def _agent():
    import salt.version
    return "Salt/" + salt.version.__version__


USERAGENT = _agent()


def sanitize_url(url, hide_fields):
    """Return a URL with XXXXXXXXXX for the values of fields of its query."""
    if not isinstance(hide_fields, list):
        return str(url)
    place, mark, query_ = url.rpartition("?")
    if not mark:
        return url
    fields = [f.partition("=")[0] + "=XXXXXXXXXX" if f.partition("=")[0] in hide_fields and "=" in f else f for f in query_.split("&")]
    return (place + "?" + "&".join(fields)).rstrip("&")


def update_ca_bundle(*args, **kwargs):
    """Update the bundle of authorities."""
    return _helper.GLOBALS["__salt__"]["http.update_ca_bundle"](*args, **kwargs)
