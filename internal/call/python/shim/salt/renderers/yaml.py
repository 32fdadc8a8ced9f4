"""The renderer yaml."""

import brine_helper as _helper


def get_yaml_loader(argline):
    """Return what makes a loader of PyYAML for a text."""
    from collections import OrderedDict
    from salt.utils.yaml import SaltYamlSafeLoader
    return lambda *args: SaltYamlSafeLoader(*args, dictclass=OrderedDict)


def render(data, saltenv="base", sls="", argline="", context=None, tmplpath=None, **kwargs):
    """Render a text."""
    if hasattr(data, "read"):
        data = data.read()
    return _helper.ask_render("yaml", data, saltenv, tmplpath, dict(context or {}, **kwargs))
