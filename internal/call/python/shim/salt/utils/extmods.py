"""Modules from the file server."""

import brine_helper as _helper


def sync(opts, form, saltenv=None, extmod_whitelist=None, extmod_blacklist=None, force_local=False):
    """Fetch the modules of a kind, and return the names of new and changed ones and whether there are any."""
    if isinstance(saltenv, (list, tuple)):
        saltenv = ",".join(saltenv)
    name = "saltutil.sync_" + {"proxy": "proxymodules", "tokens": "eauth_tokens"}.get(form, form)
    runner = _helper.GLOBALS["__runner__"]
    functions = runner if name in runner else _helper.GLOBALS["__salt__"]
    names = functions[name](saltenv=saltenv or "base", extmod_whitelist=extmod_whitelist, extmod_blacklist=extmod_blacklist)
    return list(names), bool(names)
