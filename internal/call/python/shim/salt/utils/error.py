"""Errors."""


def raise_error(name=None, args=None, message=""):
    """Raise an exception by its name."""
    import builtins
    import salt.exceptions
    kind = getattr(salt.exceptions, name or "", None) or getattr(builtins, name or "Exception", Exception)
    raise kind(*args) if args is not None else kind(message)


def pack_exception(exc):
    """Return an exception as a dict."""
    return exc.pack() if hasattr(exc, "pack") else {"message": str(exc), "args": exc.args}
