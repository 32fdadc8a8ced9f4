"""Job ids."""

import datetime


def gen_jid(opts=None):
    """Return a job id."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d%H%M%S%f")


def is_jid(jid):
    """Report whether a text can be a job id."""
    return isinstance(jid, str) and len(jid) in (20, 27) and jid[:20].isdigit()
