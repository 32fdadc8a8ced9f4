"""Data by bank and key, in the cache of the master on this machine."""

import brine_helper as _helper


class Cache:
    """Reads and writes data."""

    def __init__(self, opts=None, cachedir=None, **_):
        self.opts = opts

    @staticmethod
    def _call(name, *args):
        runner = _helper.GLOBALS["__runner__"]
        if "cache." + name not in runner:
            from salt.exceptions import SaltCacheError
            raise SaltCacheError("there is no cache of a master on this machine")
        return runner["cache." + name](*args)

    def fetch(self, bank, key):
        """Return data, or an empty dict."""
        return self._call("fetch", bank, key)

    def store(self, bank, key, data):
        """Write data."""
        return self._call("store", bank, key, data)

    def flush(self, bank, key=None):
        """Remove data."""
        return self._call("flush", bank, key)

    def list(self, bank):
        """Return the keys of a bank."""
        return self._call("list", bank)

    ls = list

    def contains(self, bank, key=None):
        """Report whether there is data."""
        if key is None:
            return bool(self.list(bank))
        return key in self.list(bank)


def factory(opts=None, **kwargs):
    """Return a cache."""
    return Cache(opts, **kwargs)
