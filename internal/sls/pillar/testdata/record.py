"""Compile the cases with stock Salt and print what comes out, as JSON.

    record.py CASES ROOT

ROOT is a folder for the trees and the cache; it is written as ROOT in the
outcome.
"""
import copy
import json
import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")
import salt.config
import salt.pillar

logging.disable(logging.CRITICAL)


def plain(v):
    if isinstance(v, dict):
        return {k if isinstance(k, str) else repr(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, bytes):
        return v.decode("utf-8", "surrogateescape")
    return v


def main():
    cases = json.load(open(sys.argv[1], encoding="utf-8"))
    root = sys.argv[2]
    out = []
    for i, case in enumerate(cases):
        base = os.path.join(root, str(i))
        for name, text in case["tree"].items():
            path = os.path.join(base, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace("ROOT", base))
        opts = salt.config.master_config(None)
        opts["cachedir"] = os.path.join(base, "cache")
        opts["extension_modules"] = os.path.join(base, "ext")
        opts["renderer"] = "jinja|yaml"
        opts["pillar_roots"] = {"base": [base + "/base"]}
        opts.update(json.loads(json.dumps(case.get("options", {})).replace("ROOT", base)))
        opts["__role"] = "master"
        opts["pki_dir"] = os.path.join(base, "pki")
        os.makedirs(opts["pki_dir"] + "/minions", exist_ok=True)
        open(opts["pki_dir"] + "/minions/" + case.get("id", "web1"), "w").close()
        opts["file_client"] = "local"
        try:
            p = salt.pillar.get_pillar(
                opts,
                dict(case.get("grains", {}), id=case.get("id", "web1")),
                case.get("id", "web1"),
                case.get("saltenv"),
                ext=case.get("ext"),
                pillar_override=copy.deepcopy(case.get("override")),
                pillarenv=case.get("pillarenv"),
                extra_minion_data=case.get("extra"),
            )
            got = plain(p.compile_pillar())
        except Exception as exc:  # as the master's answer would be ""
            got = {"__raised__": type(exc).__name__ + ": " + str(exc)}
        out.append(json.loads(json.dumps(got).replace(base, "ROOT")))
    json.dump(out, sys.stdout, indent=1, ensure_ascii=False)


main()
