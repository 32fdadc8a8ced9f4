"""Constants."""

import salt

NOT_SET = "__unset__"

__getattr__ = salt._parts_of(__name__)
