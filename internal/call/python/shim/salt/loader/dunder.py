"""The names that modules find among their globals, to be imported."""

import brine_helper as _helper

for _name, _value in _helper.GLOBALS.items():
    globals()[_name] = _value
__file_client__ = None
