"""Sets that keep the order."""

import collections.abc


class OrderedSet(collections.abc.MutableSet):
    """A set that keeps the order of its elements."""

    def __init__(self, iterable=None):
        self.items = list(dict.fromkeys(iterable or ()))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return OrderedSet(self.items[index]) if isinstance(index, slice) else self.items[index]

    def __contains__(self, key):
        return key in self.items

    def __iter__(self):
        return iter(self.items)

    def __reversed__(self):
        return reversed(self.items)

    def add(self, key):
        """Add an element and return its index."""
        if key not in self.items:
            self.items.append(key)
        return self.items.index(key)

    append = add

    def update(self, sequence):
        """Add elements."""
        for key in sequence:
            self.add(key)

    def index(self, key):
        """Return the index of an element."""
        return self.items.index(key)

    def discard(self, key):
        """Remove an element."""
        if key in self.items:
            self.items.remove(key)

    def __repr__(self):
        return "OrderedSet({!r})".format(self.items) if self.items else "OrderedSet()"

    def __eq__(self, other):
        if isinstance(other, (OrderedSet, list, tuple)):
            return list(self) == list(other)
        return set(self) == set(other)

    __hash__ = None
