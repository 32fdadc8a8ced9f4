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
