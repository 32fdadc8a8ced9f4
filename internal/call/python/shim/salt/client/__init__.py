"""Clients for code that runs inside of Brine's helper."""

import salt
import brine_helper as _helper
from salt.exceptions import SaltClientError


class Caller:
    """Calls functions of this minion."""

    def __init__(self, c_path=None, mopts=None):
        self.opts = dict(_helper.frame().tree("opts"))
        self.sminion = self

    @property
    def functions(self):
        """The functions by name."""
        return _helper.GLOBALS["__salt__"]

    def cmd(self, fun, *args, **kwargs):
        """Call a function."""
        return self.functions[fun](*args, **kwargs)

    function = cmd


class LocalClient:
    """Commands the minions of the master on this machine."""

    def __init__(self, c_path=None, mopts=None, **_):
        self.opts = dict(_helper.frame().tree("opts"))

    def cmd(self, tgt, fun, arg=(), timeout=None, tgt_type="glob", ret="", jid="", full_return=False,
            kwarg=None, **kwargs):
        """Run a function on minions and return their results by id."""
        given = kwargs.pop("expr_form", None)
        if given:
            tgt_type = given
        runner, salt = _helper.GLOBALS["__runner__"], _helper.GLOBALS["__salt__"]
        if isinstance(fun, (list, tuple)):
            raise SaltClientError("Brine's helper takes one function at a time, not a list: {}".format(fun))
        options = {"timeout": timeout} if timeout else {}
        if "salt.execute" in runner:
            result = runner["salt.execute"](tgt, fun, arg=list(arg), kwarg=kwarg, tgt_type=tgt_type, **options)
            return {k: {"ret": v} for k, v in result.items()} if full_return else result
        if "saltutil.cmd" not in salt:
            raise SaltClientError("there is no master on this machine")
        result = salt["saltutil.cmd"](tgt, fun, arg=list(arg), kwarg=kwarg, tgt_type=tgt_type, **options)
        return result if full_return else {k: v["ret"] for k, v in result.items()}

    def cmd_iter(self, tgt, fun, *args, **kwargs):
        """Yield the results one by one."""
        kwargs["full_return"] = True
        for minion, result in self.cmd(tgt, fun, *args, **kwargs).items():
            yield {minion: result}

    cmd_iter_no_block = cmd_cli = cmd_iter

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def destroy(self):
        """Do nothing: there is no connection."""


def get_local_client(*_, **__):
    """Return a LocalClient."""
    return LocalClient()

__getattr__ = salt._parts_of(__name__)
