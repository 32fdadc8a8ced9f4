# Makes pillars with stock Salt's git_pillar, for each of some cases, which
# come as JSON on standard input, and prints them as JSON.
import copy, json, logging, os, shutil, sys, tempfile, warnings
warnings.simplefilter("ignore")
import salt.config, salt.pillar, salt.pillar.git_pillar, salt.utils.gitfs
logging.disable(logging.CRITICAL)

out = []
for case in json.load(sys.stdin):
    root = tempfile.mkdtemp()
    opts = salt.config.master_config(None)
    opts.update(cachedir=root + "/cache", extension_modules=root + "/ext", pki_dir=root + "/pki", renderer="jinja|yaml", pillar_roots={"base": [root + "/none"]}, __role="master", file_client="local")
    opts.update(case["options"])
    os.makedirs(root + "/pki/minions")
    open(root + "/pki/minions/web1", "w").close()
    for e in opts["ext_pillar"]:
        o = copy.deepcopy(opts)
        if case.get("pillarenv"):
            o["pillarenv"] = case["pillarenv"]
        if case.get("saltenv"):
            o["saltenv"] = case["saltenv"]
        g = salt.utils.gitfs.GitPillar(o, e["git"], per_remote_overrides=salt.pillar.git_pillar.PER_REMOTE_OVERRIDES, per_remote_only=salt.pillar.git_pillar.PER_REMOTE_ONLY, global_only=salt.pillar.git_pillar.GLOBAL_ONLY)
        g.fetch_remotes()
    p = salt.pillar.get_pillar(opts, {"id": "web1"}, "web1", case.get("saltenv"), pillarenv=case.get("pillarenv"))
    got = p.compile_pillar()
    out.append(json.loads(json.dumps(got)))
    shutil.rmtree(root)
json.dump(out, sys.stdout, indent=1, sort_keys=True)
