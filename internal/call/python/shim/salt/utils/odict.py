"""Ordered dicts, which all dicts are."""

import collections
from collections import OrderedDict  # noqa: F401

DefaultOrderedDict = collections.defaultdict
