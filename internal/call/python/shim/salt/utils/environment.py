"""Variables of the environment."""


def get_module_environment(env=None, function=None):
    """Return the variables that the option system-environment sets."""
    return {}
