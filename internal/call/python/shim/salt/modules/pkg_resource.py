"""Names of packages; the other functions are Brine's."""

import brine_helper as _helper


def _repack_pkgs(pkgs, normalize=True):
    """Return a list of names, or of names with versions, as a dict."""
    import salt.utils.data
    from salt.exceptions import SaltInvocationError
    salt_functions = _helper.GLOBALS["__salt__"]
    name_of = salt_functions.get("pkg.normalize_name") if normalize else None
    out = {}
    for name, version in salt.utils.data.repack_dictlist(pkgs).items():
        name = str(name)
        out[name_of(name) if name_of else name] = version if version is None else str(version)
    if len(out) != len(pkgs):
        raise SaltInvocationError("a package is named more than once in {}".format(pkgs))
    return out


def __getattr__(name):
    """Return a function of Brine."""
    if name.startswith("__"):
        raise AttributeError(name)
    found = _helper.GLOBALS["__salt__"].get("pkg_resource." + name)
    if found is None:
        raise AttributeError(name)
    return found
