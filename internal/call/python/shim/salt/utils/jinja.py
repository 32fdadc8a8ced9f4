"""Texts of data in templates."""


class PrintableDict(dict):
    """A dict whose texts are shown as in Python 3."""

    def __str__(self):
        return "{" + ", ".join("{!r}: {!r}".format(k, v) for k, v in self.items()) + "}"

    def __repr__(self):
        return "{" + ", ".join("{!r}: {!r}".format(k, v) for k, v in self.items()) + "}"


def tojson(val, indent=None, **options):
    """Return data as JSON for HTML."""
    import json
    options.setdefault("sort_keys", True)
    text = json.dumps(val, indent=indent, **options)
    for char in "<>&'":
        text = text.replace(char, "\\u{:04x}".format(ord(char)))
    return text


def jinja_raise(msg):
    """Raise an error of a template."""
    from salt.exceptions import TemplateError
    raise TemplateError(msg)


def show_full_context(ctx):
    """Return the simple values of a context."""
    from salt.utils.data import simple_types_filter
    return simple_types_filter(dict(ctx.items()))


def __getattr__(name):
    """Make the class for code that passes it to Jinja's library: that is imported when it is asked for."""
    if name == "SerializerExtension":
        globals()[name] = made = _extension()
        return made
    from salt.substitutes import absent
    return absent(__name__, name)


def _extension():
    import jinja2.ext

    class SerializerExtension(jinja2.ext.Extension):
        """Filters of an environment that read and write data."""

        tags = set()

        def __init__(self, environment):
            super().__init__(environment)
            environment.filters.update({
                "yaml": self.format_yaml, "json": self.format_json, "python": self.format_python,
                "load_yaml": self.load_yaml, "load_json": self.load_json})

        def format_json(self, value, sort_keys=True, indent=None):
            """Return a value as JSON."""
            import json
            return jinja2.filters.Markup(json.dumps(value, sort_keys=sort_keys, indent=indent).strip())

        def format_yaml(self, value, flow_style=True):
            """Return a value as YAML."""
            import salt.utils.yaml
            text = salt.utils.yaml.safe_dump(value, default_flow_style=flow_style).strip()
            return jinja2.filters.Markup(text[:-len("\n...")] if text.endswith("\n...") else text)

        def format_python(self, value):
            """Return a value as Python shows it."""
            import pprint
            return jinja2.filters.Markup(pprint.pformat(value).strip())

        def load_yaml(self, value):
            """Return the value of YAML."""
            import salt.utils.yaml
            return salt.utils.yaml.safe_load(str(value))

        def load_json(self, value):
            """Return the value of JSON."""
            import json
            return json.loads(str(value))

    return SerializerExtension
