"""Decorators about programs."""

from salt.utils.decorators import which, which_bin  # noqa: F401
