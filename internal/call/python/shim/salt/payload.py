"""Encoding of messages by msgpack; without it by marshal, which only this program reads."""

try:
    import msgpack as _codec

    def dumps(value, **kwargs):
        """Encode a value."""
        return _codec.packb(value, use_bin_type=True)

    def loads(data, encoding=None, raw=False):
        """Decode a value."""
        return _codec.unpackb(data, raw=False, strict_map_key=False)
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
