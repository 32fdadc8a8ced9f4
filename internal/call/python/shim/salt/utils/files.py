"""Files."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile

LOCAL_PROTOS = ("", "file")
REMOTE_PROTOS = ("http", "https", "ftp", "swift", "s3")
VALID_PROTOS = ("salt", "file") + REMOTE_PROTOS
TEMPFILE_PREFIX = "__salt.tmp."


def fopen(*args, **kwargs):
    """Open a file; text is UTF-8 unless an encoding is given."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    if "b" not in mode and len(args) < 4:
        kwargs.setdefault("encoding", "utf-8")
    for unknown in ("preserve_inheritable",):
        kwargs.pop(unknown, None)
    return open(*args, **kwargs)


@contextlib.contextmanager
def flopen(*args, **kwargs):
    """Open a file and lock it."""
    with fopen(*args, **kwargs) as source:
        fcntl.flock(source.fileno(), fcntl.LOCK_SH)
        try:
            yield source
        finally:
            fcntl.flock(source.fileno(), fcntl.LOCK_UN)


@contextlib.contextmanager
def fpopen(*args, **kwargs):
    """Open a file and set its owner and mode."""
    uid, gid, mode = kwargs.pop("uid", -1), kwargs.pop("gid", -1), kwargs.pop("mode", None)
    with fopen(*args, **kwargs) as target:
        if uid != -1 or gid != -1:
            os.chown(args[0], uid, gid)
        if mode is not None:
            os.chmod(args[0], mode)
        yield target


def mkstemp(*args, **kwargs):
    """Create a temporary file, closed unless close_fd is false, and return its path."""
    close = kwargs.pop("close_fd", True)
    kwargs.setdefault("prefix", TEMPFILE_PREFIX)
    handle, path = tempfile.mkstemp(*args, **kwargs)
    if close:
        os.close(handle)
        return path
    return handle, path


def rename(src, dst):
    """Rename a file."""
    os.rename(src, dst)


def copyfile(source, dest, backup_mode="", cachedir=""):
    """Copy a file over another, keeping that one's owner and mode."""
    if not os.path.isfile(source):
        raise OSError(errno.ENOENT, "No such file or directory", source)
    if not os.path.isdir(os.path.dirname(dest)):
        raise OSError(errno.ENOENT, "No such file or directory", dest)
    temporary = mkstemp(prefix=os.path.basename(dest), dir=os.path.dirname(dest))
    shutil.copyfile(source, temporary)
    if os.path.exists(dest):
        old = os.stat(dest)
        os.chown(temporary, old.st_uid, old.st_gid)
        os.chmod(temporary, stat.S_IMODE(old.st_mode))
    os.rename(temporary, dest)


def safe_rm(path):
    """Remove a file if there is one."""
    try:
        os.remove(path)
    except OSError:
        pass


def remove(path):
    """Remove a file if there is one."""
    try:
        os.remove(path)
    except FileNotFoundError:
        pass


def rm_rf(path):
    """Remove a file or a directory tree."""
    if os.path.islink(path) or not os.path.isdir(path):
        os.remove(path)
    else:
        shutil.rmtree(path)


def is_empty(path):
    """Report whether a file is empty."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False


@contextlib.contextmanager
def set_umask(mask):
    """Set the umask for a while."""
    if mask is None:
        yield
        return
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def is_binary(path):
    """Report whether a file has a zero byte at its beginning."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as source:
        return b"\0" in source.read(2048)


def is_text(path, blocksize=512):
    """Report whether a file is text."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as source:
        try:
            source.read(blocksize).decode("utf-8")
        except UnicodeDecodeError as exc:
            return exc.end > blocksize - 4
    return True


def normalize_mode(mode):
    """Return a mode as text of four digits."""
    if mode is None:
        return None
    return str(mode).replace("0o", "0").strip('"').strip("'").lstrip("0").zfill(4)


def human_size_to_bytes(size):
    """Return a size such as 4G in bytes."""
    from salt.utils.stringutils import human_to_bytes
    return human_to_bytes(size)


def list_files(directory):
    """Return all paths below a directory, and itself."""
    found = {directory}
    for root, dirs, names in os.walk(directory):
        found.update(os.path.join(root, n) for n in dirs + names)
    return list(found)


def safe_walk(top, topdown=True, onerror=None, followlinks=True, _seen=None):
    """Walk a directory tree."""
    return os.walk(top, topdown, onerror, followlinks)


def safe_filename_leaf(file_basename):
    """Return a name that can be one of a file."""
    import urllib.parse
    return urllib.parse.quote(file_basename, safe=" ")


def safe_filepath(file_path_name, dir_sep=None):
    """Return a path whose parts can be names of files."""
    separator = dir_sep or os.sep
    return separator.join(map(safe_filename_leaf, file_path_name.split(separator)))


def case_insensitive_filesystem(path=None):
    """Report whether a directory finds files by names in another case."""
    with tempfile.NamedTemporaryFile(prefix="TmP", dir=path) as file:
        return os.path.exists(file.name.lower())


def st_mode_to_octal(mode):
    """Return the permissions of a mode as text."""
    return oct(mode)[-4:]


def backup_minion(path, bkroot):
    """Copy a file below a directory under its path and the time."""
    import time
    target = os.path.join(bkroot, os.path.dirname(path).lstrip("/"))
    os.makedirs(target, exist_ok=True)
    shutil.copyfile(path, os.path.join(target, "{}_{}".format(os.path.basename(path), time.strftime(
        "%a_%b_%d_%H:%M:%S_%f_%Y"))))


def get_encoding(path):
    """Return the encoding of a file."""
    with open(path, "rb") as source:
        start = source.read(4)
    if start.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    return "utf-8"


@contextlib.contextmanager
def wait_lock(path, lock_fn=None, timeout=5, sleep=0.1, time_start=None):
    """Hold a lock file for a while."""
    import time
    from salt.exceptions import FileLockError
    name = lock_fn or path + ".w"
    until = time.monotonic() + timeout
    while True:
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            if timeout and time.monotonic() > until:
                raise FileLockError("{} is locked".format(path))
            time.sleep(sleep)
    try:
        yield
    finally:
        remove(name)


HASHES = {"sha512": 128, "sha384": 96, "sha256": 64, "sha224": 56, "sha1": 40, "md5": 32}  # digits of each
HASHES_REVMAP = {digits: name for name, digits in HASHES.items()}


def is_fcntl_available(check_sunos=False):
    """Report whether files can be locked."""
    return True


def get_umask():
    """Return the umask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def process_read_exception(exc, path, ignore=None):
    """Raise the error of Salt for a file that cannot be read, unless its number is ignored."""
    from salt.exceptions import CommandExecutionError
    if exc.errno in ((ignore,) if isinstance(ignore, int) else ignore or ()):
        return
    if exc.errno == errno.ENOENT:
        raise CommandExecutionError("{} does not exist".format(path))
    if exc.errno == errno.EACCES:
        raise CommandExecutionError("Permission denied reading from {}".format(path))
    raise CommandExecutionError("Error {} encountered reading from {}: {}".format(exc.errno, path, exc.strerror))


def guess_archive_type(name):
    """Return tar, zip, rar or None for the name of an archive."""
    lower = name.lower()
    for kind in ("zip", "rar"):
        if lower.endswith("." + kind):
            return kind
    tars = ("tar", "tar.gz", "tgz", "tar.bz2", "tbz2", "tbz", "tar.xz", "txz", "tar.lzma", "tlz")
    return "tar" if lower.endswith(tuple("." + ending for ending in tars)) else None


def recursive_copy(source, dest):
    """Copy the files of a directory tree into another, which keeps its other files."""
    for root, _, names in os.walk(source):
        target = os.path.normpath(os.path.join(dest, os.path.relpath(root, source)))
        os.makedirs(target, exist_ok=True)
        for name in names:
            shutil.copyfile(os.path.join(root, name), os.path.join(target, name))
