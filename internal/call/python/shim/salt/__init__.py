"""What Brine gives the user's Python modules in the place of Salt's package."""

import importlib


def _parts_of(package):
    """Return the function __getattr__ of a package.

    It imports a part that was not imported: in Salt's process all have been.
    """
    def part(name):
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return importlib.import_module(package + "." + name)
        except ImportError:
            from salt.substitutes import absent
            return absent(package, name)
    return part


__getattr__ = _parts_of(__name__)


def _outside():
    """Connect a program that Brine has not started."""
    import brine_helper
    if not hasattr(brine_helper, "pipe"):
        import brine_host
        brine_host.begin()


_outside()
