"""Encoding of messages by msgpack; without it by marshal, which only this program reads."""

try:
    import msgpack as _codec

    def dumps(value, **kwargs):
        """Encode a value."""
        return _codec.packb(value, use_bin_type=bool(kwargs.get("use_bin_type")), default=_plain)

    def loads(data, encoding=None, raw=False):
        """Decode a value."""
        from salt.utils.data import decode
        value = _codec.unpackb(data, raw=True, strict_map_key=False)
        return value if raw else decode(value, "utf-8", keep=True)
except ImportError:
    import marshal as _codec

    def dumps(value, **kwargs):
        """Encode a value."""
        return _codec.dumps(value, 2)

    def loads(data, encoding=None, raw=False):
        """Decode a value."""
        return _codec.loads(data)


class Serial:
    """The functions as methods."""

    def __init__(self, opts=None):
        self.serial = "msgpack"

    @staticmethod
    def dumps(value, **kwargs):
        """Encode a value."""
        return dumps(value)

    @staticmethod
    def loads(data, **kwargs):
        """Decode a value."""
        return loads(data)

    @staticmethod
    def load(stream):
        """Decode the content of a file."""
        return loads(stream.read())

    @staticmethod
    def dump(value, stream):
        """Encode a value to a file."""
        stream.write(dumps(value))


load = Serial.load
dump = Serial.dump


def _plain(value):
    """Return a value that msgpack lacks as one that it has."""
    if isinstance(value, (set, frozenset)):
        return tuple(value)
    return str(value)


def package(payload):
    """Encode a message."""
    return dumps(payload)


def unpackage(package_):
    """Decode a message."""
    return loads(package_)


def format_payload(enc, **kwargs):
    """Encode a message with a kind of encryption and a load."""
    return package({"enc": enc, "load": kwargs})
