"""The file with mounted file systems of this minion."""

import os

import salt.utils.files
import salt.utils.yaml


def get_cache(opts):
    """Return the path of the file."""
    return os.path.join(opts["cachedir"], "mounts")


def read_cache(opts):
    """Return what the file has."""
    try:
        with salt.utils.files.fopen(get_cache(opts)) as file:
            return salt.utils.yaml.safe_load(file) or {}
    except OSError:
        return {}


def write_cache(cache, opts):
    """Write the file."""
    try:
        with salt.utils.files.fopen(get_cache(opts), "w") as file:
            file.write(salt.utils.yaml.safe_dump(cache))
        return True
    except OSError:
        return False
