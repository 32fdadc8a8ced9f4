"""Data that is kept."""

import functools
import time


class CacheDict(dict):
    """A dict whose values expire."""

    def __init__(self, ttl, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._ttl, self._times = ttl, {}

    def _drop(self, key):
        if key in self._times and time.time() - self._times[key] > self._ttl:
            del self._times[key]
            dict.__delitem__(self, key)

    def __contains__(self, key):
        self._drop(key)
        return dict.__contains__(self, key)

    def __getitem__(self, key):
        self._drop(key)
        return dict.__getitem__(self, key)

    def __setitem__(self, key, value):
        self._times[key] = time.time()
        dict.__setitem__(self, key, value)


class CacheFactory:
    """Makes such dicts."""

    @classmethod
    def factory(cls, backend, ttl, *args, **kwargs):
        """Return a dict whose values expire."""
        return CacheDict(ttl)


def context_cache(func):
    """Return the function: __context__ is kept for the time of a job."""
    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        return func(*args, **kwargs)
    return wrapped
