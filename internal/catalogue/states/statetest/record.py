"""Prints what stock Salt's states do with the cases of a table, as JSON:

    record.py TABLE.json MACHINE.sh FOLDER

Runs as root in a mount namespace of its own, see statetest.go.
"""

import json
import os
import re
import subprocess
import sys

import salt.client
import salt.config
import salt.loader
import salt.minion
import salt.state
import salt.utils.yaml

table_path, machine, folder = sys.argv[1:4]
with open(table_path) as f:
    table = json.load(f)


def shell(*argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done


def must(*argv):
    done = shell(*argv)
    if done.returncode:
        sys.exit("%r failed:\n%s" % (argv, done.stdout))
    return done.stdout


must("sh", machine, "begin", folder)
must("sh", "-ec", table.get("prepare") or "")
must("sh", machine, "keep", folder)
opts = salt.config.minion_config(None)
opts.update(file_client="local", file_roots={"base": ["/srv/salt"]}, pillar_roots={"base": []}, root_dir=folder, cachedir=folder + "/cache",
            pki_dir=folder + "/pki", conf_file="/etc/salt/minion", sock_dir=folder + "/s", log_file=folder + "/log", id="rec", fileserver_list_cache_time=0)
opts.update(table.get("options") or {})
opts["pillar"] = {}


def untraced(text):
    """Leaves only the error of a traceback: its frames quote Salt's source, and
    an environment has paths of the machine."""
    text = re.sub(r"'env': \{[^{}]*\}", "'env': {}", text)
    return re.sub(r"(Traceback \(most recent call last\):\n)(?: .*\n)+", r"\1", text)


def run(chunks, test):
    chunks = json.loads(json.dumps(chunks))
    opts["grains"] = json.loads(json.dumps(table.get("grains") or {}))
    if table.get("stored") and os.path.exists("/etc/salt/grains"):
        with open("/etc/salt/grains") as f:
            opts["grains"].update(salt.utils.yaml.safe_load(f) or {})
    st = salt.state.State(dict(opts, test=test))
    st.inject_globals["__reqs__"] = {}
    out = []
    try:
        rets = st.call_chunks(chunks)
    except Exception as e:
        return [{"crash": str(e)}]
    for tag, ret in rets.items():
        if tag.startswith("test_|-changed_|-" if table.get("tests") else "test_|-"):
            continue
        one = {k: ret.get(k) for k in ("result", "comment", "changes", "warnings") if k in ret}
        if isinstance(one["comment"], (Exception, int)):
            one["comment"] = str(one["comment"])
        elif not isinstance(one["comment"], str):
            one["comment"] = "\n".join(map(str, one["comment"]))
        one["comment"] = untraced(one["comment"])
        if table.get("names") and str(ret.get("name")) != tag.split("_|-")[2]:
            one["name"] = ret["name"]
        out.append(one)
    return out


out = []
for case in table["cases"]:
    if table.get("fresh", True):
        must("sh", machine, "reset", folder)
    for part in (table, case):
        if part.get("setup"):
            must("sh", "-ec", part["setup"])
    show = lambda: shell("sh", "-c", case.get("show") or table.get("show") or "true").stdout
    done = {"case": case["name"], "test": run(case["chunks"], True), "run": run(case["chunks"], False), "shown": show(), "again": run(case["chunks"], False)}
    out.append(done)


class Lenient(json.JSONEncoder):
    def default(self, o):
        if isinstance(o, (set, frozenset)):
            return sorted(o)
        return str(o)


def masked(v):
    if isinstance(v, dict):
        return {masked(k): it if k == "case" else masked(it) for k, it in v.items()}
    if isinstance(v, list):
        return [masked(it) for it in v]
    if isinstance(v, str):
        for old, new in table.get("mask") or []:
            v = re.sub(old, new, v)
    elif isinstance(v, int) and not isinstance(v, bool) and masked(str(v)) != str(v):
        return masked(str(v))
    return v


plain = json.loads(json.dumps({"cases": out}, cls=Lenient))
print(json.dumps(masked(plain), indent=1, sort_keys=True, ensure_ascii=True))
