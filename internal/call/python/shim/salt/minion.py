"""What modules use of the minion's code."""

import brine_helper as _helper


class MasterMinion:
    """Gives the functions."""

    def __init__(self, opts=None, *_, **__):
        self.opts = opts

    @property
    def functions(self):
        """The functions by name."""
        return _helper.GLOBALS["__salt__"]


SMinion = MasterMinion
