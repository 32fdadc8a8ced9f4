"""Differences of dicts."""

from collections.abc import Mapping


class DictDiffer:
    """Compares the keys of two dicts."""

    def __init__(self, current_dict, past_dict):
        self.current_dict, self.past_dict = current_dict, past_dict
        self.set_current, self.set_past = set(current_dict), set(past_dict)
        self.intersect = self.set_current & self.set_past

    def same(self):
        """Report whether both are equal."""
        return self.current_dict == self.past_dict

    def added(self):
        """Return the new keys."""
        return self.set_current - self.intersect

    def removed(self):
        """Return the keys that are gone."""
        return self.set_past - self.intersect

    def changed(self):
        """Return the keys with other values."""
        return {k for k in self.intersect if self.past_dict[k] != self.current_dict[k]}

    def unchanged(self):
        """Return the keys with equal values."""
        return self.intersect - self.changed()


def diff(current_dict, past_dict):
    """Return a DictDiffer."""
    return DictDiffer(current_dict, past_dict)


def deep_diff(old, new, ignore=None):
    """Return what differs between nested dicts, as old and new."""
    was, now = {}, {}
    for key in set(old) | set(new):
        if key in (ignore or ()):
            continue
        a, b = old.get(key), new.get(key)
        if key in old and key in new:
            if isinstance(a, Mapping) and isinstance(b, Mapping):
                part = deep_diff(a, b, ignore)
                a, b = part.get("old"), part.get("new")
            elif a == b:
                continue
            if a is not None:
                was[key] = a
            if b is not None:
                now[key] = b
        elif key in old:
            was[key] = a
        else:
            now[key] = b
    out = {}
    if was:
        out["old"] = was
    if now:
        out["new"] = now
    return out


class RecursiveDictDiffer(DictDiffer):
    """Compares nested dicts."""

    NONE_VALUE = "<_null_>"

    def __init__(self, past_dict, current_dict, ignore_missing_keys=True):
        super().__init__(current_dict, past_dict)
        self.ignore_unset_values = ignore_missing_keys
        self._diffs = self._compare(past_dict, current_dict, ignore_missing_keys)

    def _compare(self, old, new, ignore):
        out = {}
        for key in set(old) | set(new):
            if key not in new and ignore:
                continue
            a, b = old.get(key, self.NONE_VALUE), new.get(key, self.NONE_VALUE)
            if isinstance(a, Mapping) and isinstance(b, Mapping):
                part = self._compare(a, b, ignore)
                if part:
                    out[key] = part
            elif a != b:
                out[key] = {"old": a, "new": b}
        return out

    @property
    def diffs(self):
        """The differences by key."""
        return self._diffs

    @property
    def changes_str(self):
        """The differences as text."""
        return "\n".join("{} from {!r} to {!r}".format(k, d.get("old"), d.get("new")) for k, d in self._diffs.items())


def recursive_diff(past_dict, current_dict, ignore_missing_keys=True):
    """Return a RecursiveDictDiffer."""
    return RecursiveDictDiffer(past_dict, current_dict, ignore_missing_keys)
