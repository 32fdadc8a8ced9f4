"""Logging, which is Python's own."""

import logging

LOG_LEVELS = {"all": 0, "debug": 10, "error": 40, "critical": 50, "garbage": 1, "info": 20, "profile": 15,
              "quiet": 1000, "trace": 5, "warning": 30}


def getLogger(name=None):  # noqa: N802
    """Return a logger."""
    return logging.getLogger(name)
