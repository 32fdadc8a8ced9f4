"""The options of this process, whichever file is named."""

import brine_helper as _helper


def _host():
    """Return what connects this program to Brine, or None in a helper."""
    if _helper.frame().vars.get("host"):
        import brine_host
        return brine_host
    return None


def _options(path=None, *_, **__):
    host = _host()
    if host:
        return host.options(path if isinstance(path, str) else None)
    return dict(_helper.frame().tree("opts"))


def _minion_options(path=None, *_, **__):
    host = _host()
    return host.Minion(path).options() if host else _options()


minion_config = apply_minion_config = _minion_options
master_config = client_config = apply_master_config = _options


def get_id(opts=None, *_, **__):
    """Return the id."""
    return _options().get("id"), False


def read_or_default(*_, **__):
    """Return the options."""
    return _options()


DEFAULT_HASH_TYPE = "sha256"
DEFAULT_MINION_OPTS = {}
DEFAULT_MASTER_OPTS = {}
