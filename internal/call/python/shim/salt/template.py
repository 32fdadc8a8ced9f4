"""Rendering of texts."""

import io
import logging
import os

import brine_helper as _helper

log = logging.getLogger(__name__)


def compile_template(template, renderers=None, default="jinja|yaml", blacklist=None, whitelist=None,
                     saltenv="base", sls="", input_data="", context=None, **kwargs):
    """Render a file, or input_data, by a pipe of renderers."""
    if template != ":string:":
        if not isinstance(template, str):
            log.error("Template was specified incorrectly: %s", template)
            return {}
        if not os.path.isfile(template):
            log.error("Template does not exist: %s", template)
            return {}
        with open(template, encoding="utf-8") as file:
            input_data = file.read()
        if not input_data.strip():
            log.debug("Template is an empty file: %s", template)
            return {}
    if renderers is None:
        import salt.loader
        renderers = salt.loader.render()
    steps = template_shebang(template, renderers, default, blacklist, whitelist, input_data)
    data = io.StringIO(input_data) if isinstance(input_data, str) else input_data
    place = dict(kwargs, renderers=renderers, tmplpath=template)
    if context:
        place["context"] = context
    while steps:
        own = 0  # the next steps that Brine does at once
        while own < len(steps) and hasattr(steps[own][0], "brine"):
            own += 1
        if own > 1 and (isinstance(data, str) or hasattr(data, "read")):
            text = data.read() if hasattr(data, "read") else data
            if text.startswith("#!"):
                text = text.partition("\n")[1] + text.partition("\n")[2]
            pipe = "|".join((step.brine + " " + argline).strip() for step, argline in steps[:own])
            path = "" if template == ":string:" else template
            data, steps = _helper.ordered(_helper.ask_render(pipe, text, saltenv, path, context)), steps[own:]
            continue
        function, argline = steps.pop(0)
        if hasattr(data, "seek"):
            data.seek(0)
        data = function(data, saltenv, sls, **(dict(place, argline=argline) if argline else place))
    return data.read() if hasattr(data, "read") else data


def compile_template_str(template, renderers=None, default="jinja|yaml", blacklist=None, whitelist=None):
    """Render a text by a pipe of renderers."""
    return compile_template(":string:", renderers, default, blacklist, whitelist, input_data=template)


def template_shebang(template, renderers, default, blacklist, whitelist, input_data):
    """Return the renderers that the first line of a text names, or those of the default."""
    line = input_data.lstrip("\n").partition("\n")[0] if isinstance(input_data, str) else ""
    steps = []
    if line.startswith("#!") and not line.startswith("#!/"):
        steps = check_render_pipe_str(line.strip()[2:], renderers, blacklist, whitelist)
    return steps or check_render_pipe_str(default, renderers, blacklist, whitelist)


def check_render_pipe_str(pipestr, renderers, blacklist, whitelist):
    """Return the renderers of a pipe with their arguments, without those that the lists forbid; none if one is unknown."""
    steps = []
    for part in (p.strip() for p in pipestr.split("|")):
        name, _, argline = part.partition(" ")
        if name not in renderers:
            log.error("The renderer %s is not available", name)
            return []
        if whitelist and name not in whitelist or blacklist and name in blacklist:
            log.warning("The renderer %s is disallowed by configuration and will be skipped.", name)
            continue
        steps.append((renderers[name], argline.strip()))
    return steps
