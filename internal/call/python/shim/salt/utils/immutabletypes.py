"""Views of values that cannot be changed."""

from collections.abc import Mapping, Sequence, Set


class ImmutableDict(Mapping):
    """A dict that cannot be changed."""

    def __init__(self, obj):
        self._obj = obj

    def __len__(self):
        return len(self._obj)

    def __iter__(self):
        return iter(self._obj)

    def __getitem__(self, key):
        return freeze(self._obj[key])

    def __repr__(self):
        return "<{} {!r}>".format(type(self).__name__, self._obj)

    def __deepcopy__(self, memo):
        import copy
        return copy.deepcopy(self._obj)

    def copy(self):
        """Return a copy that can be changed."""
        return self.__deepcopy__(None)


class ImmutableList(Sequence):
    """A list that cannot be changed."""

    __init__, __len__, __repr__ = ImmutableDict.__init__, ImmutableDict.__len__, ImmutableDict.__repr__
    __deepcopy__, copy = ImmutableDict.__deepcopy__, ImmutableDict.copy

    def __iter__(self):
        return iter(map(freeze, self._obj))

    def __add__(self, other):
        return self._obj + other

    def __radd__(self, other):
        return other + self._obj

    def __getitem__(self, key):
        return freeze(self._obj[key])


class ImmutableSet(Set):
    """A set that cannot be changed."""

    __init__, __len__, __iter__, __repr__ = ImmutableDict.__init__, ImmutableDict.__len__, ImmutableDict.__iter__, ImmutableDict.__repr__
    __deepcopy__, copy = ImmutableDict.__deepcopy__, ImmutableDict.copy

    def __contains__(self, key):
        return key in self._obj


def freeze(obj):
    """Return a view of a dict, list or set that cannot be changed; other values as they are."""
    for kind, view in ((dict, ImmutableDict), (list, ImmutableList), (set, ImmutableSet)):
        if isinstance(obj, kind):
            return view(obj)
    return obj
