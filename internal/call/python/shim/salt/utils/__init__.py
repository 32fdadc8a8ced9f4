"""Helpers for modules; also those functions that had their place here before they moved."""

import importlib
import sys
import types

_OLD = {
    "which": "path", "which_bin": "path", "check_or_die": "path", "path_join": "path", "fopen": "files", "flopen": "files", "fpopen": "files",
    "mkstemp": "files", "rm_rf": "files", "safe_rm": "files", "is_empty": "files", "is_windows": "platform",
    "is_linux": "platform", "is_darwin": "platform", "is_sunos": "platform", "is_freebsd": "platform",
    "is_openbsd": "platform", "is_smartos": "platform", "is_aix": "platform", "is_proxy": "platform",
    "clean_kwargs": "args", "invalid_kwargs": "args", "yamlify_arg": "args", "format_call": "args",
    "get_function_argspec": "args", "is_true": "data", "is_list": "data", "is_iter": "data",
    "traverse_dict": "data", "traverse_dict_and_list": "data", "compare_dicts": "data", "compare_lists": "data",
    "repack_dictlist": "data", "mysql_to_dict": "data", "subdict_match": "data", "get_hash": "hashutils",
    "to_str": "stringutils", "to_bytes": "stringutils", "to_unicode": "stringutils", "expr_match": "stringutils",
    "contains_whitespace": "stringutils", "human_size_to_bytes": "stringutils", "dequote": "stringutils",
    "check_whitelist_blacklist": "stringutils", "warn_until": "versions", "compare_versions": "versions",
    "version_cmp": "versions", "kwargs_warn_until": "versions", "get_user": "user", "get_uid": "user",
    "get_group_list": "user", "namespaced_function": "functools", "alias_function": "functools",
    "dictupdate": None, "date_format": "dateutils", "date_cast": "dateutils", "strftime": "dateutils",
    "rand_str": "stringutils", "decode_dict": "data", "decode_list": "data",
    "memoize": "decorators", "depends": "decorators",
}
_NAMES = {"path_join": "join", "human_size_to_bytes": "human_to_bytes", "date_format": "strftime"}


class _Utils(types.ModuleType):
    """Finds the functions that have moved, and modules that were not imported."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        module = _OLD.get(name)
        if module:
            return getattr(importlib.import_module("salt.utils." + module), _NAMES.get(name, name))
        try:
            return importlib.import_module("salt.utils." + name)
        except ImportError:
            from salt.substitutes import absent
            return absent("salt.utils", name)


sys.modules[__name__].__class__ = _Utils
