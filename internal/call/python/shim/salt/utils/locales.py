"""Texts in other encodings."""

from salt.utils.stringutils import to_unicode as sdecode  # noqa: F401


def sdecode_if_string(value):
    """Return bytes as text."""
    return sdecode(value) if isinstance(value, bytes) else value
