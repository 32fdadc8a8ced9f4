"""RPM packages."""

import collections
import datetime
import platform
import subprocess

ARCHES_64 = ("x86_64", "athlon", "amd64", "ia32e", "ia64", "geode")
ARCHES_32 = ("i386", "i486", "i586", "i686")
ARCHES_PPC = ("ppc", "ppc64", "ppc64le", "ppc64iseries", "ppc64pseries")
ARCHES_S390 = ("s390", "s390x")
ARCHES_SPARC = ("sparc", "sparcv8", "sparcv9", "sparcv9v", "sparc64", "sparc64v")
ARCHES_ALPHA = ("alpha", "alphaev4", "alphaev45", "alphaev5", "alphaev56", "alphapca56", "alphaev6", "alphaev67", "alphaev68", "alphaev7")
ARCHES_ARM_32 = ("armv5tel", "armv5tejl", "armv6l", "armv6hl", "armv7l", "armv7hl", "armv7hnl")
ARCHES_ARM_64 = ("aarch64",)
ARCHES_SH = ("sh3", "sh4", "sh4a")
ARCHES = (ARCHES_64 + ARCHES_32 + ARCHES_PPC + ARCHES_S390 + ARCHES_ALPHA + ARCHES_ARM_32 + ARCHES_ARM_64 + ARCHES_SH)
QUERYFORMAT = "%{NAME}_|-%{EPOCH}_|-%{VERSION}_|-%{RELEASE}_|-%{ARCH}_|-%{REPOID}_|-%{INSTALLTIME}"

_Info = collections.namedtuple("PkgInfo", "name version arch repoid install_date install_date_time_t")


def get_osarch():
    """Return the architecture of packages of this machine."""
    try:
        found = subprocess.run(["rpm", "--eval", "%{_host_cpu}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        text = found.stdout.decode().strip()
    except OSError:
        text = ""
    return text or platform.machine()


def check_32(arch, osarch=None):
    """Report whether two architectures are both of 32 bits."""
    osarch = osarch or get_osarch()
    return any(arch in kind and osarch in kind for kind in (ARCHES_32, ARCHES_ARM_32))


def pkginfo(name, version, arch, repoid, install_date=None, install_date_time_t=None):
    """Return the facts about a package."""
    return _Info(name, version, arch, repoid, install_date, install_date_time_t)


def resolve_name(name, arch, osarch=None):
    """Return the name of a package, with the architecture if it is not the machine's."""
    osarch = osarch or get_osarch()
    if arch in (osarch, "noarch") or check_32(arch, osarch):
        return name
    return name + "." + arch


def parse_pkginfo(line, osarch=None):
    """Return the facts in a line of QUERYFORMAT, or None."""
    parts = line.split("_|-")
    if len(parts) != 7:
        return None
    name, epoch, version, release, arch, repoid, installed = parts
    if release:
        version += "-" + release
    if epoch not in ("(none)", "0"):
        version = epoch + ":" + version
    when = seconds = None
    if installed not in ("(none)", "0"):
        seconds = int(installed)
        when = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S") + "Z"
    return pkginfo(resolve_name(name, arch, osarch), version, arch, repoid, when, seconds)


def combine_comments(comments):
    """Return comments as the lines of a file."""
    if not isinstance(comments, (list, tuple)):
        comments = [comments]
    return "".join("# {}\n".format(str(c).lstrip("#").strip()) for c in comments)


def version_to_evr(verstring):
    """Return the epoch, version and release of a version."""
    if verstring in (None, ""):
        return "0", "", ""
    epoch, _, rest = verstring.rpartition(":")
    version, _, release = rest.partition("-")
    return epoch if epoch.strip().isdigit() else "0", version, release
