# Makes pillars with stock Salt and external sources, for each of some cases,
# which come as JSON on standard input, and prints them as JSON.
import json, logging, os, shutil, sys, tempfile, warnings
warnings.simplefilter("ignore")
import salt.config, salt.pillar
logging.disable(logging.CRITICAL)

out = []
for case in json.load(sys.stdin):
    root = tempfile.mkdtemp()
    opts = salt.config.master_config(None)
    opts.update(cachedir=root + "/cache", extension_modules=root + "/ext", pki_dir=root + "/pki", renderer="jinja|yaml", pillar_roots={"base": [root + "/none"]},
                __role="master", file_client="local", ext_pillar=case["ext_pillar"], http_request_timeout=30)
    opts.update(case.get("options", {}))
    os.makedirs(root + "/pki/minions")
    open(root + "/pki/minions/web1", "w").close()
    p = salt.pillar.get_pillar(opts, {"id": "web1", "role": "a b/c", "nested": {"n": "deep"}}, "web1", case.get("saltenv"), pillarenv=case.get("pillarenv"))
    try:
        got = p.compile_pillar()
    except Exception as e:
        got = {"__raised__": str(e)}
    out.append(json.loads(json.dumps(got, default=str)))
    shutil.rmtree(root)
json.dump(out, sys.stdout, indent=1, sort_keys=True)
