"""The configuration of beacons."""


def list_to_dict(config):
    """Return the list of a configuration as one mapping."""
    whole = {}
    for part in config:
        whole.update(part)
    return whole


def remove_hidden_options(config, whitelist):
    """Remove parts whose name begins with an underscore and is not listed."""
    config[:] = [part for part in config if not any(n.startswith("_") and n not in whitelist for n in part)]
    return config
