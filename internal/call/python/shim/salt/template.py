"""Rendering of texts."""

import brine_helper as _helper


def compile_template(template, renderers=None, default="jinja|yaml", blacklist=None, whitelist=None,
                     saltenv="base", sls="", input_data="", **kwargs):
    """Render a file, or input_data, by a pipe of renderers."""
    if template == ":string:":
        return _helper.GLOBALS["__salt__"]["slsutil.renderer"](string=input_data, default_renderer=default, **kwargs)
    return _helper.GLOBALS["__salt__"]["slsutil.renderer"](template, default_renderer=default, **kwargs)
