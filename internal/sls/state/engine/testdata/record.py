"""Records what Salt makes of the trees in run/*.txtar.

usage: PYTHONPATH=SALT python3 record.py [NAME...]

Each file holds the SLS files of an environment: FOLDER/NAME, where the folder
"base" is the environment base. A file "config" holds further options. The
sections want.run and want.test are rewritten: what state.highstate returns,
without and with test=True, a result per line as JSON, without times. @ stands
for a folder that is empty before each run.
"""
import glob, json, logging, os, re, shutil, subprocess, sys, tempfile

import salt.client
import salt.config
import yaml

logging.disable(logging.CRITICAL)
here = os.path.dirname(os.path.abspath(__file__))


def read(path):
    comment, files, name = [], {}, None
    for line in open(path):
        if line.startswith("-- ") and line.rstrip().endswith(" --"):
            name = line.strip()[3:-3]
            files[name] = ""
        elif name is None:
            comment.append(line)
        else:
            files[name] += line
    return "".join(comment), files


def call(opts, fun, **kwargs):
    try:
        caller = salt.client.Caller(mopts=dict(opts))
        return caller.cmd(fun, **kwargs)
    except BaseException as exc:
        return {"exception": type(exc).__name__, "text": str(exc)}


def command(conf, fun, **kwargs):
    """As call, in a process of its own: parallel states need one."""
    script = os.path.join(os.path.dirname(salt.client.__file__), "../../scripts/salt-call")
    args = ["%s=%s" % i for i in kwargs.items()]
    out = subprocess.run([sys.executable, "-W", "ignore", script, "--local", "-c", conf, "--out=json", fun] + args, stdout=subprocess.PIPE).stdout
    return json.loads(out)["local"]


def main():
    names = sys.argv[1:]
    for path in sorted(glob.glob(os.path.join(here, "run", "*.txtar"))):
        if names and os.path.basename(path)[:-6] not in names:
            continue
        comment, files = read(path)
        if comment.startswith("Not recorded"):
            continue
        d = tempfile.mkdtemp()
        envs = {}
        for name, text in files.items():
            if "/" not in name:
                continue
            env = name.split("/")[0]
            envs[env] = [os.path.join(d, env)]
            p = os.path.join(d, name)
            os.makedirs(os.path.dirname(p), exist_ok=True)
            open(p, "w").write(text.replace("@", d + "/work"))
        conf = {"id": "tester", "file_client": "local", "root_dir": d + "/root", "log_file": d + "/log", "log_level": "quiet",
                "cachedir": d + "/cache", "pki_dir": d + "/pki", "sock_dir": d + "/sock", "file_roots": envs, "pillar_roots": {"base": [d + "/pillar"]},
                "enable_fqdns_grains": False, "enable_gpu_grains": False, "grains_cache": False, "autoload_dynamic_modules": False}
        conf.update(yaml.safe_load(files.get("config", "")) or {})
        os.makedirs(d + "/root")
        with open(d + "/minion", "w") as f:
            yaml.safe_dump(conf, f)
        opts = salt.config.minion_config(d + "/minion")
        opts["grains"] = {"os": "Debian", "id": "tester"}
        with open(path, "w") as f:
            f.write(comment)
            for name, text in files.items():
                if not name.startswith("want."):
                    f.write("-- %s --\n%s" % (name, text))
            for kind in ("test", "run"):
                shutil.rmtree(d + "/work", ignore_errors=True)
                os.makedirs(d + "/work")
                if "parallel:" in "".join(files.values()):
                    got = command(d, "state.highstate", test=kind == "test")
                else:
                    got = call(opts, "state.highstate", test=kind == "test")
                if isinstance(got, dict) and "exception" not in got:
                    lines = []
                    for tag, r in sorted(got.items(), key=lambda i: i[1].get("__run_num__", -1)):
                        for k in ("start_time", "duration"):
                            r.pop(k, None)
                        # The frames of a traceback quote Salt's source.
                        if isinstance(r, dict) and isinstance(r.get("comment"), str):
                            r["comment"] = re.sub(r"(Traceback \(most recent call last\):\n)(?: .*\n)+", r"\1", r["comment"])
                        lines.append(json.dumps({tag: r}, default=str))
                    text = "\n".join(lines)
                else:
                    text = json.dumps(got, default=str)
                f.write("-- want.%s --\n%s\n" % (kind, text.replace(d + "/work", "@")))
        shutil.rmtree(d)
        print(os.path.basename(path))


main()
