"""Compiles SLS files by stock Salt for one minion, whose data comes from a master's cache.

Reads a request in JSON from stdin and prints the lowstates. Of execution functions it runs
those alone that neither look at a machine nor change one; a template that wants another one
is not compiled.
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
import salt.version


class Machine(Exception):
    pass


class Functions(dict):
    """The functions that templates see."""

    def __init__(self, real, pure):
        super().__init__()
        self.real, self.pure, self.wanted = real, pure, []

    def _is_pure(self, name):
        module, _, function = name.partition(".")
        return function in self.pure.get(module, ())

    def __getitem__(self, name):
        found = self.real[name]
        if self._is_pure(name):
            return found

        def stub(*args, **kwargs):
            self.wanted.append(name)
            raise Machine(name)

        return stub

    def get(self, name, default=None):
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name):
        return name in self.real

    def __iter__(self):
        return iter(self.real)

    def __len__(self):
        return len(self.real)

    def keys(self):
        return self.real.keys()

    def items(self):
        return [(k, self[k]) for k in self.real]

    def __getattr__(self, module):
        if module.startswith("_"):
            raise AttributeError(module)
        outer = self

        class Module:
            def __getattr__(self, name):
                return outer[module + "." + name]

        return Module()


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
state.rend = salt.loader.render(opts, functions, states=state.states, context=context)

compiled = []
for env, sls in request["sls"]:
    functions.wanted.clear()
    high_state.building_highstate.clear()
    try:
        low, faults = compile_sls(high_state, env, sls)
    except Exception as e:  # pylint: disable=broad-except
        low, faults = None, [repr(e)]
    compiled.append({"machine": bool(functions.wanted), "low": low, "faults": [str(f) for f in faults]})


def plain(v):
    return list(v) if isinstance(v, (set, tuple)) else str(v)


json.dump({"version": salt.version.__version__, "compiled": compiled}, stdout, default=plain)
stdout.flush()
os._exit(0)
