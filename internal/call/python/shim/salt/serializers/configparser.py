"""The serializer configparser: files of sections."""

import configparser
import io

available = True


def deserialize(stream_or_string, **options):
    """Return the sections as dicts."""
    text = stream_or_string.read() if hasattr(stream_or_string, "read") else stream_or_string
    parser = configparser.ConfigParser(**{k: v for k, v in options.items() if k == "allow_no_value"})
    parser.read_string(text.decode("utf-8") if isinstance(text, bytes) else text)
    return {name: dict(parser.items(name)) for name in parser.sections()}


def serialize(obj, **options):
    """Return dicts as sections."""
    parser = configparser.ConfigParser()
    for section, items in obj.items():
        parser.add_section(str(section))
        for key, value in items.items():
            parser.set(str(section), str(key), str(value))
    out = io.StringIO()
    parser.write(out)
    return out.getvalue()
