"""YAML, read and written by Brine, so that no library is needed."""

import brine_helper as _helper


class YAMLError(Exception):
    """A text is not YAML."""


ScannerError = ParserError = ConstructorError = RepresenterError = YAMLError


def safe_load(stream, Loader=None):
    """Return the value of a text or a file."""
    if hasattr(stream, "read"):
        stream = stream.read()
    if isinstance(stream, bytes):
        stream = stream.decode("utf-8")
    try:
        return _helper.pipe.ask("yaml_load", stream)
    except Exception as exc:
        raise YAMLError(str(exc))


load = safe_load


def safe_dump(data, stream=None, **kwargs):
    """Return a value as text, or write it to a file."""
    block = kwargs.get("default_flow_style", False) is False
    text = _helper.pipe.ask("yaml_dump", _helper.wrap(data), block)
    if stream is None:
        return text
    stream.write(text)
    return None


dump = safe_dump


class SaltYamlSafeLoader:
    """A name for code that passes a loader on."""


SafeLoader = Loader = BaseLoader = SaltYamlSafeLoader


class SafeOrderedDumper:
    """A name for code that passes a dumper on."""


OrderedDumper = IndentedSafeOrderedDumper = SafeOrderedDumper


def get_dumper(dumper_name):
    """Return a dumper."""
    return SafeOrderedDumper
