"""YAML under its older name."""

from salt.utils.yaml import *  # noqa: F401,F403
from salt.utils.yaml import SaltYamlSafeLoader, load  # noqa: F401
