"""Functions of functions."""

import types


def namespaced_function(function, global_dict, defaults=None, preserve_context=None):
    """Return a function whose globals are those of another module."""
    scope = getattr(function, "__globals__", None)
    if scope is None:
        return _own(function, global_dict)
    for name, value in scope.items():
        global_dict.setdefault(name, value)
    new = types.FunctionType(function.__code__, global_dict, name=function.__name__,
                             argdefs=function.__defaults__, closure=function.__closure__)
    new.__dict__.update(function.__dict__)
    new.__doc__, new.__kwdefaults__ = function.__doc__, function.__kwdefaults__
    return new


def _own(function, global_dict):
    """Return a function of a module that calls one of Brine's."""
    def call(*args, **kwargs):
        return function(*args, **kwargs)
    call.__name__ = call.__qualname__ = function.__name__
    call.__module__ = global_dict.get("__name__")
    return call


def alias_function(fun, name, doc=None):
    """Return a function under another name."""
    if not hasattr(fun, "__globals__"):
        import sys
        new = _own(fun, sys._getframe(1).f_globals)
        new.__name__ = new.__qualname__ = str(name)
        new.__doc__ = doc or "This function is an alias of ``{}``.".format(fun.__name__)
        return new
    new = types.FunctionType(fun.__code__, fun.__globals__, str(name), fun.__defaults__, fun.__closure__)
    new.__dict__.update(fun.__dict__)
    new.__doc__ = doc or "This function is an alias of ``{}``.\n\n{}".format(fun.__name__, fun.__doc__ or "")
    return new


def call_function(salt_function, *args, **kwargs):
    """Call a function with arguments and keywords in one list."""
    positional, named = [], dict(kwargs)
    for arg in args:
        if isinstance(arg, dict):
            named.update(arg)
        else:
            positional.append(arg)
    return salt_function(*positional, **named)
