# Asks stock Salt's gitfs about a repository, for each of some configurations,
# which come as JSON on standard input. The answers go to standard output.
import json, sys, os, tempfile, shutil
import salt.config, salt.fileserver, salt.utils.gitfs
import logging
logging.disable(logging.CRITICAL)

url, cases, asks = json.load(sys.stdin)
out = []
for case in cases:
    text = json.dumps(case).replace("@URL@", url)
    conf = json.loads(text)
    root = tempfile.mkdtemp()
    opts = salt.config.master_config(None)
    opts.update(cachedir=root + "/cache", root_dir=root, sock_dir=root, fileserver_backend=["gitfs"], fileserver_list_cache_time=0)
    opts.update(conf)
    salt.utils.gitfs.GitFS.instance_map.clear()
    fs = salt.fileserver.Fileserver(opts)
    fs.init()
    fs.update()
    got = {"envs": sorted(fs.envs())}
    for env in asks["envs"]:
        load = {"saltenv": env, "prefix": ""}
        e = {"files": sorted(fs.file_list(dict(load))), "dirs": sorted(fs.dir_list(dict(load))),
             "links": {k: v.decode() if isinstance(v, bytes) else v for k, v in sorted(fs.symlink_list(dict(load)).items())},
             "empty": fs.file_list_emptydirs(dict(load)), "found": {}}
        for path in asks["paths"]:
            f = fs.find_file(path, env)
            if f["path"]:
                with open(f["path"], "rb") as fp:
                    e["found"][path] = [f["rel"], f.get("stat"), fp.read().decode()]
        got[env] = e
    out.append(got)
    shutil.rmtree(root)
json.dump(out, sys.stdout, indent=1, sort_keys=True)
