"""YAML, read and written by Brine, so that no library is needed."""

import brine_helper as _helper


class YAMLError(Exception):
    """A text is not YAML."""


ScannerError = ParserError = ConstructorError = RepresenterError = YAMLError


class scanner:  # pylint: disable=invalid-name
    """PyYAML's modules, for code that catches their errors."""

    ScannerError = ParserError = ConstructorError = RepresenterError = MarkedYAMLError = YAMLError


parser = constructor = representer = error = scanner


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


def _sorted(value):
    """Return a value with the keys of its dicts in order, but for those of other kinds of mappings."""
    if isinstance(value, (list, tuple)):
        return [_sorted(v) for v in value]
    if not isinstance(value, dict):
        return value
    items = list(value.items())
    if type(value) is dict or type(value).__name__ == "defaultdict":
        try:
            items.sort(key=lambda item: item[0])
        except TypeError:
            pass  # keys of several types have no order
    return {k: _sorted(v) for k, v in items}


_OPTIONS = ("default_flow_style", "indent", "width", "allow_unicode", "explicit_start", "explicit_end", "default_style", "canonical")


def safe_dump(data, stream=None, **kwargs):
    """Return a value as text, or write it to a file. Only lists and dicts that contain neither are written in one line, unless
    default_flow_style says otherwise."""
    if kwargs.get("sort_keys", True):
        data = _sorted(data)
    options = {name: kwargs[name] for name in _OPTIONS if kwargs.get(name) is not None}
    options.setdefault("allow_unicode", True)
    options["sort_keys"] = False
    text = _helper.pipe.ask("yaml_dump", _helper.wrap(data), options)
    if stream is None:
        return text
    stream.write(text)
    return None


dump = safe_dump


_LOADERS = ("SaltYamlSafeLoader", "SafeLoader", "Loader", "BaseLoader")
_DUMPERS = ("SafeOrderedDumper", "OrderedDumper", "IndentedSafeOrderedDumper")


def __getattr__(name):
    """Make the classes that code passes to PyYAML, when they are asked for: PyYAML is slow to import."""
    if name in _LOADERS:
        made = _loader()
    elif name in _DUMPERS:
        made = _dumper()
    else:
        raise AttributeError(name)
    names = _LOADERS if name in _LOADERS else _DUMPERS
    globals().update({n: made for n in names})
    return made


def _loader():
    try:
        import yaml
    except ImportError:
        return type("SaltYamlSafeLoader", (), {"__doc__": "A name for code that passes a loader on."})

    class SaltYamlSafeLoader(yaml.SafeLoader):
        """PyYAML's loader, which keeps timestamps as text and refuses a key that is there twice, as Salt's."""

        def __init__(self, stream, dictclass=dict):
            super().__init__(stream)
            self.dictclass = dictclass

        def construct_mapping(self, node, deep=False):
            if not isinstance(node, yaml.MappingNode):
                return super().construct_mapping(node, deep)
            self.flatten_mapping(node)
            mapping = self.dictclass()
            for key_node, value_node in node.value:
                key = self.construct_object(key_node, deep=deep)
                try:
                    there = key in mapping
                except TypeError:
                    raise yaml.constructor.ConstructorError(
                        "while constructing a mapping", node.start_mark, "found unacceptable key {}".format(key),
                        key_node.start_mark)
                if there:
                    raise yaml.constructor.ConstructorError(
                        "while constructing a mapping", node.start_mark, "found conflicting ID '{}'".format(key),
                        key_node.start_mark)
                mapping[key] = self.construct_object(value_node, deep=deep)
            return mapping

        def construct_whole(self, node):
            """Construct a mapping with all that is in it."""
            return self.construct_mapping(node, deep=True)

        def construct_text(self, node):
            """Construct a scalar as text."""
            return self.construct_scalar(node)

    SaltYamlSafeLoader.add_constructor("tag:yaml.org,2002:map", SaltYamlSafeLoader.construct_whole)
    for tag in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:python/unicode", "!unicode"):
        SaltYamlSafeLoader.add_constructor(tag, SaltYamlSafeLoader.construct_text)
    return SaltYamlSafeLoader


def _dumper():
    try:
        import yaml
    except ImportError:
        return type("SafeOrderedDumper", (), {"__doc__": "A name for code that passes a dumper on."})
    import collections

    class SafeOrderedDumper(yaml.SafeDumper):
        """PyYAML's dumper, which writes ordered mappings as plain ones."""

    SafeOrderedDumper.add_multi_representer(
        collections.OrderedDict, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", list(data.items())))
    return SafeOrderedDumper


def get_dumper(dumper_name):
    """Return a dumper."""
    return __getattr__("SafeOrderedDumper")
