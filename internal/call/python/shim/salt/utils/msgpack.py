"""msgpack."""

from salt.payload import dumps as packb, loads as unpackb  # noqa: F401

HAS_MSGPACK = True
dumps, loads = packb, unpackb


def load(stream, **_):
    """Decode the content of a file."""
    return unpackb(stream.read())


def dump(value, stream, **_):
    """Encode a value to a file."""
    stream.write(packb(value))


unpack, pack = load, dump
