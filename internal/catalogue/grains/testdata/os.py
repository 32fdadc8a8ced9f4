"""Writes os.json: the os grains that Salt derives from the files in os.txt.

Needs PYTHONPATH to be a Salt 3007 source tree and the Python library distro.
"""
import builtins
import json
import os
import platform
import tempfile

import distro

import salt.grains.core as core
import salt.utils.files
import salt.utils.platform

machines, files = {}, None
for line in open("os.txt"):
    if line.startswith("== "):
        files = machines[line[3:].strip()] = {}
    elif line.startswith("-- ") and files is not None:
        name = line[3:].strip()
        files[name] = ""
    elif files:
        files[name] += line

core.__opts__ = {}
real_isfile, real_fopen = os.path.isfile, salt.utils.files.fopen
out = {}
for machine, files in machines.items():
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "w") as f:
                f.write(text)

        def inside(path):
            return root + path if isinstance(path, str) and path.startswith("/etc") else path

        os.path.isfile = lambda p: real_isfile(inside(p))
        salt.utils.files.fopen = lambda p, *a, **k: real_fopen(inside(p), *a, **k)
        platform._os_release_candidates = (root + "/etc/os-release", root + "/usr/lib/os-release")
        platform._os_release_cache = None
        salt.utils.platform.distro = distro.LinuxDistribution(include_lsb=False, include_uname=False, root_dir=root)
        try:
            grains = core._linux_distribution_data()
        finally:
            os.path.isfile, salt.utils.files.fopen = real_isfile, real_fopen
        if grains.get("osrelease", ""):
            grains.update(core._osrelease_data(grains["os"], grains["osfullname"], grains["osrelease"]))
        out[machine] = grains
with open("os.json", "w") as f:
    json.dump(out, f, indent=1, sort_keys=True)
    f.write("\n")
