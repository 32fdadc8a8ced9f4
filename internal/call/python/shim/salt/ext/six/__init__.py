"""The part of six that code for Python 3 still uses."""

import builtins
import functools
import io
import operator
import sys
import types

PY2, PY3, PY34 = False, True, True
string_types, text_type, binary_type = (str,), str, bytes
integer_types, class_types = (int,), (type,)
MAXSIZE = sys.maxsize
StringIO, BytesIO = io.StringIO, io.BytesIO
unichr, int2byte, byte2int = chr, operator.methodcaller("to_bytes", 1, "big"), operator.itemgetter(0)
indexbytes, iterbytes, next = operator.getitem, iter, builtins.next
exec_, print_ = builtins.exec, builtins.print
wraps = functools.wraps
advance_iterator = next
get_function_code = operator.attrgetter("__code__")
get_method_function = operator.attrgetter("__func__")
create_bound_method = types.MethodType


def u(text):
    """Return a text."""
    return text


def b(text):
    """Return a text as bytes."""
    return text.encode("latin-1")


def iteritems(mapping, **_):
    """Return an iterator over the items."""
    return iter(mapping.items())


def iterkeys(mapping, **_):
    """Return an iterator over the keys."""
    return iter(mapping.keys())


def itervalues(mapping, **_):
    """Return an iterator over the values."""
    return iter(mapping.values())


def viewitems(mapping):
    """Return the items."""
    return mapping.items()


def viewkeys(mapping):
    """Return the keys."""
    return mapping.keys()


def viewvalues(mapping):
    """Return the values."""
    return mapping.values()


def ensure_str(text, encoding="utf-8", errors="strict"):
    """Return bytes or text as text."""
    return text.decode(encoding, errors) if isinstance(text, bytes) else text


ensure_text = ensure_str


def ensure_binary(text, encoding="utf-8", errors="strict"):
    """Return bytes or text as bytes."""
    return text.encode(encoding, errors) if isinstance(text, str) else text


def reraise(kind, value, trace=None):
    """Raise an exception with a traceback."""
    if value is None:
        value = kind()
    raise value.with_traceback(trace)


def raise_from(value, cause):
    """Raise an exception with a cause."""
    raise value from cause


def callable(value):  # noqa: A001
    """Report whether a value can be called."""
    return builtins.callable(value)


def with_metaclass(meta, *bases):
    """Return a base class with a metaclass."""
    return meta("base", bases, {})


def add_metaclass(meta):
    """Return a decorator that gives a class a metaclass."""
    def wrapper(cls):
        body = {k: v for k, v in cls.__dict__.items() if k not in ("__dict__", "__weakref__")}
        return meta(cls.__name__, cls.__bases__, body)
    return wrapper


def python_2_unicode_compatible(cls):
    """Return the class."""
    return cls


from salt.ext.six import moves  # noqa: E402,F401
