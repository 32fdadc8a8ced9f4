"""Records what Salt makes of the trees in compile/*.txtar.

usage: PYTHONPATH=SALT python3 record.py [NAME...]

Each file holds the SLS files of an environment: FOLDER/NAME, where the folder
"base" is the environment base. A file "config" holds further options. The
sections want.high and want.low are rewritten: what state.show_highstate and
state.show_lowstate return, as JSON.
"""
import glob, json, logging, os, shutil, sys, tempfile

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


def call(opts, fun):
    try:
        caller = salt.client.Caller(mopts=dict(opts))
        return caller.cmd(fun)
    except BaseException as exc:
        return {"exception": type(exc).__name__, "text": str(exc)}


def main():
    names = sys.argv[1:]
    for path in sorted(glob.glob(os.path.join(here, "compile", "*.txtar"))):
        if names and os.path.basename(path)[:-6] not in names:
            continue
        comment, files = read(path)
        d = tempfile.mkdtemp()
        envs = {}
        for name, text in files.items():
            if "/" not in name:
                continue
            env = name.split("/")[0]
            envs[env] = [os.path.join(d, env)]
            p = os.path.join(d, name)
            os.makedirs(os.path.dirname(p), exist_ok=True)
            open(p, "w").write(text)
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
            for kind in ("high", "low"):
                got = call(opts, "state.show_%sstate" % kind)
                if isinstance(got, list) and kind == "low":
                    text = "[\n" + ",\n".join(json.dumps(c, default=str) for c in got) + "\n]"
                else:
                    text = json.dumps(got, default=str)
                f.write("-- want.%s --\n%s\n" % (kind, text.replace(d, "@")))
        shutil.rmtree(d)
        print(os.path.basename(path))


main()
