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


_OPTIONS = ("default_flow_style", "indent", "width", "allow_unicode", "explicit_start", "explicit_end", "default_style", "canonical")
_TAG, _SAME, _VALUE = "\0tag", "\0same", "\0value"
_SCALARS = (str, bytes, int, float, bool, type(None))


class _Unusual(Exception):
    """An object that only PyYAML itself writes."""


class _Writer:
    """Makes what Brine writes of a value: dicts with _TAG in place of what YAML lacks, and with _SAME around a list or dict that occurs
    more than once."""

    def __init__(self, python, sort):
        self.python, self.sort, self.seen, self.numbers, self.depth = python, sort, set(), {}, 0

    def find(self, value, depth=0):
        """Number the containers that occur more than once."""
        if type(value) in _SCALARS or value == () or depth > _helper.DEEP:
            return
        number = id(value)
        if number in self.seen:
            self.numbers.setdefault(number, len(self.numbers) + 1)
            return
        self.seen.add(number)
        items = ()
        if isinstance(value, dict):
            items = [part for item in value.items() for part in item]
        elif isinstance(value, (list, tuple)):
            items = value
        for item in items:
            self.find(item, depth + 1)

    def mapping(self, value, sort):
        """Return a dict, with its keys in order if they have one."""
        items = list(value.items())
        if sort and self.sort:
            try:
                items.sort(key=lambda item: item[0])
            except TypeError:
                pass  # keys of several types have no order
        return {self.key(k): self.write(v) for k, v in items}

    def key(self, key):
        """Return a key, which has to be one here, too."""
        if type(key) in _SCALARS:
            return key
        if type(key) is tuple and not self.python:
            return tuple(map(self.key, key))
        if self.python:
            raise _Unusual
        return _helper.wrap(key)

    def write(self, value):
        """Return what Brine gets."""
        if type(value) in _SCALARS:
            return value
        if self.depth > _helper.DEEP:
            raise _helper.Refusal("a value is nested more than {} levels deep".format(_helper.DEEP))
        self.depth += 1
        written = self.whole(value)
        self.depth -= 1
        number = self.numbers.get(id(value))
        return {_SAME: number, _VALUE: written} if number and isinstance(value, (dict, list)) else written

    def whole(self, value):
        """Return what Brine gets of a value other than a scalar."""
        kind = type(value)
        name = kind.__name__
        if kind is list or kind is tuple and not self.python:
            return [self.write(v) for v in value]
        if kind is dict or name == "defaultdict" and not self.python or name == "NamespacedDictWrapper":
            return self.mapping(value, True)
        if name in ("OrderedDict", "HashableOrderedDict") and not self.python:
            return self.mapping(value, False)
        if kind is tuple:
            return {_TAG: "!!python/tuple", _VALUE: [self.write(v) for v in value]}
        if kind is set:
            return {_TAG: "!!set", _VALUE: self.mapping(dict.fromkeys(value), True)}
        if name in ("datetime", "date") and kind.__module__ == "datetime":
            return value if getattr(value, "tzinfo", None) is None else {_TAG: "timestamp", _VALUE: value.isoformat(" ")}
        if self.python:
            raise _Unusual
        return {_TAG: "null", _VALUE: None}


def _dump(data, stream, kwargs, python):
    """Write a value as text."""
    writer = _Writer(python, kwargs.get("sort_keys", True))
    writer.find(data)
    options = {name: kwargs[name] for name in _OPTIONS if kwargs.get(name) is not None}
    options.setdefault("allow_unicode", True)
    options["sort_keys"] = False
    try:
        text = _helper.pipe.ask("yaml_dump", _helper.wrap(writer.write(data)), options, python)
    except _Unusual:
        try:
            import yaml
        except ImportError:
            return _dump(data, stream, kwargs, False)
        return yaml.dump(data, stream, **dict({"allow_unicode": True, "default_flow_style": None}, **kwargs))
    if stream is None:
        return text
    stream.write(text)
    return None


def safe_dump(data, stream=None, **kwargs):
    """Return a value as text, or write it to a file. Only lists and dicts that contain neither are written in one line, unless
    default_flow_style says otherwise. An object that YAML lacks is NULL."""
    return _dump(data, stream, kwargs, False)


def dump(data, stream=None, **kwargs):
    """Return a value as text, or write it to a file, with tags for Python's own types. Those of further classes are written by PyYAML
    if it is there."""
    name = getattr(kwargs.pop("Dumper", None), "__name__", "Dumper")
    return _dump(data, stream, kwargs, "Safe" not in name)


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
