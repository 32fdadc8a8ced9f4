"""Writes dump.json: what Salt's own dumper makes of values.

    PYTHONPATH=<salt source> python3 dump.py

Each row has the value as YAML that loads into it, and the dumped texts.
"""

import base64
import json

import salt.utils.yaml

STRINGS = [
    "", " ", "a", "a b", " a", "a ", "a\n", "\na", "a\nb", "a\n\nb", "a\nb\n", "a\n\n", "\n", "\n\n", "a \nb", "a\n b", "a\n  b\n", "a\tb", "\ta", "a\t", "\t", "a\rb", "a\r\nb", "a\x85b", "a\u2028b", "a\u2029b", "a\xa0b", "\xa0", "\ufeffa", "a\ufeff", "\x00", "a\x01", "a\x7f", "a\x80", "a\x9f", "\x1b[0m",
    "é", "日本語", "\U0001f600", "\ud7ff", "\ue000", "\ufffd", "a\U00010000b", "ünïcödé wörds",
    "0", "1", "01", "0644", "08", "0x1f", "0b1", "0o7", "1_000", "1.5", "1.", ".5", "1e3", "1.0e+3", "1:30", "190:20:30", "-1", "+1", "-", "--", "---", "--- a", "----", "...", "... a", "....", ".inf", ".nan", "-.inf", "true", "True", "yes", "no", "on", "off", "y", "n", "null", "Null", "~", "~a", "none", "None", "=", "<<", "<<a", "!", "&", "*", "!a", "&a", "*a", "2020-01-01", "2020-1-1", "2020-01-01 00:00:00", "2020-01-01T00:00:00Z", "2020-01-01x",
    "a: b", "a:b", "a:", ":", ":a", ": a", "a :b", "?", "? a", "?a", "a?", "a ?", "- a", "-a", "a - b", "#", "# a", "#a", "a #b", "a#b", "a # b", ",", "a,b", "a, b", "[", "]", "[a]", "a[b]", "{", "}", "{a}", "{{ a }}", "a{b}", "|", "|a", ">", ">a", "%", "%a", "a%b", "@a", "`a", "a`b", "'", "'a'", "it's", "a'", "\"", "\"a\"", "a\"b", "a'b\"c", "\\", "a\\b", "'\n'", "\"\n", "a: 'b'\n", "- a\n- b\n", "x\\\ny",
    "word " * 30, ("word " * 30).strip(), "x" * 100, "x" * 79 + " y", "x" * 80 + " y", "x" * 81 + " y", "x" * 100 + " " + "y" * 100, "x" * 100 + "  " + "y" * 100, "it's " * 30, ("it's a " * 30).strip(), "a: " * 40, ("tab\t " * 30).strip(), ("é " * 60).strip(), "a\n" + "word " * 30, ("long line of words " * 6 + "\n") * 2, "x " * 39 + "  y " * 30, '"' + " a" * 100, ("\x01 b" * 50), "日本 " * 50, "a" * 78 + "  " + "b" * 20 + " c", "tab\t" + "a" * 80 + "  bb  cc " + "d" * 80 + "   e",
    "salt://a/b", "http://x.y:80/z?a=b#c", "echo hi | grep x > /dev/null", "/etc/salt", "C:\\x", "*.example.com", "G@os:Debian and web*", "key=value", "50%", "a@b.c", "$HOME", "(x)", "<a>", "a;b", "1.2.3.4", "::1", "fe80::1/64", "00:11:22:33:44:55", "12:34", "drwxr-xr-x", "total 0\n-rw-r--r-- 1 root root 0 Nov  1 00:00 x\n",
]

KEYS = ["a", "", " ", "a b", "a: b", "a\nb", "1", "true", "é", "x" * 127, "x" * 128, "x" * 129, "é" * 64, "é" * 65, "- a", "#", "?", "a\tb", "word " * 20, "word " * 30, "2020-01-01", "~", "[", "'", "it's", "\U0001f600"]

OTHERS = [
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 2**100, 0.0, -0.0, 1.0, 1.5, 1e15, 1e16, 1e22, 1.5e300, 1e-4, 1e-5, 1.5e-7, 123456789.123, float("inf"), float("-inf"), float("nan"), 0.1, 1 / 3,
    [], {}, (), [[]], [{}], {"a": []}, {"a": {}}, {"a": None}, {"a": ""}, {"": ""}, [""], [None], [[1, 2], [3, [4]]], [[[1]]], [[], [[]]], {"a": [1, 2]}, {"a": {"b": {"c": 1}}}, [{"a": 1, "b": 2}, {"c": 3}], {"a": [{"b": [1, {"c": 2}]}]}, {"b": 1, "a": 2, "C": 3, "é": 4, "_": 5}, {2: "a", 10: "b", 1: "c"}, {1: "a", "b": 2}, {"b": 2, 1: "a"}, {None: 1}, {None: 1, "a": 2}, {True: 1, 0: 2}, {1.5: "a", 1: "b"}, {(1, 2): "a"}, {(): 1}, {("a", (1, "b")): [1]}, {(2, 1): 1, (1, 2): 2}, {b"k": 1}, [(1, 2), ("a",)], {"a": (1, [2])},
    b"", b"hi", b"\x00\xff" * 60, {"a": b"hi"}, [b"hi", {"b": b"hi"}], {"a": [b""]},
    {"a": "x\ny\n", "b": ["x\ny", "z"]}, {"a": {"b": "word " * 30}}, [["word " * 30]], {"a": ["word " * 30, {"b": "it's " * 30}]}, {"k": ["x" * 20] * 10}, {"k" * 5 + str(i): i for i in range(30)}, list(range(60)), {"l": list(range(60)), "m": {"k%d" % i: "v v" for i in range(20)}}, {"a": [[], {}, [[]], [{}]]}, [[{"a": [[{"b": 1}]]}]], {"x": {"y": []}, "z": [{}]},
    {"local": {"file_|-/etc/motd_|-/etc/motd_|-managed": {"name": "/etc/motd", "changes": {"diff": "--- \n+++ \n@@ -1 +1 @@\n-a\n+b\n", "mode": "0644"}, "result": True, "comment": "File /etc/motd updated", "__run_num__": 0, "duration": 12.345, "start_time": "12:00:01.123456"}}},
    {"alpha": {"retcode": 0, "ret": ["a", {"b": None}], "jid": "20261121102030123456"}},
]


def shared():
    a, d, e = [1], {"k": "v"}, []
    rec = [1]
    rec.append(rec)
    return {"list": [a, a], "dict": {"x": d, "y": d, "z": [d, a, a]}, "empty": [e, e], "deep": {"a": {"b": d}, "c": {"d": d}}, "rec": rec}


def encode(v):
    """The value in JSON, with its type where JSON has none."""
    if isinstance(v, bool) or v is None or isinstance(v, str):
        return v
    if isinstance(v, (int, float)):
        return {"n": repr(v)}
    if isinstance(v, bytes):
        return {"b": base64.b64encode(v).decode()}
    if isinstance(v, tuple):
        return {"t": [encode(x) for x in v]}
    if isinstance(v, list):
        return [encode(x) for x in v]
    return {"d": [[encode(k), encode(x)] for k, x in v.items()]}


def texts(v):
    dump = salt.utils.yaml.safe_dump
    return {
        "block": dump(v, default_flow_style=False),
        "auto": dump(v),
        "flow": dump(v, default_flow_style=True),
        "indent4": dump(v, default_flow_style=False, indent=4),
        "ascii": dump(v, default_flow_style=False, allow_unicode=False),
    }


values = []
for s in STRINGS:
    values += [s, [s], {"a": s}, {"a": [s]}, {"a": {"b": s}}]
for k in KEYS:
    values += [{k: 1}, {k: "v"}, {k: [1]}, {k: {"a": 1}}, [{k: None}], {"a": {k: {k: 1}}}]
values += OTHERS

rows = []
for v in values:
    try:
        json.dumps(encode(v)).encode()
        str(encode(v)).encode()
    except UnicodeEncodeError:
        continue
    rows.append({"value": encode(v), "texts": texts(v)})
with open("dump.json", "w", encoding="utf-8") as f:
    f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
with open("shared.json", "w", encoding="utf-8") as f:
    json.dump({k: texts(v) for k, v in shared().items()}, f, indent=1)
