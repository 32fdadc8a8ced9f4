"""Modules of the standard library that had substitutes for old versions of Python."""

import ipaddress
import subprocess
import xml.etree.ElementTree as ElementTree

try:
    import importlib.metadata as importlib_metadata
except ImportError:  # Python 3.7
    importlib_metadata = None
