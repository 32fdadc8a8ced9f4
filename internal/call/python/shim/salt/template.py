"""Rendering of texts."""

import brine_helper as _helper


def compile_template(template, renderers=None, default="jinja|yaml", blacklist=None, whitelist=None,
                     saltenv="base", sls="", input_data="", **kwargs):
    """Render a file, or input_data, by a pipe of renderers."""
    source = {"string": input_data} if template == ":string:" else {"path": template}
    return _helper.ordered(_helper.GLOBALS["__salt__"]["slsutil.renderer"](default_renderer=default, **source, **kwargs))


def compile_template_str(template, renderers=None, default="jinja|yaml", blacklist=None, whitelist=None):
    """Render a text by a pipe of renderers."""
    return compile_template(":string:", renderers, default, blacklist, whitelist, input_data=template)
