"""Decorators."""

import functools
import logging
import sys

log = logging.getLogger(__name__)


DEPENDENCIES = {}  # module: what its functions depend on


class Depends:
    """Takes a function away from its module unless names among the module's globals are there.

    With retcode or nonzero_retcode the dependencies are commands. fallback_function stands for the function.
    """

    def __init__(self, *dependencies, **params):
        self.dependencies, self.params = dependencies, params

    def __call__(self, function):
        frame = sys._getframe(1)
        for dependency in self.dependencies:
            DEPENDENCIES.setdefault(frame.f_globals.get("__name__"), []).append((function.__name__, dependency, frame, self.params))
        return function


depends = Depends


def enforce(module, functions, renamed):
    """Remove or replace the functions of a loaded module whose dependencies are not there."""
    for name, dependency, frame, params in DEPENDENCIES.pop(module, ()):
        if _met(dependency, frame, params):
            continue
        log.debug("%s.%s is not available: it depends on %s", module, name, dependency)
        name = renamed.get(name, name)
        if name not in functions:
            continue
        if params.get("fallback_function") is not None:
            functions[name] = params["fallback_function"]
        else:
            del functions[name]


def _met(dependency, frame, params):
    if "retcode" in params or "nonzero_retcode" in params:
        code = _retcode(dependency)
        if "retcode" in params:
            return code == params["retcode"]
        return (code != 0) == bool(params["nonzero_retcode"])
    if dependency is True:
        return True
    found = frame.f_locals.get(dependency) or frame.f_globals.get(dependency)
    if found and "version" in params:
        import salt.utils.versions
        return salt.utils.versions.version_cmp(str(getattr(found, "__version__", "")), params["version"]) >= 0
    return bool(found)


def _retcode(command):
    import shlex
    import subprocess
    try:
        return subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False).returncode
    except OSError:
        return -1


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
    """Keep the results of a function by the texts of its arguments."""
    kept = {}

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        key = ",".join([str(a) for a in args] + ["{}={}".format(*i) for i in sorted(kwargs.items())])
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


def _of_one(names, needed, text):
    """Return a decorator that counts the given arguments of some names."""
    def wrapper(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            from salt.exceptions import SaltInvocationError
            given = [k for k, v in kwargs.items() if v and k in names]
            given += [a for a, name in zip(args, function.__code__.co_varnames) if a and name in names]
            if len(given) > 1:
                raise SaltInvocationError(text + ", ".join(names))
            if needed and not given:
                raise SaltInvocationError("One of the following must be provided: " + ", ".join(names))
            return function(*args, **kwargs)
        return wrapped
    return wrapper


def require_one_of(*names):
    """Return a decorator that wants one of some arguments."""
    return _of_one(names, True, "Only one of the following is allowed: ")


def allow_one_of(*names):
    """Return a decorator that wants at most one of some arguments."""
    return _of_one(names, False, "Only of the following is allowed: ")


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
