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


def master_event(type, master=None):  # pylint: disable=redefined-builtin
    """Return the tag of an event about the connection to a master."""
    if type == "alive" and master is not None:
        return "__master_alive_{}".format(master)
    return "__master_" + type if type in ("connected", "disconnected", "failback", "alive") else None


def service_name():
    """Return the name of the minion's service."""
    return "salt-minion"
