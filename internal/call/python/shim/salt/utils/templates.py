"""Templates, rendered by Brine."""

import brine_helper as _helper


def render_jinja_tmpl(tmplstr, context=None, tmplpath=None, **_):
    """Render a Jinja template."""
    context = dict(context or {})
    saltenv = context.get("saltenv") or "base"
    plain = {k: v for k, v in context.items() if k not in ("salt", "grains", "pillar", "opts")}
    return _helper.ask_render("jinja", tmplstr, saltenv, tmplpath, plain)


def wrap_tmpl_func(render):
    """Return a function that renders a text or a file."""
    def wrapped(source, from_str=False, context=None, **kwargs):
        if not from_str:
            with open(source, encoding="utf-8") as file:
                source = file.read()
        return {"result": True, "data": render(source, context=dict(context or {}, **kwargs))}
    return wrapped


JINJA = wrap_tmpl_func(render_jinja_tmpl)
TEMPLATE_REGISTRY = {"jinja": JINJA}
