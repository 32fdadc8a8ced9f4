"""The serializer yaml."""

import salt.utils.yaml
from salt.serializers import DeserializationError, SerializationError

available = True


def deserialize(stream_or_string, **options):
    """Return the value of a text or a file."""
    try:
        if hasattr(stream_or_string, "read"):
            stream_or_string = stream_or_string.read()
        if isinstance(stream_or_string, bytes):
            stream_or_string = stream_or_string.decode("utf-8")
        return salt.utils.yaml.safe_load(stream_or_string)
    except Exception as exc:
        raise DeserializationError(exc)


def serialize(obj, **options):
    """Return a value as text, or write it to the file fp."""
    fp = options.pop("fp", None)
    try:
        text = salt.utils.yaml.safe_dump(obj, **dict({"allow_unicode": False}, **options))
    except Exception as exc:
        raise SerializationError(exc)
    text = text[:-5] if text.endswith("\n...\n") else text[:-1] if text.endswith("\n") else text
    if fp is None:
        return text
    return fp.write(text)
