"""Variables of functions."""

import contextlib


@contextlib.contextmanager
def func_globals_inject(func, **overrides):
    """Change globals of a function for the time of a block."""
    func = getattr(func, "__func__", func)
    scope, missing = func.__globals__, object()
    before = {name: scope.get(name, missing) for name in overrides}
    scope.update(overrides)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                scope.pop(name, None)
            else:
                scope[name] = value
