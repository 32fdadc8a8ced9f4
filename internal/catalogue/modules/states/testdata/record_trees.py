#!/usr/bin/env python3
"""Records what stock Salt makes of the trees in trees.txtar, into trees.json:
what is shown, or that it fails. Run it in this folder with PYTHONPATH set to
a tree of Salt 3007."""
import json
import logging
import os
import re
import tempfile

logging.disable(logging.CRITICAL)

import salt.client
import salt.config

cases, at = {}, None
for line in open("trees.txtar", encoding="utf-8"):
    m = re.match(r"-- (.*)/([^/]*) --$", line)
    if m:
        at = m.groups()
        cases.setdefault(at[0], {})[at[1]] = ""
    elif at:
        cases[at[0]][at[1]] += line

out = {}
for name, files in cases.items():
    with tempfile.TemporaryDirectory() as d:
        for f, text in files.items():
            path = os.path.join(d, "srv", f if f in ("x.sls", "top.sls") else name + "/" + f)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as w:
                w.write(text)
        with open(d + "/minion", "w", encoding="utf-8") as w:
            json.dump({"id": "web1", "file_client": "local", "root_dir": d + "/root", "file_roots": {"base": [d + "/srv"]}, "pillar_roots": {"base": []},
                       "grains": {"os": "Debian"}, "enable_fqdns_grains": False, "enable_gpu_grains": False}, w)
        caller = salt.client.Caller(mopts=salt.config.minion_config(d + "/minion"))
        try:
            v = caller.cmd("state.show_top") if "top.sls" in files else caller.cmd("state.show_low_sls", "x")
        except Exception as e:
            v = str(e)
        failed = isinstance(v, str) or isinstance(v, list) and all(isinstance(i, str) for i in v)
        out[name] = {"fails": True} if failed else {"shows": v}
with open("trees.json", "w", encoding="utf-8") as w:
    json.dump(out, w, indent=1, sort_keys=True)
    w.write("\n")
print(len(out))
