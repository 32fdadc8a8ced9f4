#!/usr/bin/env python3
"""Records what stock Salt's renderer stateconf makes of the SLS files in
stateconf.txtar, in their order and in one run, into stateconf.json: the data,
or the text of the error. Run it in this folder with PYTHONPATH set to a tree
of Salt 3007."""
import json
import os
import re
import tempfile

import salt.config
import salt.loader
import salt.template

opts = salt.config.minion_config(None)
tmp = tempfile.mkdtemp()
opts.update(cachedir=tmp, file_client="local", id="m1", file_roots={"base": [tmp]}, grains={"os": "Debian"})
renderers = salt.loader.render(opts, {})
out = {}
name = None
files = {}
for line in open("stateconf.txtar"):
    m = re.match(r"-- (\S+) --$", line)
    if m:
        name = m.group(1)
        files[name] = ""
    elif name:
        files[name] += line
for name, text in files.items():
    path = os.path.join(tmp, name.replace(".", "/") + ".sls")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(text)
    try:
        out[name] = {"data": salt.template.compile_template(path, renderers, "jinja|yaml", None, None, saltenv="base", sls=name)}
    except Exception as e:
        out[name] = {"error": str(e).split("\n")[0]}
json.dump(out, open("stateconf.json", "w"), indent=1)
print({k: list(v) for k, v in out.items()})
