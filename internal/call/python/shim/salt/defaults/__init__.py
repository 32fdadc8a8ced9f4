"""Constants."""

import salt

NOT_SET = "__unset__"
DEFAULT_TARGET_DELIM = ":"

__getattr__ = salt._parts_of(__name__)
