"""Calls of runners."""

import brine_helper as _helper


class RunnerClient:
    """Calls runners of this master."""

    def __init__(self, opts=None, *_, **__):
        self.opts = opts

    @property
    def functions(self):
        """The runners by name."""
        return _helper.GLOBALS["__runner__"]

    def cmd(self, fun, arg=None, pub_data=None, kwarg=None, print_event=True, full_return=False):
        """Call a runner."""
        return self.functions[fun](*(arg or ()), **(kwarg or {}))


class Runner(RunnerClient):
    """The same, with the function in the options."""

    def run(self, full_return=False):
        """Call the runner that the options name."""
        return self.cmd(self.opts["fun"], self.opts.get("arg"))
