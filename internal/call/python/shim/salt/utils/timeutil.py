"""Times."""

import time


def get_timestamp_at(time_in=None, time_at=None):
    """Return the time that lies a number of minutes ahead."""
    minutes = sum(int(p) * f for p, f in zip(reversed(str(time_in).split(":")), (1, 60))) if time_in else 0
    return time.time() + minutes * 60


def get_time_at(time_in=None, time_at=None, out_fmt="%Y-%m-%dT%H:%M:%S"):
    """Return that time as text."""
    return time.strftime(out_fmt, time.localtime(get_timestamp_at(time_in, time_at)))
