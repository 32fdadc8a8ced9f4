"""The grains that every minion has."""

import brine_helper as _helper


def os_data():
    """Return the grains collected so far."""
    return dict(_helper.frame().tree("grains"))


def get_machine_id():
    """Return the grain machine_id alone."""
    return {"machine_id": _helper.frame().tree("grains").get("machine_id")}


_GRAINS = {
    "hostname": ("domain", "fqdn", "host", "localhost"), "locale_info": ("locale_info",), "ip_fqdn": ("ipv4", "ipv6", "fqdn_ip4", "fqdn_ip6"),
    "ip_interfaces": ("ip_interfaces",), "ip4_interfaces": ("ip4_interfaces",), "ip6_interfaces": ("ip6_interfaces",),
    "hwaddr_interfaces": ("hwaddr_interfaces",), "dns": ("dns",), "path": ("path", "systempath"), "id_": ("id",), "fqdns": ("fqdns",),
    "pythonversion": ("pythonversion",), "pythonpath": ("pythonpath",), "pythonexecutable": ("pythonexecutable",), "saltpath": ("saltpath",),
    "saltversion": ("saltversion",), "saltversioninfo": ("saltversioninfo",), "zmqversion": ("zmqversion",), "get_server_id": ("server_id",),
    "get_master": ("master",), "default_gateway": ("ip_gw", "ip4_gw", "ip6_gw"), "kernelparams": ("kernelparams",), "cwd": ("cwd",),
}


def __getattr__(name):
    """Return a function that returns grains of those collected so far."""
    if name not in _GRAINS:
        from salt.substitutes import absent
        return absent(__name__, name)

    def function():
        grains = _helper.frame().tree("grains")
        return {key: grains[key] for key in _GRAINS[name] if key in grains}
    function.__name__ = name
    return function
