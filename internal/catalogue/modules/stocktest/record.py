"""Run a table of jobs through a real Salt minion's own job code and write down
what each returns. Usage: record.py TABLE.json, with Salt's source tree in
PYTHONPATH. The table is rewritten in place; see stocktest.go for its form."""

import copy
import json
import os
import re
import sys
import tempfile
import types
import warnings

warnings.simplefilter("ignore")

import salt.config
import salt.minion
import salt.utils.error


def write_pillar(top, pillar):
    root = os.path.join(top, "pillar")
    os.makedirs(root, exist_ok=True)
    for name, data in (("top", {"base": {"*": ["all"]}}), ("all", pillar)):
        with open(os.path.join(root, name + ".sls"), "w") as out:
            out.write("#!json\n")
            json.dump(data, out)
    return {"base": [root]}


def minion(extra, pillar):
    top = os.environ.get("RECORD_DIR") or tempfile.mkdtemp()
    conf = os.path.join(top, "minion")
    if pillar:
        extra = dict(extra, pillar_roots=write_pillar(top, pillar))
    with open(conf, "w") as out:
        json.dump(
            dict(
                {
                    "id": "alpha",
                    "root_dir": top,
                    "file_client": "local",
                    "multiprocessing": False,
                    "grains_cache": False,
                    "enable_fqdns_grains": False,
                },
                **extra,
            ),
            out,
        )
    opts = salt.config.minion_config(conf)
    opts["local"] = True
    os.makedirs(os.path.join(opts["cachedir"], "proc"), exist_ok=True)
    m = salt.minion.SMinion(opts)
    m.connected = True
    m.proc_dir = os.path.join(opts["cachedir"], "proc")
    m.function_errors = {}
    m.module_executors = []
    m.gen_modules = lambda: None
    m._return_retry_timer = lambda max=False: 1
    m._fire_master = lambda *a, **k: None
    m._execute_job_function = types.MethodType(
        salt.minion.Minion._execute_job_function, m
    )
    salt.utils.error.fire_exception = lambda *a, **k: None
    return m


def run(m, case):
    got = {}
    m._return_pub = lambda ret, timeout=None: got.update(ret)
    data = {
        "fun": case["fun"],
        "arg": copy.deepcopy(case.get("arg", [])),
        "jid": "20260101000000000000",
        "ret": "",
        "tgt": "alpha",
        "tgt_type": "glob",
        "user": "root",
    }
    salt.minion.Minion._thread_return(m, m.opts, data)
    got["return"] = shorten(got["return"])
    for field in ("return", "retcode", "success"):
        case[field] = json.loads(json.dumps(got[field], default=repr))
    case.pop("out", None)
    if "out" in got:
        case["out"] = got["out"]


def shorten(ret):
    """Leave out tracebacks, documentation and environments: not compared."""
    if not isinstance(ret, str):
        return ret
    if ret.startswith("The minion function caused an exception: "):
        return "The minion function caused an exception: " + ret.strip().splitlines()[-1]
    if ret.startswith("Passed invalid arguments to "):
        return ret.splitlines()[0]
    # That text holds the environment of this process, which is nobody's business.
    return re.sub("with the context '.*', reason:", "with the context '', reason:", ret, flags=re.S)


def main():
    os.chdir("/")
    with open(sys.argv[1]) as src:
        table = json.load(src)
    m = minion(table.get("minion") or {}, table.get("pillar"))
    for case in table["jobs"]:
        run(m, case)
    with open(sys.argv[1], "w") as out:
        out.write('{"minion": %s,\n' % json.dumps(table.get("minion", {})))
        if "pillar" in table:
            out.write(' "pillar": %s,\n' % json.dumps(table["pillar"]))
        out.write(' "jobs": [\n')
        out.write(",\n".join("  " + json.dumps(case) for case in table["jobs"]))
        out.write("\n ]}\n")


main()
