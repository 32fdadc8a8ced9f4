"""The renderer json."""

import brine_helper as _helper


def render(data, saltenv="base", sls="", argline="", context=None, tmplpath=None, **kwargs):
    """Render a text."""
    if hasattr(data, "read"):
        data = data.read()
    return _helper.ask_render("json", data, saltenv, tmplpath, dict(context or {}, **kwargs))
