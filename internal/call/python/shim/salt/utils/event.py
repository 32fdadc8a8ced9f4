"""Events: all modules fire them. Those of masters, and engines of minions, receive them, too."""

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


def _on_master():
    return dict.get(_helper.frame().tree("opts"), "__role") != "minion" and (
        _helper.frame().vars.get("bus") or False)


def _on_minion():
    """Report whether this is an engine of a minion."""
    return _helper.frame().vars.get("minion_bus") or False


_left = []  # (call, number): subscriptions of objects that exist no longer


class SaltEvent:
    """Fires events, and receives them on masters and in engines of minions."""

    def __init__(self, node="", sock_dir=None, opts=None, listen=True, **_):
        self.node, self.number = node, None
        if _helper.frame().vars.get("host"):
            import brine_host
            brine_host.use(opts, sock_dir)
        if listen and self._receives():
            self.subscribe()

    def _receives(self):
        return _on_master() or self.node != "master" and _on_minion()

    def subscribe(self, tag="", match_type=None):
        """Receive the events from now on."""
        while _left:
            self._end(*_left.pop())
        if self.number is None and self._receives():
            self.env, self.number = _helper.frame().env, _helper.pipe.ask("subscribe", [])

    connect_pub = connect_pull = subscribe

    def unsubscribe(self, tag="", match_type=None):
        """Do nothing: events that are not asked for cost nothing."""

    def destroy(self):
        """Receive no more events."""
        if self.number is not None:
            number, self.number = self.number, None
            self._end(self.env, number)

    @staticmethod
    def _end(env, number):
        if env == _helper.frame().env:  # those of other calls have ended with them
            _helper.pipe.ask("unsubscribe", number)

    def __del__(self):
        if getattr(self, "number", None) is not None:
            _left.append((self.env, self.number))

    def get_event(self, wait=5, tag="", full=False, match_type=None, no_block=False, auto_reconnect=False):
        """Return the data of the next event whose tag matches, or None. full returns its tag, too."""
        import time
        if not self._receives():
            raise NotImplementedError("only modules on masters and engines of minions receive events, each those of its own daemon")
        self.subscribe()
        limit = None if not wait and not no_block else time.monotonic() + (0 if no_block else wait)
        while True:
            left = None if limit is None else max(limit - time.monotonic(), 0)
            found = _helper.pipe.ask("event", self.number, left)
            if found is None:
                return None
            if self._matches(found[0], tag, match_type):
                return {"tag": found[0], "data": found[1]} if full else found[1]

    @staticmethod
    def _matches(tag, wanted, match_type):
        import fnmatch
        import re
        match_type = match_type or dict.get(_helper.frame().tree("opts"), "event_match_type") or "startswith"
        return {"startswith": lambda: tag.startswith(wanted), "endswith": lambda: tag.endswith(wanted), "find": lambda: wanted in tag,
                "regex": lambda: re.search("^" + wanted, tag) is not None, "fnmatch": lambda: fnmatch.fnmatch(tag, wanted),
                }.get(match_type, lambda: tag.startswith(wanted))()

    def get_event_noblock(self):
        """Return the next event with its tag if there is one."""
        return self.get_event(no_block=True, full=True)

    def get_event_block(self):
        """Return the next event with its tag."""
        return self.get_event(wait=0, full=True)

    def iter_events(self, tag="", full=False, match_type=None, auto_reconnect=False):
        """Yield the events whose tags match."""
        while True:
            found = self.get_event(wait=0, tag=tag, full=full, match_type=match_type)
            if found is not None:
                yield found

    def fire_event(self, data, tag, timeout=1000):
        """Fire an event on the bus of this minion or master."""
        if _on_master():
            return bool(_helper.pipe.ask("fire", tag, data))
        if _on_minion() and self.node != "master":
            return bool(_helper.pipe.ask("fire", tag, data))
        salt = _helper.GLOBALS["__salt__"]
        name = "event.fire" if "event.fire" in salt else "event.send"
        return bool(salt[name](data, tag) if name == "event.fire" else salt[name](tag, data))

    def fire_master(self, data, tag, timeout=1000):
        """Fire an event on the master's bus."""
        if _on_master():
            return bool(_helper.pipe.ask("fire", tag, data))
        return bool(_helper.GLOBALS["__salt__"]["event.send"](tag, data))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()
        return False


class MasterEvent(SaltEvent):
    """The events of a master."""

    def __init__(self, sock_dir=None, opts=None, listen=True, **_):
        super().__init__("master", sock_dir, opts, listen)


LocalClientEvent = MasterEvent


class MinionEvent(SaltEvent):
    """The events of a minion."""

    def __init__(self, opts=None, listen=True, **_):
        super().__init__("minion", (opts or {}).get("sock_dir"), opts, listen)


def get_event(node="master", sock_dir=None, transport=None, opts=None, listen=True, **_):
    """Return what fires and receives events."""
    return SaltEvent(node, sock_dir, opts, listen)


def get_master_event(opts=None, sock_dir=None, listen=True, **_):
    """Return what fires and receives events of the master."""
    return SaltEvent("master", sock_dir, opts, listen)


class NamespacedEvent:
    """Fires events below a tag."""

    def __init__(self, event, base, print_func=None):
        self.event, self.base, self.print_func = event, base, print_func

    def fire_event(self, data, tag):
        """Fire an event."""
        self.event.fire_event(data, tagify(tag, base=self.base))
        if self.print_func is not None:
            self.print_func(tag, data)
