"""Prints what stock Salt's module file makes of some texts, and Python's
difflib of random ones:

    PYTHONPATH=SOURCE-OF-SALT python3 record.py > edits.json
"""

import difflib
import itertools
import json
import os
import random
import tempfile

import salt.config
import salt.loader

opts = salt.config.DEFAULT_MINION_OPTS.copy()
opts.update(test=False, file_client="local", root_dir=tempfile.mkdtemp(), cachedir=tempfile.mkdtemp())
opts["grains"] = {}
mods = salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))
TEXTS = ["", "a\n", "a", "a\nb\n", "a\nb\nc", "  a\n\tb\n", "a\r\nb\r\n", "a\na\n", "x=1\n#y=2\n# z=3\nxx\n", "\n\n", "a\n\nb\n", "start\nold\nend\nrest\n", "start\nend", "a start b\nold\nc end d\n", "start\nnever\n", "é\nü=1\n"]


def run(fun, text, **kw):
    with tempfile.NamedTemporaryFile("wb", delete=False) as f:
        f.write(text.encode())
    try:
        mods["file." + fun](f.name, **kw)
        with open(f.name, "rb") as g:
            return {"result": g.read().decode()}
    except Exception as e:  # the text of any is wanted
        return {"error": str(e)}
    finally:
        os.remove(f.name)


out = {"line": [], "replace": [], "block": [], "comment": [], "diff": []}
places = [{}, {"location": "start"}, {"location": "end"}, {"before": "b"}, {"after": "a"}, {"before": "b", "after": "a"}, {"after": "^x"}, {"before": "a"}, {"before": "c", "after": "a"}]
for text, mode, place, content in itertools.product(TEXTS[:11], ["insert", "ensure", "replace", "delete"], places, ["a", "new", "  in"]):
    for more in [{}, {"match": "b"}] if mode in ("replace", "delete") else [{}, {"indent": False}]:
        kw = dict(place, mode=mode, content=content, show_changes=False, **more)
        out["line"].append(dict(run("line", text, **kw), text=text, args=kw))
for text, pattern, repl in itertools.product(TEXTS[1:], ["a", "^a$", r"^#\s*(\w+)=(\d)", "nothing", r"\w+$", "x*"], ["b", r"\1", "", "a\\b"]):
    for more in [{}, {"count": 1}, {"append_if_not_found": True}, {"prepend_if_not_found": True, "not_found_content": "a"}, {"backslash_literal": True}, {"flags": ["IGNORECASE", "DOTALL"]}]:
        kw = dict(more, pattern=pattern, repl=repl, backup=False)
        out["replace"].append(dict(run("replace", text, **kw), text=text, args=kw))
for text, content in itertools.product(TEXTS, ["", "one", "one\n", "one\ntwo", "one\r\ntwo\n"]):
    for more in [{}, {"append_if_not_found": True}, {"prepend_if_not_found": True}, {"insert_before_match": "^b"}, {"insert_after_match": "a"}, {"append_newline": True, "append_if_not_found": True}, {"append_newline": None, "append_if_not_found": True}, {"append_if_not_found": True, "prepend_if_not_found": True}]:
        kw = dict(more, marker_start="start", marker_end="end", content=content, backup=False)
        out["block"].append(dict(run("blockreplace", text, **kw), text=text, args=kw))
for text, regex, char in itertools.product(TEXTS, ["a", "^x", "y=2", "^z=3$", "=", "b$"], ["#", "//"]):
    for cmnt in (True, False):
        kw = dict(regex=regex, char=char, cmnt=cmnt, backup=False)
        out["comment"].append(dict(run("comment_line", text, **kw), text=text, args=kw))
rnd = random.Random(7)
for n, words in [(0, 3), (5, 3), (20, 4), (60, 30), (300, 20), (400, 400)]:
    for _ in range(6):
        a = [f"{rnd.randrange(words)}\n" for _ in range(rnd.randint(0, n))]
        b = list(a)
        for _ in range(rnd.randint(0, 8)):
            i = rnd.randint(0, len(b))
            b[i:i + rnd.randint(0, 3)] = [f"{rnd.randrange(words)}\n" for _ in range(rnd.randint(0, 3))]
        if b and rnd.random() < 0.3:
            b[-1] = b[-1].strip()
        out["diff"].append({"a": a, "b": b, "diff": "".join(difflib.unified_diff(a, b))})
print(json.dumps(out, ensure_ascii=False, separators=(",", ":")))
