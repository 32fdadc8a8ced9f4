"""Clients for code that runs inside of Brine's helper."""

import salt
import brine_helper as _helper
from salt.exceptions import SaltClientError


class Caller:
    """Calls functions of this minion."""

    def __init__(self, c_path=None, mopts=None):
        if _helper.frame().vars.get("host"):
            import brine_host
            self._minion = brine_host.Minion(c_path or (mopts or {}).get("conf_file"))
            self.opts = mopts or self._minion.options()
        else:
            self.opts = dict(_helper.frame().tree("opts"))
        self.sminion = self

    @property
    def functions(self):
        """The functions by name."""
        return getattr(self, "_minion", None) or _helper.GLOBALS["__salt__"]

    def cmd(self, fun, *args, **kwargs):
        """Call a function."""
        return self.functions[fun](*args, **kwargs)

    function = cmd


class LocalClient:
    """Commands the minions of the master on this machine."""

    def __init__(self, c_path=None, mopts=None, **_):
        if _helper.frame().vars.get("host"):
            import brine_host
            brine_host.use(mopts)
            self.opts = brine_host.options(None if mopts else c_path)
        else:
            self.opts = dict(_helper.frame().tree("opts"))

    def cmd(self, tgt, fun, arg=(), timeout=None, tgt_type="glob", ret="", jid="", full_return=False,
            kwarg=None, **kwargs):
        """Run a function on minions and return their results by id."""
        given = kwargs.pop("expr_form", None)
        if given:
            tgt_type = given
        if _helper.frame().vars.get("bus"):
            _, _, found = self._send(tgt, fun, arg, tgt_type, ret, jid, kwarg, timeout, kwargs)
            return found if full_return else {k: v["ret"] for k, v in found.items()}
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

    @staticmethod
    def _job(tgt, fun, arg, tgt_type, ret, jid, kwarg, timeout, more):
        """Return the description of a job."""
        arg = [arg] if isinstance(arg, str) else list(arg or ())
        if kwarg:
            arg.append(dict(kwarg, __kwarg__=True))
        if isinstance(tgt, (list, tuple)) and tgt_type == "glob":
            tgt_type = "list"
        more = more or {}
        creds = {k: more[k] for k in ("eauth", "username", "password", "token") if more.get(k)}
        own = {k: v for k, v in more.items() if k in (
            "delimiter", "metadata", "ret_config", "ret_kwargs", "module_executors", "executor_opts", "user")}
        job = _helper.wrap({"tgt": tgt, "fun": list(fun) if isinstance(fun, tuple) else fun, "arg": arg, "tgt_type": tgt_type, "ret": ret or "",
                            "jid": jid or "", "kwargs": own, "creds": creds})
        if timeout:
            job["timeout"] = timeout
        return job

    @staticmethod
    def _send(tgt, fun, arg=(), tgt_type="glob", ret="", jid="", kwarg=None, timeout=None, more=None, wait=True):
        """Send a job; return its id, the minions that are meant and, unless wait is false, what each returned."""
        job = LocalClient._job(tgt, fun, arg, tgt_type, ret, jid, kwarg, timeout, more)
        job["wait"] = wait
        jid, minions, found = _helper.pipe.ask("command", job)
        if not minions:
            print("No minions matched the target. No command was sent, no jid was assigned.")
        return jid, minions, found or {}

    def cmd_async(self, tgt, fun, arg=(), tgt_type="glob", ret="", jid="", kwarg=None, listen=False, **kwargs):
        """Start a function on minions and return the id of the job, or 0 if there are none."""
        return self._send(tgt, fun, arg, tgt_type, ret, jid, kwarg, None, kwargs, wait=False)[0] or 0

    def run_job(self, tgt, fun, arg=(), tgt_type="glob", ret="", timeout=None, jid="", kwarg=None, listen=False, **kwargs):
        """Start a function on minions and return the id of the job and the minions."""
        jid, minions, _ = self._send(tgt, fun, arg, tgt_type, ret, jid, kwarg, timeout, kwargs, wait=False)
        return {"jid": jid, "minions": minions} if minions else {}

    def gather_minions(self, tgt, expr_form):
        """Return the minions that a target matches, by what the master knows of them."""
        import salt.utils.minions
        return salt.utils.minions.CkMinions(self.opts).check_minions(tgt, tgt_type=expr_form)["minions"]

    def cmd_full_return(self, tgt, fun, arg=(), timeout=None, tgt_type="glob", ret="", verbose=False, kwarg=None, **kwargs):
        """Run a function on minions and return all that they returned, by id."""
        found = self.cmd(tgt, fun, arg, timeout, tgt_type, ret, kwarg=kwarg, full_return=True, **kwargs)
        return {minion: dict({k: v for k, v in one.items() if k in ("ret", "out")}, success=not one.get("retcode"))
                for minion, one in found.items()}

    def cmd_subset(self, tgt, fun, arg=(), tgt_type="glob", ret="", kwarg=None, subset=3, cli=False, progress=False, full_return=False, **kwargs):
        """Run a function on some of the minions, chosen by chance."""
        import random
        _, minions, _ = self._send(tgt, "test.ping", (), tgt_type, wait=False)
        chosen = random.sample(minions, min(subset, len(minions)))
        call = self.cmd_cli if cli else self.cmd
        return call(chosen, fun, arg, tgt_type="list", ret=ret, kwarg=kwarg, full_return=full_return, **kwargs)

    def cmd_batch(self, tgt, fun, arg=(), tgt_type="glob", ret="", kwarg=None, batch="10%", **kwargs):
        """Run a function on a part of the minions at a time, and yield the results one by one."""
        _, minions, _ = self._send(tgt, "test.ping", (), tgt_type, wait=False)
        text = str(batch)
        size = len(minions) * float(text[:-1]) / 100 if text.endswith("%") else float(text)
        size = max(int(size), 1)
        for start in range(0, len(minions), size):
            found = self.cmd(sorted(minions)[start:start + size], fun, arg, tgt_type="list", ret=ret, kwarg=kwarg, full_return=True)
            for minion, result in found.items():
                yield {minion: result if kwargs.get("raw") else result["ret"]}

    def cmd_iter(self, tgt, fun, arg=(), timeout=None, tgt_type="glob", ret="", kwarg=None, **kwargs):
        """Yield what each minion returns as soon as it does."""
        if not _helper.frame().vars.get("bus"):
            for minion, result in self.cmd(tgt, fun, arg, timeout, tgt_type, ret, kwarg=kwarg, full_return=True, **kwargs).items():
                yield {minion: result}
            return
        tgt_type = kwargs.pop("expr_form", None) or tgt_type
        _, minions, number = _helper.pipe.ask("start", self._job(tgt, fun, arg, tgt_type, ret, kwargs.pop("jid", ""), kwarg, timeout, kwargs))
        if not minions:
            print("No minions matched the target. No command was sent, no jid was assigned.")
        try:
            while True:
                found = _helper.pipe.ask("next", number)
                if found is None:
                    return
                yield {found[0]: found[1]}
        finally:
            _helper.pipe.ask("next", number, True)

    cmd_iter_no_block = cmd_cli = cmd_iter

    def pub(self, tgt, fun, arg=(), tgt_type="glob", ret="", jid="", timeout=5, listen=False, **kwargs):
        """Start a function on minions and return the id of the job and the minions, or an empty dict."""
        return self.run_job(tgt, fun, arg, tgt_type, ret, timeout, jid, **kwargs)

    def get_cache_returns(self, jid):
        """Return what minions have returned so far for a job, by id."""
        found = _helper.GLOBALS["__runner__"]["jobs.list_job"](jid)
        return {minion: {"ret": one.get("return")} for minion, one in (found.get("Result") or {}).items()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def destroy(self):
        """Do nothing: there is no connection."""


def get_local_client(c_path=None, mopts=None, *_, **__):
    """Return a LocalClient."""
    return LocalClient(c_path, mopts)

__getattr__ = salt._parts_of(__name__)
