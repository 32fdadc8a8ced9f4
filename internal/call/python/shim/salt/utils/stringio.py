"""Files in memory."""

import io

readable_types = writable_types = (io.StringIO, io.BytesIO)


def is_stringio(obj):
    """Report whether something is a file in memory."""
    return isinstance(obj, readable_types)


def is_readable(obj):
    """Report whether something is a file in memory that can be read."""
    return is_stringio(obj) and obj.readable()


def is_writable(obj):
    """Report whether something is a file in memory that can be written."""
    return is_stringio(obj) and obj.writable()


is_filelike = is_stringio
