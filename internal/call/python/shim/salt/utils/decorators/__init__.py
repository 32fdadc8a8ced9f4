"""Decorators."""

import functools
import logging

log = logging.getLogger(__name__)


class depends:
    """Takes a function away from its module unless names among its globals are there.

    Arguments are names, functions or programs; fallback_function stands for the function.
    """

    def __init__(self, *dependencies, **kwargs):
        self.dependencies = dependencies
        self.fallback = kwargs.get("fallback_function")

    def __call__(self, function):
        missing = []
        for dependency in self.dependencies:
            if isinstance(dependency, str):
                scope = function.__globals__
                if dependency in scope:
                    continue
                try:
                    __import__(dependency)
                except ImportError:
                    import shutil
                    if not shutil.which(dependency):
                        missing.append(dependency)
            elif callable(dependency):
                if not dependency():
                    missing.append(getattr(dependency, "__name__", "a condition"))
            elif not dependency:
                missing.append(str(dependency))
        if not missing:
            return function
        log.debug("%s is not available: it depends on %s", function.__name__, ", ".join(missing))
        return self.fallback


def which(exe):
    """Fail a function where a program is not installed."""
    def wrapper(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            import salt.utils.path
            from salt.exceptions import CommandNotFoundError
            if salt.utils.path.which(exe) is None:
                raise CommandNotFoundError("The '{}' binary was not found in $PATH.".format(exe))
            return function(*args, **kwargs)
        return wrapped
    return wrapper


def which_bin(exes):
    """Fail a function where none of some programs is installed."""
    def wrapper(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            import salt.utils.path
            from salt.exceptions import CommandNotFoundError
            if salt.utils.path.which_bin(exes) is None:
                raise CommandNotFoundError("None of provided binaries({}) was found in $PATH.".format(
                    ", ".join("'{}'".format(e) for e in exes)))
            return function(*args, **kwargs)
        return wrapped
    return wrapper


def memoize(function):
    """Keep the results of a function by its arguments."""
    kept = {}

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        key = tuple(repr(a) for a in args) + tuple("{}={!r}".format(*i) for i in sorted(kwargs.items()))
        if key not in kept:
            kept[key] = function(*args, **kwargs)
        return kept[key]
    return wrapped


def timing(function):
    """Log how long a function took."""
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        import time
        began = time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            log.debug("%s took %.3f seconds", function.__name__, time.monotonic() - began)
    return wrapped


def _same(*_, **__):
    """Return a decorator that leaves functions as they are."""
    return lambda function: function


is_deprecated = with_deprecated = _same


def require_one_of(*_, **__):
    """Return a decorator that leaves functions as they are."""
    return lambda function: function


def allow_one_of(*_, **__):
    """Return a decorator that leaves functions as they are."""
    return lambda function: function


def ensure_unicode_args(function):
    """Return the function: its arguments are text."""
    return function


def ignores_kwargs(*names):
    """Return a decorator that drops keywords."""
    def wrapper(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            return function(*args, **{k: v for k, v in kwargs.items() if k not in names})
        return wrapped
    return wrapper
