"""Calls of runners."""

import brine_helper as _helper


def show(result, opts):
    """Show the result of a nested call, as Salt does, if the caller of the runner sees what it prints."""
    if (opts or {}).get("quiet") or not any(f.vars.get("prints") or f.vars.get("host") for f in _helper.latest):
        return
    import salt.output
    out = (opts or {}).get("output")
    if isinstance(result, dict):
        out = out or result.get("outputter")
        if set(result) == {"data", "outputter"}:
            result, out = result["data"], result["outputter"]
    salt.output.display_output(result, out, opts)


class RunnerClient:
    """Calls runners of this master."""

    def __init__(self, opts=None, *_, **__):
        self.opts = opts
        if _helper.frame().vars.get("host"):
            import brine_host
            brine_host.use(opts)

    @property
    def functions(self):
        """The runners by name."""
        return _helper.GLOBALS["__runner__"]

    def cmd(self, fun, arg=None, pub_data=None, kwarg=None, print_event=True, full_return=False):
        """Call a runner."""
        import salt.utils.args
        args, kwargs = salt.utils.args.parse_input(list(arg or ()), False, kwargs=kwarg)
        return self._run(fun, args, kwargs, full_return, print_event)

    def _run(self, fun, args, kwargs, full_return, print_event):
        result = self.functions[fun](*args, **kwargs)
        if print_event:
            show(result, self.opts)
        if full_return:
            return {"fun": "runner." + fun, "fun_args": list(args) + ([kwargs] if kwargs else []), "return": result, "success": True}
        return result

    def cmd_sync(self, low, timeout=None, full_return=False):
        """Call the runner that a dict names."""
        if _helper.frame().vars.get("host") and (low.get("eauth") or low.get("token")):
            return _helper.pipe.ask("low", dict(low, client="runner", full_return=full_return))[0]
        kwargs = dict(low.get("kwarg") or {})
        if "arg" not in low and "kwarg" not in low:
            own = ("fun", "client", "eauth", "username", "password", "token", "print_event", "full_return")
            kwargs = {k: v for k, v in low.items() if k not in own and not k.startswith("__")}
        return self._run(low["fun"], list(low.get("arg") or ()), kwargs, full_return, False)

    def low(self, fun, low, print_event=True, full_return=False):
        """Call a runner with the arguments that a dict has."""
        return self.cmd_sync(dict(low, fun=fun), full_return=full_return)


class Runner(RunnerClient):
    """The same, with the function in the options."""

    def run(self, full_return=False):
        """Call the runner that the options name."""
        return self.cmd(self.opts["fun"], self.opts.get("arg"))
