"""Minions of a master."""

import brine_helper as _helper


class CkMinions:
    """Finds minions by targets."""

    def __init__(self, opts=None):
        self.opts = opts

    def check_minions(self, expr, tgt_type="glob", delimiter=":", greedy=True):
        """Return the minions that a target matches, by what the master knows of them."""
        found = _helper.GLOBALS["__runner__"]["cache.grains"](tgt=expr, tgt_type=tgt_type)
        return {"minions": sorted(found), "missing": [], "ssh_minions": False}
