"""Versions and deprecations."""

import re


class LooseVersion:
    """A version that can be compared part by part."""

    def __init__(self, vstring=None):
        self.vstring = str(vstring)
        self.version = [int(p) if p.isdigit() else p for p in re.findall(r"\d+|[a-z]+", self.vstring)]

    @staticmethod
    def _parts(other):
        own = other.version if isinstance(other, LooseVersion) else LooseVersion(other).version
        return [(1, p, "") if isinstance(p, int) else (0, 0, p) for p in own]

    def __eq__(self, other):
        return self._parts(self) == self._parts(other)

    def __lt__(self, other):
        return self._parts(self) < self._parts(other)

    def __le__(self, other):
        return self._parts(self) <= self._parts(other)

    def __gt__(self, other):
        return self._parts(self) > self._parts(other)

    def __ge__(self, other):
        return self._parts(self) >= self._parts(other)

    __hash__ = None

    def __str__(self):
        return self.vstring

    def __repr__(self):
        return "LooseVersion ('{}')".format(self.vstring)


StrictVersion = Version = LooseVersion


def parse(version):
    """Return a version."""
    return LooseVersion(version)


def warn_until(version, message, *args, **kwargs):
    """Log a deprecation."""
    import logging
    logging.getLogger(__name__).debug("%s", message)


warn_until_date = kwargs_warn_until = warn_until


def version_cmp(pkg1, pkg2, ignore_epoch=False):
    """Compare two versions: -1, 0 or 1."""
    a, b = str(pkg1), str(pkg2)
    if ignore_epoch:
        a, b = a.rpartition(":")[2], b.rpartition(":")[2]
    a, b = LooseVersion(a), LooseVersion(b)
    return -1 if a < b else 1 if a > b else 0


def compare(ver1="", oper="==", ver2="", cmp_func=None, ignore_epoch=False):
    """Report whether two versions compare as an operator says."""
    result = (cmp_func or version_cmp)(ver1, ver2)
    if result is None:
        return False
    return {"<": result < 0, "<=": result <= 0, "==": result == 0, "=": result == 0, "!=": result != 0,
            ">=": result >= 0, ">": result > 0}[oper]


def check_boto_reqs(*_, **__):
    """Report whether the library for Amazon's services is installed."""
    try:
        __import__("boto3")
        return True
    except ImportError:
        return False, "the library boto3 is not installed"
