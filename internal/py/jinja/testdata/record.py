#!/usr/bin/env python3
"""Records what Python's jinja2 makes of the templates in cases.txt, into
golden.json. Run it in this folder with a Python 3 that has jinja2 3.1.

cases.txt holds cases, each begun by a line "=== name [options]". Options are
pairs key=value of JSON for the environment. A line "--- file" begins another
template that the case can load. The variables are those of VARS below.
"""
import json
import sys
import jinja2
import jinja2.sandbox

VARS = {
    "name": "world", "n": 5, "f": 2.5, "t": True, "nothing": None, "s": "hello World", "empty": "",
    "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": 2, "C": 3},
    "users": [{"name": "joe", "age": 30, "city": "X"}, {"name": "Ann", "age": 25, "city": "y"}, {"name": "bob", "age": 30, "city": "x"}],
    "tree": [{"n": "a", "kids": [{"n": "b", "kids": []}, {"n": "c", "kids": [{"n": "d", "kids": []}]}]}],
    "html": "<b>\"x\" & 'y'</b>", "uni": "grüße ✓", "nested": {"a": {"b": [1, {"c": "deep"}]}}, "items_": [],
}


def cases(path):
    name, opts, files, cur = None, None, None, None
    for line in open(path, encoding="utf-8", newline=""):
        if line.startswith("=== "):
            if name is not None:
                yield name, opts, {k: "".join(v)[:-1] for k, v in files.items()}
            name, _, rest = line[4:].strip().partition(" ")
            opts = json.loads("{" + rest + "}") if rest else {}
            files = {"main": []}
            cur = files["main"]
        elif line.startswith("--- "):
            cur = files.setdefault(line[4:].strip(), [])
        else:
            cur.append(line)
    yield name, opts, {k: "".join(v)[:-1] for k, v in files.items()}


def unescape(text):
    return text.replace("␍", "\r").replace("␉", "\t")


def run(opts, files):
    opts = dict(opts)
    kind = opts.pop("undefined", "strict")
    undefined = {"strict": jinja2.StrictUndefined, "default": jinja2.Undefined,
                 "chainable": jinja2.ChainableUndefined, "debug": jinja2.DebugUndefined}[kind]
    env = jinja2.sandbox.SandboxedEnvironment(
        undefined=undefined, loader=jinja2.DictLoader(files), extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"], **opts)
    try:
        t = env.get_template("main")
        out = t.render(**json.loads(json.dumps(VARS)))
        return {"out": out}
    except jinja2.TemplateSyntaxError as e:
        return {"error": type(e).__name__, "message": e.message, "line": e.lineno}
    except Exception as e:
        line, where = 0, ""
        tb = e.__traceback__
        while tb is not None:
            fn = tb.tb_frame.f_code.co_filename
            if fn in ("<template>",) or tb.tb_frame.f_globals.get("__jinja_template__"):
                tpl = tb.tb_frame.f_globals.get("__jinja_template__")
                if tpl is not None:
                    line = tpl.get_corresponding_lineno(tb.tb_lineno)
            if tb.tb_frame.f_code.co_name in ("template", "top-level template code") or tb.tb_frame.f_code.co_name.startswith("block "):
                line = tb.tb_lineno
            tb = tb.tb_next
        return {"error": type(e).__name__, "message": str(e), "line": line}


out = []
seen = set()
for name, opts, files in cases(sys.argv[1] if len(sys.argv) > 1 else "cases.txt"):
    assert name not in seen, name
    seen.add(name)
    files = {k: unescape(v) for k, v in files.items()}
    r = {"name": name, "files": files}
    if opts:
        r["opts"] = opts
    r.update(run(opts, files))
    out.append(r)
json.dump({"vars": VARS, "cases": out}, open("golden.json", "w"), indent=0, ensure_ascii=False)
print(len(out), "cases")
