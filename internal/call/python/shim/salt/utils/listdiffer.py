"""Differences of lists of dicts."""

from salt.utils.dictdiffer import RecursiveDictDiffer


def list_diff(list_a, list_b, key):
    """Return the differences of two lists of dicts that have the same key."""
    return ListDictDiffer(list_a, list_b, key)


class ListDictDiffer:
    """The differences of two lists of dicts; a key says which of them belong together."""

    def __init__(self, current_list, next_list, key):
        self._old = {item[key]: item for item in current_list}
        self._new = {item[key]: item for item in next_list}
        self._key = key
        self._changed = {}
        for name, item in self._old.items():
            if name in self._new:
                diff = RecursiveDictDiffer(item, self._new[name], ignore_missing_keys=False)
                if diff.diffs:
                    self._changed[name] = diff

    @property
    def added(self):
        """The new items."""
        return [item for name, item in self._new.items() if name not in self._old]

    @property
    def removed(self):
        """The items that are gone."""
        return [item for name, item in self._old.items() if name not in self._new]

    @property
    def intersect(self):
        """The items of both lists, with what is old and new."""
        return [{"key": name, "old": item, "new": self._new[name]} for name, item in self._old.items() if name in self._new]

    def remove_diff(self, diff_key=None, diff_list="intersect"):
        """Ignore a key of the items."""
        for items in (self._old, self._new) if diff_list == "intersect" else ():
            for item in items.values():
                item.pop(diff_key, None)
        self.__init__(list(self._old.values()), list(self._new.values()), self._key)

    @property
    def diffs(self):
        """The changes of items of both lists."""
        return [{name: diff.diffs} for name, diff in self._changed.items()]

    @property
    def new_values(self):
        """The new values of changed items."""
        return [dict(diff.new_values, **{self._key: name}) for name, diff in self._changed.items()]

    @property
    def old_values(self):
        """The old values of changed items."""
        return [dict(diff.old_values, **{self._key: name}) for name, diff in self._changed.items()]

    def changed(self, selection="all"):
        """Return the names of the values that have changed."""
        return [".".join((self._key, str(name), path)) for name, diff in self._changed.items() for path in diff.changed()]
