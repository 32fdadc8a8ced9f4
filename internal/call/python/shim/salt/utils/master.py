"""Data that a master has about minions."""

import brine_helper as _helper


class MasterPillarUtil:
    """Gives cached grains and pillar of minions."""

    def __init__(self, tgt="", tgt_type="glob", *_, **__):
        self.tgt, self.tgt_type = tgt, __.get("expr_form", tgt_type)

    def get_minion_grains(self):
        """Return the grains by minion."""
        return _helper.GLOBALS["__runner__"]["cache.grains"](tgt=self.tgt, tgt_type=self.tgt_type)

    def get_minion_pillar(self):
        """Return the pillar by minion."""
        return _helper.GLOBALS["__runner__"]["cache.pillar"](tgt=self.tgt, tgt_type=self.tgt_type)
