"""What file server backends have in common: caches of their lists, locks, and files that are not served."""

import fnmatch
import logging
import os
import re
import time

log = logging.getLogger(__name__)


def is_file_ignored(opts, fname):
    """Report whether file_ignore_regex or file_ignore_glob exclude a file."""
    patterns = opts.get("file_ignore_regex") or ()
    if isinstance(patterns, str):
        patterns = [patterns]
    if any(re.search(pattern, fname) for pattern in patterns):
        return True
    patterns = opts.get("file_ignore_glob") or ()
    if isinstance(patterns, str):
        patterns = [patterns]
    return any(fnmatch.fnmatch(fname, pattern) for pattern in patterns)


def _lock_cache(w_lock):
    """Take a lock, which is a directory, and report whether this was possible."""
    try:
        os.mkdir(w_lock)
    except FileExistsError:
        return False
    return True


def _unlock_cache(w_lock):
    """Release a lock."""
    try:
        if os.path.isdir(w_lock):
            os.rmdir(w_lock)
        else:
            os.unlink(w_lock)
    except OSError:
        pass


def wait_lock(lk_fn, dest, wait_timeout=0):
    """Wait until a lock is released. A lock is removed if the file that it protects does not grow."""
    end = time.monotonic() + wait_timeout if wait_timeout else None
    size, same = None, 0
    while os.path.exists(lk_fn):
        time.sleep(1)
        try:
            now = os.stat(dest).st_size
        except OSError:
            now = -1
        same = same + 1 if now == size else 0
        size = now
        if now < 0 or same >= 3:
            _unlock_cache(lk_fn)
            break
        if end is not None and time.monotonic() > end:
            raise ValueError("Timeout({}s) for {} (lock: {}) elapsed".format(wait_timeout, dest, lk_fn))
    return False


def check_file_list_cache(opts, form, list_cache, w_lock):
    """Return a list from a cache file that is new enough, else None; whether to make it again, which the
    lock is taken for; and whether to store it."""
    import salt.payload
    lifetime = opts.get("fileserver_list_cache_time", 20)
    for _ in range(11):
        if os.path.exists(w_lock):
            wait_lock(w_lock, list_cache, 15 * 60)
        try:
            age = int(time.time()) - int(os.stat(list_cache).st_mtime)
            if 0 <= age < lifetime:
                with open(list_cache, "rb") as cached:
                    return salt.payload.loads(cached.read()).get(form, []), False, False
        except FileNotFoundError:
            pass
        except Exception:  # an incomplete file, pylint: disable=broad-except
            log.debug("cannot read %s", list_cache, exc_info=True)
            time.sleep(0.2)
        if _lock_cache(w_lock):
            return None, True, True
    return None, True, False


def write_file_list_cache(opts, data, list_cache, w_lock):
    """Store lists in a cache file, and release its lock."""
    import salt.payload
    with open(list_cache, "wb") as cached:
        cached.write(salt.payload.dumps(data))
    _unlock_cache(w_lock)


def check_env_cache(opts, env_cache):
    """Return the environments in a cache file, or None."""
    import salt.payload
    try:
        with open(env_cache, "rb") as cached:
            return salt.payload.loads(cached.read())
    except OSError:
        return None


def generate_mtime_map(opts, path_map):
    """Return the times of the files below directories, which are given by environment."""
    times = {}
    for directories in path_map.values():
        for top in directories:
            for directory, _, names in os.walk(top, followlinks=True):
                for name in names:
                    path = os.path.join(directory, name)
                    if is_file_ignored(opts, path):
                        continue
                    try:
                        times[path] = os.path.getmtime(path)
                    except OSError:
                        log.info("cannot get the time of %s", path)
    return times


def diff_mtime_map(map1, map2):
    """Report whether two maps of times differ."""
    return dict(map1) != dict(map2)


def reap_fileserver_cache_dir(cache_base, find_func):
    """Remove the stored hashes of files that find_func no longer finds: ENVIRONMENT/NAME.hash.FORM."""
    for env in os.listdir(cache_base):
        base = os.path.join(cache_base, env)
        for directory, inner, names in os.walk(base):
            if not inner and not names:
                if time.time() - os.path.getctime(directory) > 60:
                    os.rmdir(directory)
                continue
            for name in names:
                path = os.path.join(directory, name)
                parts = os.path.relpath(path, base).rsplit(".", 2)
                if len(parts) < 3:
                    log.warning("the name of %s is not that of a stored hash", path)
                elif not find_func(parts[0], saltenv=env)["path"]:
                    os.unlink(path)


def clear_lock(clear_func, role, remote=None, lock_type="update"):
    """Let a function release its locks, and return its messages."""
    return clear_func(remote=remote, lock_type=lock_type)
