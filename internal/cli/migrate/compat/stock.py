"""Compiles SLS files by stock Salt for one minion, whose data comes from a master's cache.

Reads a request in JSON from stdin and prints the lowstates. Of execution functions it runs
those alone that neither look at a machine nor change one; a template that wants another one,
or a renderer that can run programs, is not compiled. This is no sandbox: templates reach
objects of Salt through which a hostile tree can do what this process can. So the program
that starts this one asks for leave.
"""
import json
import logging
import os
import sys
import types

request = json.load(sys.stdin)
stdout = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what Salt prints is no answer
logging.disable(logging.CRITICAL)

import salt.config
import salt.loader
import salt.state
import salt.utils.decorators.jinja
import salt.utils.sdb
import salt.version


class Machine(Exception):
    pass


class Functions(dict):
    """The functions that templates see, which see no attribute with an underscore."""

    def __init__(self, real, pure):
        super().__init__()
        self._real, self._pure, self._wanted = real, pure, []

    def _is_pure(self, name):
        module, _, function = name.partition(".")
        return function in self._pure.get(module, ())

    def __getitem__(self, name):
        found = self._real[name]

        def call(*args, **kwargs):  # found has attributes by which to call others
            if self._is_pure(name):
                return found(*args, **kwargs)
            self._wanted.append(name)
            raise Machine(name)

        return call

    def get(self, name, default=None):
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name):
        return name in self._real

    def __iter__(self):
        return iter(self._real)

    def __len__(self):
        return len(self._real)

    def keys(self):
        return self._real.keys()

    def items(self):
        return [(k, self[k]) for k in self._real]

    def __getattr__(self, module):
        if module.startswith("_"):
            raise AttributeError(module)
        outer = self

        class Module:
            def __getattr__(self, name):
                return outer[module + "." + name]

        return Module()


class Renderers(dict):
    """The renderers that run nothing."""

    def __init__(self, real, wanted):
        super().__init__()
        self._real, self._wanted = real, wanted

    def __getitem__(self, name):
        if name not in ("jinja", "json", "text", "yaml"):
            self._wanted.append(name)
            raise Machine(name)
        return self._real[name]


class Filter:
    """A filter that would look at the machine or connect to others."""

    def __init__(self, name, wanted):
        self._name, self._wanted = name, wanted

    def __call__(self, *args, **kwargs):
        self._wanted.append(self._name)
        raise Machine(self._name)


def compile_sls(high_state, env, sls):
    high, errors = high_state.render_highstate({env: [sls]})
    if errors:
        return None, errors
    state = high_state.state
    high, errors = state.reconcile_extend(high)
    errors += state.verify_high(high)
    if errors:
        return None, errors
    high, errors = state.requisite_in(high)
    if errors:
        return None, errors
    high = state.apply_exclude(high)
    low = state.compile_high_data(high)
    if isinstance(low, tuple):  # 3007 and later return the errors, too
        low, errors = low
        if errors:
            return None, errors
    return low, []


opts = salt.config.DEFAULT_MINION_OPTS.copy()
opts.update(
    id=request["id"], file_client="local", file_roots=request["file_roots"], pillar_roots={"base": []}, grains=request["grains"],
    pillar=request["pillar"], fileserver_backend=["roots"], fileserver_followsymlinks=True, fileserver_ignoresymlinks=False, __role="minion",
    master_tops={}, state_events=False, ext_pillar=[], master_uri="", saltversion=salt.version.__version__,
)
opts.update(request["opts"])
root = request["dir"]
for key in ("cachedir", "sock_dir", "pki_dir", "extension_modules", "conf_dir"):
    opts[key] = os.path.join(root, key)
    os.makedirs(opts[key], exist_ok=True)
opts["root_dir"] = root
opts["conf_file"] = os.path.join(opts["conf_dir"], "minion")

high_state = salt.state.HighState(opts, initial_pillar=request["pillar"])
state = high_state.state
functions = Functions(state.functions, request["pure"])
context = {}
state.rend = Renderers(salt.loader.render(opts, functions, states=state.states, context=context), functions._wanted)
filters = salt.utils.decorators.jinja.JinjaFilter.salt_jinja_filters
for name in request["filters"]:
    filters[name] = Filter(name, functions._wanted)
salt.utils.sdb.sdb_get = lambda uri, *args, **kwargs: uri

compiled = []
for env, sls in request["sls"]:
    functions._wanted.clear()
    high_state.building_highstate.clear()
    try:
        low, faults = compile_sls(high_state, env, sls)
    except Exception as e:  # pylint: disable=broad-except
        low, faults = None, [repr(e)]
    compiled.append({"machine": bool(functions._wanted), "low": low, "faults": [str(f) for f in faults]})


def plain(v):
    return list(v) if isinstance(v, (set, tuple)) else str(v)


json.dump({"version": salt.version.__version__, "compiled": compiled}, stdout, default=plain)
stdout.flush()
os._exit(0)
