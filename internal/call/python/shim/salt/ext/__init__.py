"""Libraries that Salt brings along."""

import salt

__getattr__ = salt._parts_of(__name__)
