"""Processes."""

import os


def os_is_running(pid):
    """Report whether a process runs."""
    try:
        os.kill(int(pid), 0)
        return True
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False


def daemonize(redirect_out=True):
    """Refuse: the helper is no daemon."""
    from salt.exceptions import CommandExecutionError
    raise CommandExecutionError("a module cannot turn Brine's helper into a daemon; start a program instead")


def appendproctitle(name):
    """Do nothing: the helper keeps its name."""


def get_process_info(pid=None):
    """Return the id, name and start of a process, or None."""
    try:
        with open("/proc/{}/stat".format(pid or os.getpid()), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return None
    name = text[text.index("(") + 1:text.rindex(")")]
    return {"pid": pid or os.getpid(), "name": name, "start_time": int(text[text.rindex(")") + 2:].split()[19])}


def get_pidfile(pidfile):
    """Return the number in a file."""
    try:
        with open(pidfile, encoding="utf-8") as file:
            return int(file.read().strip())
    except (OSError, ValueError):
        return -1


check_pidfile = os.path.isfile


def clean_proc(proc, wait_for_kill=10):
    """End a process."""
    if proc is not None:
        proc.terminate()
        proc.join(wait_for_kill)


def __getattr__(name):
    """Import what takes long only when it is asked for."""
    if name in ("Process", "SignalHandlingProcess"):
        import multiprocessing
        return multiprocessing.Process
    from salt.substitutes import absent
    return absent(__name__, name)
