"""Dates."""

import datetime


def date_cast(date):
    """Return a date of a text or a number."""
    if date is None:
        return datetime.datetime.now()
    if isinstance(date, datetime.datetime):
        return date
    if isinstance(date, (int, float)) or str(date).replace(".", "", 1).isdigit():
        return datetime.datetime.fromtimestamp(float(date))
    for form in ("%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"):
        try:
            return datetime.datetime.strptime(date, form)
        except ValueError:
            pass
    raise ValueError("{!r} is not a date".format(date))


def strftime(date=None, format="%Y-%m-%d"):  # noqa: A002
    """Return a date as text."""
    return date_cast(date).strftime(format)


def total_seconds(delta):
    """Return a duration in seconds."""
    return delta.total_seconds()
