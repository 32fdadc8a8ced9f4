"""Files that are replaced as a whole."""

import os
import tempfile


def atomic_rename(src, dst):
    """Move a file over another one."""
    os.replace(src, dst)


def safe_atomic_write(dst, data, backup_mode="", cachedir=""):
    """Replace a file by one with this text or these bytes, and keep its owner and mode."""
    import salt.utils.files
    name = salt.utils.files.mkstemp()
    with salt.utils.files.fopen(name, "wb" if isinstance(data, bytes) else "w") as file:
        file.write(data)
    try:
        salt.utils.files.copyfile(name, dst, backup_mode, cachedir)
    finally:
        salt.utils.files.safe_rm(name)


class _AtomicWFile:
    """A file that replaces another one when it is closed."""

    def __init__(self, file, name, filename):
        self._file, self._name, self._filename = file, name, filename

    def __getattr__(self, attr):
        return getattr(self._file, attr)

    def __enter__(self):
        return self

    def close(self):
        """Replace the file."""
        if self._file.closed:
            return
        self._file.close()
        try:
            before = os.stat(self._filename)
            os.chmod(self._name, before.st_mode)
            os.chown(self._name, before.st_uid, before.st_gid)
        except FileNotFoundError:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(self._name, 0o666 & ~mask)
        os.replace(self._name, self._filename)

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.close()
        else:
            self._file.close()
            os.remove(self._name)


def atomic_open(filename, mode="w"):
    """Open a file for writing; it is replaced when it is closed."""
    if mode not in ("w", "wb", "w+", "w+b", "wt"):
        raise TypeError("the mode {} cannot be used".format(mode))
    descriptor, name = tempfile.mkstemp(prefix=".___atomic_write", dir=os.path.dirname(os.path.abspath(filename)))
    return _AtomicWFile(os.fdopen(descriptor, mode), name, filename)
