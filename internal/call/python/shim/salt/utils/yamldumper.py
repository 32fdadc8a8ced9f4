"""YAML under its older name."""

from salt.utils.yaml import dump, safe_dump, SafeOrderedDumper, get_dumper  # noqa: F401
