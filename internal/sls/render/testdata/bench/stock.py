#!/usr/bin/env python3
"""Takes the processor time of what BenchmarkFormula and BenchmarkJinja do, with stock Salt: run it
with PYTHONPATH set to a tree of Salt 3007."""
import os
import shutil
import tempfile
import time
from collections import OrderedDict

import salt.fileclient
import salt.utils.templates as T
from salt.utils import yamlloader

here = os.path.dirname(os.path.abspath(__file__))
root = tempfile.mkdtemp()
os.makedirs(root + "/roots/app")
for f in ("map.jinja", "defaults.yaml", "libtofs.jinja"):
    shutil.copy(here + "/" + f, root + "/roots/app/" + f)
src = open(here + "/init.sls").read()
opts = {"cachedir": root + "/cache", "file_client": "local", "id": "m1", "file_roots": {"base": [root + "/roots"]}, "pillar_roots": {"base": []},
        "fileserver_backend": ["roots"], "file_ignore_regex": [], "file_ignore_glob": [], "extension_modules": "", "fileserver_followsymlinks": True,
        "fileserver_ignoresymlinks": False, "hash_type": "sha256", "sock_dir": root, "optimization_order": [0], "grains": {}, "pillarenv": None, "saltenv": None}
client = salt.fileclient.get_file_client(opts)
client.get_file = lambda path, *a, **k: path


class Loader(T.salt.utils.jinja.SaltCacheLoader):
    """The files are there already: only rendering is timed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.searchpath = [root + "/roots"]


T.salt.utils.jinja.SaltCacheLoader = Loader


def jinja():
    return T.render_jinja_tmpl(src, {"opts": opts, "saltenv": "base", "sls": "app", "salt": {}, "pillar": {}, "fileclient": client,
                                     "grains": {"os": "Debian", "os_family": "Debian", "id": "m1"}, "tpldir": "app"})


def formula():
    out = yamlloader.load(jinja(), Loader=lambda s: yamlloader.SaltYamlSafeLoader(s, dictclass=OrderedDict))
    assert len(out) == 81, len(out)


for name, f in (("formula", formula), ("jinja", jinja)):
    times = []
    for _ in range(15):
        start = time.process_time()
        f()
        times.append(time.process_time() - start)
    print(name, "%.2f ms" % (sorted(times)[7] * 1000))
shutil.rmtree(root)
