"""Names and addresses."""

import ipaddress
import socket


def parse_resolv(src="/etc/resolv.conf"):
    """Return what a file such as resolv.conf says."""
    out = {"nameservers": [], "ip4_nameservers": [], "ip6_nameservers": [], "sortlist": [], "domain": "", "search": [], "options": []}
    try:
        with open(src, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in lines:
        words = line.split()
        if len(words) < 2:
            continue
        directive, rest = words[0].lower(), []
        for word in words[1:]:
            if word[0] in "#;":
                break
            rest.append(word)
        if not rest:
            if directive == "search":
                out["search"] = []
            continue
        if directive == "nameserver":
            try:
                address = ipaddress.ip_address(rest[0])
            except ValueError:
                continue
            for key in ("nameservers", "ip{}_nameservers".format(address.version)):
                if str(address) not in out[key]:
                    out[key].append(str(address))
        elif directive == "domain":
            out["domain"] = rest[0]
        elif directive == "search":
            out["search"] = rest
        elif directive == "sortlist":
            for word in rest:
                network = _network(word)
                if network and network not in out["sortlist"]:
                    out["sortlist"].append(network)
        elif directive == "options" and rest[0] not in out["options"]:
            out["options"].append(rest[0])
    return out


def _network(text):
    """Return an entry of sortlist with a netmask; without one it is that of the address's class."""
    try:
        network = ipaddress.ip_network(text)
        if "/" not in text and network.version == 4:
            from salt.utils.network import natural_ipv4_netmask
            network = ipaddress.ip_network(text + natural_ipv4_netmask(text), strict=False)
    except ValueError:
        return None
    return network.with_netmask


def host(name, ip4=True, ip6=True, **_):
    """Return the addresses of a host by version."""
    out = {}
    for wanted, key, family in ((ip4, "ip4", socket.AF_INET), (ip6, "ip6", socket.AF_INET6)):
        if not wanted:
            continue
        try:
            found = [info[4][0] for info in socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)]
        except OSError:
            found = []
        if found:
            out[key] = found
    return out


def ptr_name(rdata):
    """Return the name whose PTR record belongs to an address."""
    try:
        return ipaddress.ip_address(rdata).reverse_pointer
    except ValueError:
        return False


def srv_name(svc, proto="tcp", domain=None):
    """Return the name of the SRV records of a service."""
    svc = str(svc)
    if "/" in svc:
        svc, proto = svc.split("/", 1)
    if svc.isdigit():
        svc = socket.getservbyport(int(svc), proto)
    return "_{}._{}".format(svc.strip("_"), proto.strip("_")) + ("." + domain if domain else "")


def lookup(name, rdtype, method=None, servers=None, timeout=None, walk=False, walk_tld=False, secure=None):
    """Return records of a name as a list of texts; false if they cannot be looked up.

    Addresses come from the resolver of the system, other records from the program dig.
    """
    import shutil
    import socket
    import subprocess
    family = {"A": socket.AF_INET, "AAAA": socket.AF_INET6}.get(rdtype)
    if family and not servers and not secure and method in (None, "auto", "gai"):
        try:
            return list(dict.fromkeys(found[4][0] for found in socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)))
        except socket.gaierror:
            return []
    dig = shutil.which("dig")
    if dig is None:
        return False
    command = [dig, "+short", "-t", rdtype] + (["+time={}".format(max(1, int(timeout)))] if timeout else [])
    command += ["@" + s for s in ([servers] if isinstance(servers, str) else servers or [])[:1]]
    found = subprocess.run(command + ["-q", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if found.returncode:
        return False
    return [line for line in found.stdout.decode("utf-8", "replace").splitlines() if line and not line.startswith(";")]
