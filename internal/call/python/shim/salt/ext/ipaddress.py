"""The module of the standard library."""

from ipaddress import *
from ipaddress import _BaseAddress, _BaseNetwork, _IPAddressBase
