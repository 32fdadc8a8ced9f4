"""The network, by Brine's functions."""

import ipaddress
import socket

import brine_helper as _helper


def _function(name):
    def function(*args, **kwargs):
        return _helper.GLOBALS["__salt__"]["network." + name](*args, **kwargs)
    function.__name__ = name
    return function


ip_addrs, ip_addrs6, interfaces, subnets, subnets6, calc_net = map(_function, (
    "ip_addrs", "ip_addrs6", "interfaces", "subnets", "subnets6", "calc_net"))
hw_addr, active_tcp, ifacestartswith = map(_function, ("hw_addr", "active_tcp", "ifacestartswith"))


def in_subnet(cidr, addr=None):
    """Report whether an address, or one of a list, is in a network; without one, an address of this host."""
    try:
        network = ipaddress.ip_network(cidr)
    except ValueError:
        return False
    if addr is None:
        addr = list(ip_addrs()) + list(ip_addrs6())
    elif not isinstance(addr, (list, tuple)):
        addr = (addr,)
    return any(ipaddress.ip_address(one) in network for one in addr)


def get_socket(addr, type=socket.SOCK_STREAM, proto=0):  # noqa: A002
    """Return a socket of the family of an address."""
    family = socket.AF_INET6 if ipaddress.ip_address(addr).version == 6 else socket.AF_INET
    return socket.socket(family, type, proto)


def hex2ip(hex_ip, invert=False):
    """Return the address that hexadecimal digits are; other texts as they are."""
    try:
        data = bytes.fromhex(hex_ip)
    except ValueError:
        return hex_ip
    if len(data) == 16:
        if invert:
            data = b"".join(data[i:i + 4][::-1] for i in range(0, 16, 4))
        address = ipaddress.IPv6Address(data)
        return str(address.ipv4_mapped or address.compressed)
    data = data.rjust(4, b"\0")[-4:]
    return str(ipaddress.IPv4Address(data[::-1] if invert else data))


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
    """Return 0 if a port can be connected to, else the number of the error; False for a number that is no port."""
    if not 1 <= int(port) <= 65535:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        return connection.connect_ex((sanitize_host(host), int(port)))


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


def ip_to_host(ip):
    """Return the name of an address, or None."""
    try:
        return socket.gethostbyaddr(ip)[0]
    except OSError:
        return None


def is_subnet(cidr):
    """Report whether a text is an address with a prefix length."""
    return is_ipv4_subnet(cidr) or is_ipv6_subnet(cidr)


def _is_subnet(cidr, version):
    try:
        return "/" in cidr and ipaddress.ip_network(cidr, strict=False).version == version
    except (TypeError, ValueError):
        return False


def is_ipv4_subnet(cidr):
    """Report whether a text is such a network of version 4."""
    return _is_subnet(cidr, 4)


def is_ipv6_subnet(cidr):
    """Report whether a text is such a network of version 6."""
    return _is_subnet(cidr, 6)


# Properties of addresses by the names that the options of filters have.
_PROPERTIES = {
    "link-local": "is_link_local", "linklocal": "is_link_local", "ll": "is_link_local", "link_local": "is_link_local",
    "loopback": "is_loopback", "lo": "is_loopback", "multicast": "is_multicast", "private": "is_private",
    "reserved": "is_reserved", "site-local": "is_site_local", "sl": "is_site_local", "site_local": "is_site_local",
    "unspecified": "is_unspecified",
}


def _fitting(text, version, options):
    """Return an address or network of a version that has all properties of the options, else None."""
    for read in (ipaddress.ip_address, ipaddress.ip_interface):
        try:
            address = read(text)
            break
        except ValueError:
            pass
    else:
        return None
    if address.version != version:
        return None
    for option in (options or "").split(","):
        option = option.strip()
        if option in ("global", "public"):
            fits = not address.is_private
        elif option in _PROPERTIES:
            fits = getattr(address, _PROPERTIES[option], False)
        else:
            continue
        if not fits:
            return None
    return str(address)


def is_ip_filter(ip, options=None):
    """Report whether a text is an address with the properties of the options, such as loopback or private."""
    return is_ipv4_filter(ip, options) or is_ipv6_filter(ip, options)


def is_ipv4_filter(ip, options=None):
    """Report whether a text is such an address of version 4."""
    return _fitting(ip, 4, options) is not None


def is_ipv6_filter(ip, options=None):
    """Report whether a text is such an address of version 6."""
    return _fitting(ip, 6, options) is not None


def _filtered(value, version, options):
    if isinstance(value, (str, bytes)):
        return _fitting(value, version, options)
    if isinstance(value, (list, tuple)) or hasattr(value, "__next__"):
        found = [_fitting(one, version, options) for one in value]
        return [one for one in found if one is not None]
    return None


def ipv4(value, options=None):
    """Return an address, or those of a list, of version 4 with the properties of the options."""
    return _filtered(value, 4, options)


def ipv6(value, options=None):
    """Return an address, or those of a list, of version 6 with the properties of the options."""
    return _filtered(value, 6, options)


def ipaddr(value, options=None):
    """Return an address, or those of a list, with the properties of the options."""
    first, second = ipv4(value, options), ipv6(value, options)
    return first or second if first is None or second is None else first + second


def calculate_subnet(ip, netmask):
    """Return the network of an address and its netmask."""
    return str(ipaddress.ip_network("{}/{}".format(ip, netmask), strict=False))


def get_net_start(ipaddr, netmask):
    """Return the address of a network."""
    return str(ipaddress.ip_network("{}/{}".format(ipaddr, netmask), strict=False).network_address)


def get_net_size(mask):
    """Return the prefix length of a netmask."""
    return ipaddress.ip_network("0.0.0.0/" + mask).prefixlen


def natural_ipv4_netmask(ip, fmt="prefixlen"):
    """Return the netmask of the class of an address."""
    first = int(str(ip).split(".", maxsplit=1)[0])
    bits = 8 if first < 128 else 16 if first < 192 else 24
    return "/{}".format(bits) if fmt == "prefixlen" else cidr_to_ipv4_netmask(bits)


def rpad_ipv4_network(ip):
    """Return the first bytes of a network as an address."""
    return ".".join((str(ip).split(".") + ["0"] * 4)[:4])


def network_hosts(value, options=None, version=None):
    """Return the addresses of the hosts of a network."""
    return [str(host) for host in ipaddress.ip_network(value, strict=False).hosts()]


def network_size(value, options=None, version=None):
    """Return how many addresses a network has."""
    return ipaddress.ip_network(value, strict=False).num_addresses


def interface(iface):
    """Return what is known of a network interface."""
    found = interfaces()
    return found.get(iface, {}).get("inet") if iface in found else 'Interface "{}" not in available interfaces: "{}"'.format(
        iface, '", "'.join(found))


def interface_ip(iface):
    """Return the first address of version 4 of an interface."""
    found = interfaces()
    if iface not in found:
        return 'Interface "{}" not in available interfaces: "{}"'.format(iface, '", "'.join(found))
    inet = found[iface].get("inet") or found[iface].get("inet6")
    return inet[0].get("address", "") if inet else ""


def linux_interfaces():
    """Return the network interfaces."""
    return interfaces()


def _get_interfaces():
    return interfaces()


def _clear_interfaces():
    pass


def ip_networks(interface=None, include_loopback=False, verbose=False, interface_data=None):
    """Return the networks of the interfaces."""
    return _networks(interface, include_loopback, "inet")


def ip_networks6(interface=None, include_loopback=False, verbose=False, interface_data=None):
    """Return the networks of version 6 of the interfaces."""
    return _networks(interface, include_loopback, "inet6")


def _networks(wanted, loopback, kind):
    out = set()
    for name, data in interfaces().items():
        if wanted is not None and name != wanted:
            continue
        for part in data.get(kind, ()):
            mask = part.get("netmask" if kind == "inet" else "prefixlen")
            network = ipaddress.ip_network("{}/{}".format(part["address"], mask), strict=False)
            if loopback or not network.is_loopback:
                out.add(str(network))
    return sorted(out)


def gen_mac(prefix="AC:DE:48"):
    """Return a random address of a network card."""
    import random
    return "{}:{:02X}:{:02X}:{:02X}".format(prefix, random.randint(0, 255), random.randint(0, 255), random.randint(0, 255))


def mac_str_to_bytes(mac_str):
    """Return the bytes of the address of a network card."""
    digits = mac_str if len(mac_str) == 12 else "".join(mac_str[i:i + 2] for i in range(0, len(mac_str), 3))
    if len(digits) != 12:
        raise ValueError("Invalid MAC address")
    return bytes.fromhex(digits)


def mac2eui64(mac, prefix=None):
    """Return the part for the host of an address of version 6, or the whole with a prefix."""
    digits = "".join(c for c in mac if c not in ".:-").lower()
    flipped = "{:02x}".format(int(digits[:2], 16) ^ 2)
    eui = flipped + digits[2:6] + "fffe" + digits[6:]
    text = ":".join(eui[i:i + 4] for i in range(0, 16, 4))
    if prefix is None:
        return text
    network = ipaddress.ip_network(prefix, strict=False)
    return "{}/{}".format(network[int(eui, 16)], network.prefixlen)


def ip_bracket(addr, strip=False):
    """Return an address of version 6 in brackets, or without them."""
    addr = str(addr).strip("[]")
    return "[{}]".format(addr) if not strip and is_ipv6(addr) else addr


def parse_host_port(host_port):
    """Return the host and the port, or None, of a text."""
    host, port = host_port, None
    if host_port.startswith("["):
        host, _, rest = host_port[1:].partition("]")
        host = str(ipaddress.IPv6Address(host))
        port = rest[1:] if rest.startswith(":") else None
    elif host_port.count(":") == 1:
        host, port = host_port.split(":")
    try:
        return host, None if port is None else int(port)
    except ValueError:
        raise ValueError('host_port "{}" port value "{}" is not an integer.'.format(host_port, port)) from None


def dns_check(addr, port=80, safe=False, ipv6=None, attempt_connect=True):
    """Return the address of a host."""
    from salt.exceptions import SaltSystemExit
    family = {None: socket.AF_UNSPEC, True: socket.AF_INET6, False: socket.AF_INET}[ipv6]
    try:
        found = socket.getaddrinfo(addr, port, family, socket.SOCK_STREAM)
    except OSError:
        found = []
    if not found:
        raise SaltSystemExit("DNS lookup or connection check of '{}' failed.".format(addr))
    return ip_bracket(found[0][4][0])


def is_reachable_host(entity_name):
    """Report whether the name of a host is known."""
    try:
        return bool(socket.getaddrinfo(entity_name, 0))
    except OSError:
        return False


def refresh_dns():
    """Do nothing: names are looked up each time."""


def remote_port_tcp(port):
    """Return the addresses to whose port there are connections."""
    return {c["remote_addr"] for c in active_tcp().values() if str(c["remote_port"]) == str(port)}


def local_port_tcp(port):
    """Return the addresses that have connections to a port of this host."""
    return {c["remote_addr"] for c in active_tcp().values() if str(c["local_port"]) == str(port)}


def filter_by_networks(values, networks):
    """Return the addresses that are in networks."""
    if not networks:
        return values
    known = [ipaddress.ip_network(n) for n in networks]

    def inside(address):
        return any(ipaddress.ip_address(address) in n for n in known)
    if isinstance(values, dict):
        return {k: list(filter(inside, v)) for k, v in values.items()}
    return list(filter(inside, values))
