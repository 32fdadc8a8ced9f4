"""Writes traverse.json: what Salt's traverse_dict_and_list finds. Needs PYTHONPATH to be a Salt 3007 source tree."""
import json

from salt.utils.data import traverse_dict_and_list

data = {
    "a": {"b": [{"x": 1}, {"y": 2, 0: "zero"}, "third", [1, 2, 3]], "": "empty key"},
    "list": ["p", "q", ["r", {"s": "t"}]],
    "dicts": [{"k": 1}, {"k": 2}, {"n": None}],
    "tuple": (1, ("x", 2)),
    "num": 5, "text": "abc", "none": None, "flag": True,
    1: "int one", 2.5: "float", True: "also one", False: "false key", None: "none key", "1": "text one",
    "10": "text ten", 7: {"8": "deep", 9: "int nine"}, -3: "minus", 644: "octal-like", 1000.0: "exp",
    2 ** 70: "big", "with space": {"in ner": 1}, "dot.ted": {"k": "v"}, "08": {"x": 1}, "0x10": "text", "yes": "text yes",
}
paths = ["", "a", "a:b", "a:b:0", "a:b:x", "a:b:y", "a:b:1", "a:b:2", "a:b:3", "a:b:3:0", "a:b:3:-1", "a:b:3:3", "a:b:-1", "a:b:-9", "a:b:z", "a:",
         "a:b:x:1", "list:0", "list:2:s", "list:2:1:s", "list:+1", "list: 1", "list:1_0", "list:0_1", "list:_1", "list:1_", "list:--1", "list:", "list:1.0", "list:99999999999999999999",
         "dicts:k", "dicts:n", "dicts:n:x", "tuple:0", "tuple", "tuple:x", "num:0", "text:0", "none", "none:x", "flag", "flag:x",
         "1", "2.5", "True", "true", "yes", "no", "False", "off", "None", "null", "~", "10", "7:8", "7:9", " 7:8", "-3", "+644", "0644", "00644", "1.0e+3", "1e3", "1000", "1000.0",
         "1180591620717411303424", "with space:in ner", "with space", "dot.ted:k", "dot.ted", "08:x", "8", "0x10", "1_000", "1:2", ":", "::", "+", "-", ".", "e", "1.2.3", "--3", "2.50", ".5", "nope", "nope:x", "1-2", "On", "oN", "#x", " "]


def tag(v):
    if isinstance(v, dict):
        return {"d": [[tag(k), tag(w)] for k, w in v.items()]}
    if isinstance(v, list):
        return {"l": [tag(w) for w in v]}
    if isinstance(v, tuple):
        return {"t": [tag(w) for w in v]}
    if isinstance(v, float):
        return {"f": repr(v)}
    if isinstance(v, int) and not isinstance(v, bool):
        return {"i": str(v)}
    return v


missing = object()
cases = []
for p in paths:
    for delim in (":", "|"):
        q = p.replace(":", delim)
        r = traverse_dict_and_list(data, q, missing, delim)
        cases.append([q, delim, r is not missing, tag(None if r is missing else r)])
with open("traverse.json", "w") as f:
    json.dump({"data": tag(data), "cases": cases}, f, separators=(",", ":"))
    f.write("\n")
