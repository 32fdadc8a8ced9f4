"""The executor that only calls the function."""


def execute(opts, data, func, args, kwargs):
    """Call a function."""
    return func(*args, **kwargs)
