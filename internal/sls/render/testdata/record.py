#!/usr/bin/env python3
"""Records what stock Salt's jinja renderer makes of the lines of filters.txt,
into filters.json: each line is an expression, rendered in {{ }}. Run it in
this folder with PYTHONPATH set to a tree of Salt 3007."""
import json
import sys
import types

import salt.loader.dunder
import salt.utils.templates as T
import salt.utils.network, salt.utils.http, salt.utils.user, salt.utils.path, salt.utils.dictupdate, salt.modules.match  # noqa

opts = {"cachedir": "/tmp/none", "file_client": "local", "id": "m1"}
out = []
for line in open("filters.txt", encoding="utf-8"):
    line = line.rstrip("\n")
    if not line or line.startswith("#"):
        continue
    ctx = {"opts": opts, "saltenv": "", "grains": {"os": "Debian", "n": [3, 1, 2]}, "pillar": {}, "salt": {}}
    r = {"expr": line.lstrip("~")}
    only = line.startswith("~")  # whether there is an error, not which
    line = line.lstrip("~")
    src = line if line.startswith("{%") else "{{ " + line + " }}"
    try:
        r["out"] = T.render_jinja_tmpl(src, ctx)
    except Exception as e:
        r["error"] = str(e).split("; line")[0].split("\n")[0]
    if only and "error" in r:
        r["error"] = ""
    out.append(r)
json.dump(out, open("filters.json", "w"), indent=0, ensure_ascii=False)
print(len(out))
