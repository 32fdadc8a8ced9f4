"""The network, by Brine's functions."""

import ipaddress
import socket

import brine_helper as _helper


def _function(name):
    def function(*args, **kwargs):
        return _helper.GLOBALS["__salt__"]["network." + name](*args, **kwargs)
    function.__name__ = name
    return function


ip_addrs, ip_addrs6, interfaces, subnets, subnets6, in_subnet, calc_net = map(_function, (
    "ip_addrs", "ip_addrs6", "interfaces", "subnets", "subnets6", "in_subnet", "calc_net"))
hw_addr, active_tcp, ifacestartswith = map(_function, ("hw_addr", "active_tcp", "ifacestartswith"))


def get_fqhostname():
    """Return the full name of this host."""
    return socket.getfqdn()


def is_ip(address):
    """Report whether a text is an address."""
    try:
        ipaddress.ip_address(address)
        return True
    except ValueError:
        return False


def is_ipv4(address):
    """Report whether a text is an address of version 4."""
    return is_ip(address) and ipaddress.ip_address(address).version == 4


def is_ipv6(address):
    """Report whether a text is an address of version 6."""
    return is_ip(address) and ipaddress.ip_address(address).version == 6


def host_to_ips(host):
    """Return the addresses of a host, or None."""
    try:
        return sorted({info[4][0] for info in socket.getaddrinfo(host, None)})
    except OSError:
        return None


def sanitize_host(host, underscore_ok=False):
    """Return a name without what names of hosts cannot have."""
    return "".join(c for c in host if c.isalnum() or c in ".-" or underscore_ok and c == "_")


def isportopen(host, port):
    """Report whether a port can be connected to."""
    try:
        with socket.create_connection((host, int(port)), 3):
            return True
    except OSError:
        return False


def generate_minion_id():
    """Return the id of this minion."""
    return _helper.frame().tree("opts").get("id")


def cidr_to_ipv4_netmask(bits):
    """Return a prefix length as a netmask."""
    return str(ipaddress.ip_network("0.0.0.0/{}".format(bits)).netmask)


def is_private(ip):
    """Report whether an address is private."""
    return ipaddress.ip_address(ip).is_private


def is_loopback(ip):
    """Report whether an address is one of this host alone."""
    return ipaddress.ip_address(ip).is_loopback
