"""Events: they can be fired, by Brine's functions."""

import brine_helper as _helper

TAGEND = "\n\n"
TAGPARTER = "/"
SALT = "salt"
TAGS = {"auth": "salt/auth", "job": "salt/job", "key": "salt/key", "minion": "salt/minion", "run": "salt/run",
        "wheel": "salt/wheel", "cloud": "salt/cloud"}


def tagify(suffix="", prefix="", base=SALT):
    """Return a tag of its parts."""
    parts = [base, TAGS.get(prefix, prefix)]
    if parts[1].startswith(base + TAGPARTER):
        parts = [parts[1]]
    parts += [str(s) for s in suffix] if isinstance(suffix, (list, tuple)) else [str(suffix)]
    return TAGPARTER.join(p for p in parts if p)


class SaltEvent:
    """Fires events."""

    def __init__(self, *_, **__):
        pass

    def fire_event(self, data, tag, timeout=1000):
        """Fire an event on the bus of this minion or master."""
        salt = _helper.GLOBALS["__salt__"]
        name = "event.fire" if "event.fire" in salt else "event.send"
        return bool(salt[name](data, tag) if name == "event.fire" else salt[name](tag, data))

    def fire_master(self, data, tag, timeout=1000):
        """Fire an event on the master's bus."""
        return bool(_helper.GLOBALS["__salt__"]["event.send"](tag, data))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def destroy(self):
        """Do nothing."""


LocalClientEvent = MasterEvent = MinionEvent = SaltEvent


def get_event(*_, **__):
    """Return what fires events."""
    return SaltEvent()


get_master_event = get_event
