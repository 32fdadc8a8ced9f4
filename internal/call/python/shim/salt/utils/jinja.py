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
