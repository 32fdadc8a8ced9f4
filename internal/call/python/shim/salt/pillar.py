"""Pillars, compiled anew."""

import brine_helper as _helper
from salt.exceptions import SaltInvocationError


class Pillar:
    """The pillar of this minion."""

    def __init__(self, opts, grains, minion_id, saltenv=None, ext=None, functions=None,
                 pillar_override=None, pillarenv=None, extra_minion_data=None):
        own = _helper.frame().tree("opts").get("id")
        self.other = minion_id if minion_id != own else None
        if self.other and "pillar.show_pillar" not in _helper.GLOBALS["__runner__"]:
            raise SaltInvocationError("Brine compiles only this minion's pillar ({}) for a Python module, "
                                      "not that of {}".format(own, minion_id))
        self.wanted = {"pillarenv": pillarenv, "saltenv": saltenv, "pillar": pillar_override}

    def compile_pillar(self, *_, **__):
        """Return the pillar; on a minion with a master, the master compiles it."""
        wanted = {name: value for name, value in self.wanted.items() if value}
        if self.other:  # on a master, with the grains that it has of the minion
            return _helper.GLOBALS["__runner__"]["pillar.show_pillar"](self.other, **wanted)
        return _helper.GLOBALS["__salt__"]["pillar.items"](**wanted)


def get_pillar(opts, grains, minion_id, saltenv=None, ext=None, funcs=None, pillar_override=None,
               pillarenv=None, extra_minion_data=None):
    """Return the pillar of this minion, which compile_pillar compiles."""
    return Pillar(opts, grains, minion_id, saltenv, ext, funcs, pillar_override, pillarenv)
