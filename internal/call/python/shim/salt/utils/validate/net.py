"""Checks of addresses."""

import ipaddress
import re


def mac(addr):
    """Report whether a text is a hardware address."""
    return bool(re.match(r"^([0-9a-f]{1,2}[:-]){5}[0-9a-f]{1,2}$", addr, re.I))


def _address(addr, version):
    try:
        return ipaddress.ip_interface(addr).version == version
    except ValueError:
        return False


def ipv4_addr(addr):
    """Report whether a text is an address of version 4."""
    return _address(addr, 4)


def ipv6_addr(addr):
    """Report whether a text is an address of version 6."""
    return _address(addr, 6)


def ip_addr(addr):
    """Report whether a text is an address."""
    return ipv4_addr(addr) or ipv6_addr(addr)


def netmask(mask):
    """Report whether a text is a netmask."""
    try:
        ipaddress.ip_network("0.0.0.0/" + mask)
        return True
    except ValueError:
        return False
