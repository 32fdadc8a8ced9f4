"""Serializers."""

import salt
from salt.exceptions import SaltException


class DeserializationError(SaltException, RuntimeError):
    """A text cannot be read."""


class SerializationError(SaltException, RuntimeError):
    """A value cannot be written."""

__getattr__ = salt._parts_of(__name__)
