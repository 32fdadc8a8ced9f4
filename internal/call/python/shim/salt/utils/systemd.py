"""systemd."""

import os


def booted(context=None):
    """Report whether this machine was booted with systemd."""
    return os.path.isdir("/run/systemd/system")


def offline(context=None):
    """Report whether systemctl works on a machine that does not run."""
    return os.environ.get("SYSTEMD_OFFLINE") == "1"


def version(context=None):
    """Return the version of systemd, or None."""
    import subprocess
    try:
        words = subprocess.check_output(["systemctl", "--version"], universal_newlines=True).split()
        return int(words[1])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return None


def has_scope(context=None):
    """Report whether systemd-run has the option --scope."""
    return (version() or 0) >= 205


def status(name=None, context=None):
    """Return nothing."""
    return None
