"""Values that are left out where data is too large."""


def _trim(data, limit, replacement):
    for key, value in data.items():
        if isinstance(value, dict):
            _trim(value, limit, replacement)
        elif len(str(value)) > limit:
            data[key] = replacement


def trim_dict(data, max_dict_bytes, percent=50.0, stepper_size=10, replace_with="VALUE_TRIMMED", is_msgpacked=False, use_bin_type=False):
    """Return data whose largest values are replaced until it is small enough."""
    import copy
    import salt.payload
    if is_msgpacked:
        data = salt.payload.loads(data)
    while True:
        limit = float(max_dict_bytes * (percent / 100))
        small = copy.deepcopy(data)
        size = len(salt.payload.dumps(small))
        if size <= max_dict_bytes:
            break
        _trim(small, limit, replace_with)
        if len(salt.payload.dumps(small)) <= max_dict_bytes or percent <= 0:
            break
        percent -= stepper_size
    return salt.payload.dumps(small) if is_msgpacked else small
