"""Functions of the loader: the functions and data of the current call."""

from collections.abc import MutableMapping

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


class _Renderers(MutableMapping):
    """The renderers by name: those that code has put there, the user's and Brine's."""

    NAMES = ("gpg", "jinja", "json", "mako", "py", "pyobjects", "stateconf", "text", "toml", "yaml", "yamlex")

    def __init__(self):
        self._set = {}

    def __setitem__(self, name, function):
        self._set[name] = function

    def __delitem__(self, name):
        del self._set[name]

    def __iter__(self):
        own = [n.rpartition(".")[0] for n in _helper.LOADERS["renderers"].all()] if "renderers" in _helper.LOADERS else []
        return iter(sorted({*self._set, *own, *self.NAMES}))

    def __len__(self):
        return len(list(iter(self)))

    def __contains__(self, name):
        return name in list(iter(self))

    def __getitem__(self, name):
        if name in self._set:
            return self._set[name]
        if name not in self:
            raise KeyError(name)
        own = _helper.LOADERS["renderers"].find(name + ".render", True) if "renderers" in _helper.LOADERS else None
        if own is not None:
            return own

        def render(data, saltenv="base", sls="", tmplpath="", context=None, **_):
            text = data.read() if hasattr(data, "read") else data
            return _helper.ordered(_helper.pipe.ask("render", name, text, saltenv, tmplpath or "", dict(context or {})))
        return render


def render(opts=None, functions=None, *_, **__):
    """Return the renderers."""
    return _Renderers()
