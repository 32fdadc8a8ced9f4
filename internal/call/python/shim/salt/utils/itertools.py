"""Iterators."""


def split(orig, sep=None):
    """Yield the parts of a text."""
    return iter(orig.split(sep))


def read_file(fh_, chunk_size=1048576):
    """Yield the parts of a file."""
    source = fh_ if hasattr(fh_, "read") else open(fh_, "rb")
    with source:
        for part in iter(lambda: source.read(chunk_size), source.read(0)):
            yield part


def fnmatch_multiple(candidates, pattern):
    """Return the first name that matches a pattern, or None."""
    import fnmatch
    return next((c for c in candidates if fnmatch.fnmatch(c, pattern)), None)
