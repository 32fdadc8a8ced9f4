"""Packages: when to refresh the lists, and versions."""

import os
import re

import salt.utils.data
import salt.utils.versions


def rtag(opts):
    """Return the file whose existence asks for a refresh."""
    return os.path.join(opts["cachedir"], "pkg_refresh")


def clear_rtag(opts):
    """Remove the file."""
    try:
        os.remove(rtag(opts))
    except FileNotFoundError:
        pass


def write_rtag(opts):
    """Create the file."""
    with open(rtag(opts), "a", encoding="utf-8"):
        pass


def check_refresh(opts, refresh=None):
    """Report whether the lists of packages are to be refreshed."""
    return salt.utils.data.is_true(refresh) or refresh is not False and os.path.isfile(rtag(opts))


def split_comparison(version):
    """Return the operator and the version of a comparison."""
    found = re.match(r"(<=>|[!<>]=|>>|<<|<>|[<>=])?\s?([^<>=]+)$", version)
    return (found.group(1) or "", found.group(2)) if found else ("", version)


def match_version(desired, available, cmp_func=None, ignore_epoch=False):
    """Return the first version that meets a comparison, or None."""
    operator, version = split_comparison(desired)
    for candidate in available:
        if salt.utils.versions.compare(candidate, operator or "==", version, cmp_func=cmp_func, ignore_epoch=ignore_epoch):
            return candidate
    return None


def check_bundled():
    """Report whether this is a program with a Python of its own."""
    return False


def match_wildcard(current_pkgs, pkg_params):
    """Replace names with wildcards by those of installed packages."""
    import fnmatch
    for pattern in [name for name in pkg_params if "*" in name]:
        version = pkg_params.pop(pattern)
        pkg_params.update((name, version) for name in current_pkgs if fnmatch.fnmatch(name, pattern))
    return pkg_params
