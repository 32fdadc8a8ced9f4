"""Names of users."""

import re

VALID_USERNAME = re.compile(r"[a-z_][a-z0-9_-]*[$]?", re.IGNORECASE)


def valid_username(user):
    """Report whether a text can name a user."""
    return isinstance(user, str) and len(user) <= 32 and VALID_USERNAME.match(user) is not None
