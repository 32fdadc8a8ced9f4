"""Functions of functions."""

import types


def namespaced_function(function, global_dict, defaults=None, preserve_context=None):
    """Return a function with other globals."""
    scope = dict(function.__globals__)
    scope.update(global_dict)
    new = types.FunctionType(function.__code__, scope, name=function.__name__,
                             argdefs=defaults or function.__defaults__, closure=function.__closure__)
    new.__dict__.update(function.__dict__)
    new.__doc__, new.__kwdefaults__ = function.__doc__, function.__kwdefaults__
    return new


def alias_function(fun, name, doc=None):
    """Return a function under another name."""
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
