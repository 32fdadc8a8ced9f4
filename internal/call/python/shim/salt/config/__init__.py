"""The options of this process, whichever file is named."""

import brine_helper as _helper


def _options(*_, **__):
    return dict(_helper.frame().tree("opts"))


minion_config = master_config = client_config = apply_minion_config = apply_master_config = _options


def get_id(opts=None, *_, **__):
    """Return the id."""
    return _options().get("id"), False


def read_or_default(*_, **__):
    """Return the options."""
    return _options()


DEFAULT_HASH_TYPE = "sha256"
DEFAULT_MINION_OPTS = {}
DEFAULT_MASTER_OPTS = {}
