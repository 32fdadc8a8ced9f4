"""Which system this is."""

import sys


def is_linux():
    """Report whether this is Linux."""
    return sys.platform.startswith("linux")


def _no(*_):
    return False


is_windows = is_darwin = is_sunos = is_smartos = is_smartos_globalzone = is_smartos_zone = _no
is_freebsd = is_openbsd = is_netbsd = is_aix = is_proxy = is_junos = is_photonos = _no


def is_fedora():
    """Report whether this is Fedora."""
    return _id() == "fedora"


def _id():
    try:
        with open("/etc/os-release", encoding="utf-8") as source:
            for line in source:
                if line.startswith("ID="):
                    return line[3:].strip().strip('"')
    except OSError:
        pass
    return ""


def get_machine_identifier():
    """Return the id of this machine."""
    try:
        with open("/etc/machine-id", encoding="utf-8") as source:
            return source.read().strip()
    except OSError:
        return ""


def spawning_platform():
    """Report whether new processes of Python start without the memory of this one."""
    import multiprocessing
    return multiprocessing.get_start_method(allow_none=False) == "spawn"
