"""The grains that every minion has."""

import brine_helper as _helper


def os_data():
    """Return the grains collected so far."""
    return dict(_helper.frame().tree("grains"))


def get_machine_id():
    """Return the grain machine_id alone."""
    return {"machine_id": _helper.frame().tree("grains").get("machine_id")}
