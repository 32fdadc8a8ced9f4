"""Options of the adapters of reclass."""

import os
import sys


def prepend_reclass_source_path(opts):
    """Let Python import reclass from the directory that the options name."""
    path = opts.get("reclass_source_path")
    if path:
        sys.path.insert(0, os.path.abspath(os.path.expanduser(path)))


def filter_out_source_path_option(opts):
    """Remove that directory from the options."""
    opts.pop("reclass_source_path", None)


def set_inventory_base_uri_default(config, opts):
    """Name the first of the base directories of file_roots as that of the inventory, unless the options have one."""
    if "inventory_base_uri" in opts:
        return
    roots = config.get("file_roots", {}).get("base", [])
    if roots:
        opts["inventory_base_uri"] = roots[0]
