"""What modules for package managers share. __salt__ has these functions for Python modules."""

import brine_helper as _helper


def _salt(name, default=None):
    return _helper.GLOBALS["__salt__"].get(name, default)


def _name_of(normalize):
    return normalize and _salt("pkg.normalize_name") or (lambda name: name)


def _repack_pkgs(pkgs, normalize=True):
    """Return a list of names, or of names with versions, as a dict."""
    import salt.utils.data
    from salt.exceptions import SaltInvocationError
    name_of, out = _name_of(normalize), {}
    for name, version in salt.utils.data.repack_dictlist(pkgs).items():
        out[name_of(str(name))] = version if version is None else str(version)
    if len(out) != len(pkgs):
        raise SaltInvocationError("a package is named more than once in {}".format(pkgs))
    return out


def pack_sources(sources, normalize=True):
    """Return a list of dicts with one name and its source as one dict."""
    import salt.utils.yaml
    if isinstance(sources, str):
        sources = salt.utils.yaml.safe_load(sources)
    name_of, out = _name_of(normalize), {}
    for source in sources:
        if not isinstance(source, dict) or len(source) != 1:
            return {}
        for name, path in source.items():
            out[name_of(name)] = path
    return out


def parse_targets(name=None, pkgs=None, sources=None, saltenv="base", normalize=True, **kwargs):
    """Return what is to be installed, and whether it is from a repository, a file or an advisory."""
    if pkgs and sources:
        return None, None
    if "advisory_ids" in kwargs:
        return (None, None) if pkgs else (kwargs["advisory_ids"] or [name], "advisory")
    if pkgs:
        packed = _repack_pkgs(pkgs, normalize)
        return (packed, "repository") if packed else (None, None)
    if sources:
        packed = pack_sources(sources, normalize)
        return ([_cached(n, path, saltenv) for n, path in packed.items()], "file") if packed else (None, None)
    if name:
        name_of = _name_of(normalize)
        return {name_of(n): kwargs.get("version") for n in name.split(",")}, "repository"
    return None, None


def _cached(name, path, saltenv):
    import os
    from salt.exceptions import SaltInvocationError
    if "://" in path:
        return _salt("cp.cache_file")(path, saltenv)
    if not os.path.isabs(path):
        raise SaltInvocationError("Path {} for package {} is either not absolute or an invalid protocol".format(path, name))
    return path


def version(*names, **kwargs):
    """Return the installed versions of packages."""
    import fnmatch
    import salt.utils.data
    as_list = salt.utils.data.is_true(kwargs.pop("versions_as_list", False))
    pkgs = _salt("pkg.list_pkgs")(versions_as_list=True, **kwargs) if names else {}
    out, pattern = {}, False
    for name in names:
        if "*" in name:
            pattern = True
            out.update((match, pkgs[match]) for match in fnmatch.filter(pkgs, name))
        else:
            out[name] = pkgs.get(name, [])
    if not as_list:
        stringify(out)
    return next(iter(out.values())) if len(out) == 1 and not pattern else out


def add_pkg(pkgs, name, pkgver):
    """Add a package to a dict of versions."""
    pkgs.setdefault(name, []).append(pkgver)


def sort_pkglist(pkgs):
    """Sort the versions in a dict."""
    for name in pkgs:
        pkgs[name] = sorted(set(pkgs[name]))


def stringify(pkgs):
    """Make one text of the versions of each package in a dict."""
    for name in pkgs:
        pkgs[name] = ",".join(pkgs[name])


def version_clean(verstr):
    """Return a version without what pkg.version_clean takes away."""
    clean = _salt("pkg.version_clean") if verstr else None
    return clean(verstr) if clean else verstr


def version_compare(ver1, oper, ver2, ignore_epoch=False):
    """Compare two versions."""
    import salt.utils.versions
    return salt.utils.versions.compare(ver1, oper, ver2, ignore_epoch=ignore_epoch, cmp_func=_salt("pkg.version_cmp"))


def check_extra_requirements(pkgname, pkgver):
    """Report whether a package has what pkg.check_extra_requirements wants."""
    check = _salt("pkg.check_extra_requirements") if pkgver else None
    return check(pkgname, pkgver) if check else True


def format_version(epoch, version, release):
    """Return a version of its parts."""
    return ("{}:".format(epoch) if epoch else "") + version + ("-{}".format(release) if release else "")


def format_pkg_list(packages, versions_as_list, attr):
    """Return packages as pkg.list_pkgs does."""
    import copy
    if not attr:
        out = {n: [format_version(d["epoch"], d["version"], d["release"]) for d in versions] for n, versions in packages.items()}
        if not versions_as_list:
            stringify(out)
        return out
    wanted = {"epoch", "version", "release", "arch", "install_date", "install_date_time_t"}
    if attr != "all":
        wanted &= set(attr) | {"version", "arch"}
    out = {}
    for name, versions in copy.deepcopy(packages).items():
        parse = _salt("pkg.parse_arch")
        parts = parse(name) if parse else {"name": name, "arch": None}
        kept = [{k: d[k] for k in wanted if k in d} for d in versions]
        bare = any(parts["name"] and d.get("arch") == parts["arch"] for d in kept)
        out.setdefault(parts["name"] if bare else name, []).extend(kept)
    return out
