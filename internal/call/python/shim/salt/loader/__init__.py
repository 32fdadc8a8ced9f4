"""Functions of the loader: the functions and data of the current call."""

import brine_helper as _helper


def minion_mods(opts=None, *_, **__):
    """Return __salt__."""
    return _helper.GLOBALS["__salt__"]


raw_mod = minion_mods


def utils(opts=None, *_, **__):
    """Return __utils__."""
    return _helper.GLOBALS["__utils__"]


def states(opts=None, *_, **__):
    """Return __states__."""
    return _helper.GLOBALS["__states__"]


def runner(opts=None, *_, **__):
    """Return the runners."""
    return _helper.GLOBALS["__runner__"]


def returners(opts=None, *_, **__):
    """Return the user's returners."""
    return _helper.GLOBALS["__ret__"]


def serializers(opts=None, *_, **__):
    """Return the user's serializers."""
    return _helper.GLOBALS["__serializers__"]


def grains(opts=None, *_, **__):
    """Return the grains."""
    return dict(_helper.frame().tree("grains"))


class _Renderers:
    """The renderers by name."""

    def __getitem__(self, name):
        own = _helper.LOADERS["renderers"].find(name + ".render", True) if "renderers" in _helper.LOADERS else None
        if own is not None:
            return own

        def render(data, saltenv="base", sls="", tmplpath="", context=None, **_):
            text = data.read() if hasattr(data, "read") else data
            return _helper.ordered(_helper.pipe.ask("render", name, text, saltenv, tmplpath or "", dict(context or {})))
        return render

    def get(self, name, default=None):
        """Return a renderer."""
        return self[name]


def render(opts=None, functions=None, *_, **__):
    """Return the renderers."""
    return _Renderers()
