"""Calls of wheel functions."""

import brine_helper as _helper
from salt.exceptions import SaltClientError


class WheelClient:
    """Calls wheel functions of the master whose runner or wheel module this is."""

    def __init__(self, opts=None, context=None):
        self.opts, self.context = opts, context or {}
        if _helper.frame().vars.get("host"):
            import brine_host
            brine_host.use(opts)

    @property
    def functions(self):
        """The wheel functions by name."""
        return _helper.GLOBALS["__wheel__"]

    def cmd(self, fun, arg=None, pub_data=None, kwarg=None, print_event=True, full_return=False):
        """Call a wheel function."""
        function = self.functions.get(fun)
        if function is None:
            raise SaltClientError("there is no wheel function {} here: only runners and wheel modules of a master have them".format(fun))
        result = function(*(arg or ()), **(kwarg or {}))
        if print_event:
            from salt.runner import show
            show(result, self.opts)
        return {"fun": "wheel." + fun, "return": result, "success": True} if full_return else result

    def low(self, fun, low, print_event=True, full_return=False):
        """Call a function with the arguments that a dict has beside its own keys."""
        if _helper.frame().vars.get("host") and (low.get("eauth") or low.get("token")):
            answer = _helper.pipe.ask("low", dict(low, fun=fun, client="wheel"))[0]
            return answer["data"] if full_return else answer["data"]["return"]
        own = ("fun", "client", "arg", "kwarg", "eauth", "username", "password", "token", "print_event", "full_return")
        kwargs = {k: v for k, v in low.items() if k not in own and not k.startswith("__")}
        kwargs.update(low.get("kwarg") or {})
        return self.cmd(fun, low.get("arg"), kwarg=kwargs, full_return=full_return)

    def call_func(self, fun, **kwargs):
        """Call a function by keywords."""
        return self.low(fun, kwargs, full_return=kwargs.get("full_return", False))

    def cmd_sync(self, low, timeout=None, full_return=False):
        """Call the function that a dict names."""
        return self.low(low["fun"], low, full_return=full_return)


Wheel = WheelClient
