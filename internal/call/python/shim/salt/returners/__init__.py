"""What returners have in common: how they find their options."""


def _looked_up(config, name, default=None):
    """Return an option from config.option, or from a dict of options."""
    if isinstance(config, dict):
        found = config.get(name)
        return default if found is None else found
    return config(name, default) if default is not None else config(name)


def _option(config, chosen, virtualname, attribute):
    """Return one option: NAME: {attribute: ...} or NAME.attribute, first those that ret_config chooses."""
    for prefix in ([chosen] if chosen else []) + [""]:
        base = prefix + "." + virtualname if prefix else virtualname
        group = _looked_up(config, base, {})
        single = _looked_up(config, base + "." + attribute)
        if isinstance(config, dict) and single is not None:
            found = single
        else:
            found = group.get(attribute, single) if hasattr(group, "get") else single
        if found is None and isinstance(config, dict) and not prefix:
            found = config.get(attribute)
        if found or not prefix:
            return found
    return None


def get_returner_options(virtualname=None, ret=None, attrs=None, **kwargs):
    """Return the options of a returner by the names that it uses for them."""
    functions = kwargs.get("__salt__") or {}
    config = functions.get("config.option") or kwargs.get("__opts__") or {}
    if not callable(config) and not isinstance(config, dict):
        config = dict(config)
    chosen = str(ret.get("ret_config") or "") if ret else ""
    defaults = kwargs.get("defaults") or {}
    options = {}
    for name, attribute in (attrs or {}).items():
        found = _option(config, chosen, virtualname, attribute)
        if found:
            options[name] = found
        elif name in defaults:
            options[name] = defaults[name]
    profile = options.get(kwargs.get("profile_attr"))
    found = _looked_up(config, profile) if profile else None
    if found:
        for name in kwargs.get("profile_attrs") or {}:
            options[name] = found.get("{}.{}".format(virtualname, kwargs["profile_attrs"][name]))
    if ret and ret.get("ret_kwargs"):
        options.update(ret["ret_kwargs"])
    return options
