"""The serializer msgpack."""

import salt.payload

available = True


def deserialize(stream_or_string, **options):
    """Return the value of bytes or a file."""
    if hasattr(stream_or_string, "read"):
        stream_or_string = stream_or_string.read()
    return salt.payload.loads(stream_or_string)


def serialize(obj, **options):
    """Return a value as bytes."""
    return salt.payload.dumps(obj)
