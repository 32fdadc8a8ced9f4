"""Functions of the loader: the functions and data of the current call."""

from collections.abc import Mapping, MutableMapping

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


class _Matchers(Mapping):
    """The functions that match a target with the minion that options describe."""

    DATA = ("grain", "grain_pcre", "pillar", "pillar_pcre", "pillar_exact", "data")
    PLAIN = ("compound", "compound_pillar_exact", "glob", "ipcidr", "list", "pcre", "range")

    def __init__(self, opts):
        self.opts = opts

    def __iter__(self):
        return iter(sorted([n + "_match.match" for n in self.DATA + self.PLAIN + ("nodegroup",)] + ["confirm_top.confirm_top"]))

    def __len__(self):
        return len(self.DATA + self.PLAIN) + 2

    def __getitem__(self, name):
        if name == "confirm_top.confirm_top":
            return self.confirm_top
        kind, _, rest = name.partition("_match.")
        if rest != "match" or kind not in self.DATA + self.PLAIN + ("nodegroup",):
            raise KeyError(name)
        if kind == "nodegroup":
            return lambda tgt, nodegroups=None, opts=None, minion_id=None: self._match(kind, tgt, ":", opts, minion_id, nodegroups)
        if kind in self.DATA:
            return lambda tgt, delimiter=":", opts=None, minion_id=None: self._match(kind, tgt, delimiter, opts, minion_id)
        return lambda tgt, opts=None, minion_id=None: self._match(kind, tgt, ":", opts, minion_id)

    def _match(self, kind, tgt, delimiter, opts, minion_id, nodegroups=None):
        opts = opts or self.opts or _helper.frame().tree("opts")
        grains, pillar = opts.get("grains"), opts.get("pillar")
        if nodegroups is None:
            nodegroups = opts.get("nodegroups")
        wrapped = _helper.wrap((kind, tgt, delimiter, minion_id or opts.get("id"), grains, pillar, nodegroups))
        return _helper.pipe.ask("match", *wrapped)

    def confirm_top(self, match, data, nodegroups=None):
        """Report whether the target of an entry of a top file, with its list, matches."""
        kind = "compound"
        for item in data:
            if isinstance(item, dict) and "match" in item:
                kind = item["match"]
        function = self[kind + "_match.match"]
        return function(match, nodegroups) if kind == "nodegroup" else function(match)


def matchers(opts=None):
    """Return the functions that match targets."""
    return _Matchers(opts)


class _Chosen(Mapping):
    """Modules by name, each of which is one function of them."""

    def __init__(self, functions, suffix):
        self.functions, self.suffix = functions, suffix

    def __getitem__(self, name):
        return self.functions[name + self.suffix]

    def __iter__(self):
        return (name[:-len(self.suffix)] for name in self.functions if name.endswith(self.suffix))

    def __len__(self):
        return len(list(iter(self)))


def pillars(opts=None, functions=None, *_, **__):
    """Return the user's sources of pillar data: their function ext_pillar by name."""
    return _Chosen(_helper.Functions("pillar"), ".ext_pillar")


class _Outputters(Mapping):
    """The outputters by name: the user's and Brine's."""

    def __init__(self, opts):
        self.opts, self.own, self.names = opts, _Chosen(_helper.Functions("outputters"), ".output"), _helper.pipe.ask("outputters")

    def __iter__(self):
        return iter(sorted({*self.own, *self.names}))

    def __len__(self):
        return len(list(iter(self)))

    def __getitem__(self, name):
        if name in self.own:
            return self.own[name]
        if name not in self.names:
            raise KeyError(name)
        import salt.output
        return salt.output.get_printout(name, {k: v for k, v in dict(self.opts or {}).items() if k != "output"})


def outputters(opts=None, *_, **__):
    """Return the outputters: their function output by name."""
    return _Outputters(opts)


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

        if name == "py":
            return _render_py

        def render(data, saltenv="base", sls="", argline="", tmplpath="", context=None, **_):
            text = data.read() if hasattr(data, "read") else data
            if text.startswith("#!"):
                text = text.partition("\n")[1] + text.partition("\n")[2]  # it names the pipe, of which this is a part
            pipe = name + " " + argline if argline else name
            return _helper.ordered(_helper.ask_render(pipe, text, saltenv, tmplpath or "", context))
        render.brine = name
        return render


def _render_py(data, saltenv="base", sls="", tmplpath="", **values):
    """Run the function run of a text, which has the other arguments among its globals."""
    text = data.read() if hasattr(data, "read") else data
    return _helper.run_source(text, tmplpath or "", dict(values, saltenv=saltenv, sls=sls))


def render(opts=None, functions=None, *_, **__):
    """Return the renderers."""
    return _Renderers()
