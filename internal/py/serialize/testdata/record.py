"""Prints what Salt's serializers write and read, for values made at random:

    PYTHONPATH=SOURCE-OF-SALT python3 record.py SEED CASES > stock.json

It needs the Python libraries toml, msgpack and PyYAML with libyaml.
"""

import base64
import json
import logging
import random
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

from salt.serializers import configparser, keyvalue, msgpack, plist, python, tomlmod, yaml, yamlex
from salt.serializers import json as jsonmod

MODULES = {"configparser": configparser, "json": jsonmod, "keyvalue": keyvalue, "msgpack": msgpack, "plist": plist, "python": python, "toml": tomlmod, "yaml": yaml, "yamlex": yamlex}
r = random.Random(int(sys.argv[1]))
TEXTS = ["", "a", "b c", "x: y", "# no", "yes", "1", "1.5", "~", "it's", 'say "hi"', "both ' and \"", "ümläut", "日本", "😀", "two\nlines", "end\n", "\nstart", " lead", "trail ", "a\tb", "back\\slash",
    "%(a)s", "100%", "%%", "$x", "key=val", "[sec]", "<b>&amp;</b>", "a long text that goes on and on, with words enough to be folded somewhere near the eightieth column of a line, or not",
    "w" * 100, "null", "2020-01-01", "2020-01-01T10:00:00Z", "0x1f", "010", "-", "?", "{a}", "a\r\nb", "\u00a0", "\u2028", "two\n\nlines\n\n", "a\n  b\nc", "é" * 90, "0.1e5", "|", ">", "--- x", "...", "!tag", "&a", "*b", "@c", "`d"]
KEYS = ["a", "b", "c", "x", "key", "Key", "A B", "a.b", "é", "1", "", "DEFAULT", "yes", "a-b", "a_b", 'q"q', "k" * 40, "name", "%", "a:b", "a=b", "#"]


def scalar():
    k = r.random()
    if k < 0.5:
        return r.choice(TEXTS)
    if k < 0.65:
        return r.choice([0, 1, -1, 7, 255, 256, 65535, 65536, 2**31, 2**32, 2**40, -(2**40), 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 2**70, 10, 1000, 1234567])
    if k < 0.75:
        return r.choice([0.0, 1.5, -2.25, 1e16, 1e-7, 3.14159, 1e300, 100.0])
    if k < 0.9:
        return r.choice([True, False])
    return None


def value(depth, plain=False):
    k = r.random()
    if depth <= 0 or k < 0.35:
        return scalar()
    n = r.choice([0, 1, 1, 2, 3, 4, 7])
    if k < 0.6:
        one = r.random()
        if one < 0.3:
            return [scalar() for _ in range(n)]
        if one < 0.5:
            return [dict_of(depth - 1) for _ in range(n)]
        return [value(depth - 1) for _ in range(n)]
    return dict_of(depth, n)


def dict_of(depth, n=None):
    n = r.choice([0, 1, 2, 3, 5]) if n is None else n
    return {r.choice(KEYS): value(depth - 1) for _ in range(n)}


def sections():
    return {r.choice(KEYS): {r.choice(KEYS): r.choice([scalar(), r.choice(TEXTS), r.choice(TEXTS)]) for _ in range(r.randint(0, 4))} for _ in range(r.randint(0, 4))}


def options(f):
    o = {}

    def may(p, k, *vals):
        if r.random() < p:
            o[k] = r.choice(vals)

    if f in ("yaml", "yamlex"):
        may(0.3, "default_flow_style", True, False, False, None)
        may(0.15, "indent", 1, 2, 4, 8, 12, None)
        may(0.15, "width", 20, 40, 1000, -1, 3)
        may(0.1, "sort_keys", False)
        may(0.2, "allow_unicode", True)
        may(0.1, "explicit_start", True)
        may(0.1, "explicit_end", True)
        may(0.1, "line_break", "\r\n", "\r", "\n")
        may(0.1, "default_style", '"', "'", "|", ">", "")
        may(0.05, "canonical", True, False)
        may(0.03, "version", [1, 1])
        may(0.02, "encoding", "utf-8", None)
        may(0.02, "bogus", 1)
    elif f == "json":
        may(0.4, "indent", 0, 1, 2, 4, "\t", None)
        may(0.3, "sort_keys", True, False)
        may(0.2, "separators", [",", ":"], [", ", ": "], [" ;", "="])
        may(0.2, "ensure_ascii", True, False)
        may(0.05, "skipkeys", True)
        may(0.05, "allow_nan", False)
        may(0.02, "bogus", 1)
    elif f == "toml":
        may(0.02, "bogus", 1)
    elif f == "plist":
        may(0.3, "fmt", "FMT_BINARY")
        may(0.2, "sort_keys", True, False)
        may(0.1, "skipkeys", True)
        may(0.02, "bogus", 1)
    elif f == "configparser":
        may(0.3, "allow_no_value", True)
        may(0.3, "interpolation", None)
        may(0.1, "delimiters", [":"], ["="], [" "])
        may(0.05, "default_section", "common", "a")
        may(0.05, "defaults", {"a": "1"}, {"X": "y"})
        may(0.1, "strict", False)
        may(0.1, "empty_lines_in_values", False)
        may(0.1, "comment_prefixes", ["//"], "#", ["#"])
        may(0.1, "inline_comment_prefixes", [";"], ["#", ";"], "#")
        may(0.02, "bogus", 1)
    elif f == "keyvalue":
        may(0.2, "line_ending", "\r\n", "|", "")
        may(0.3, "quoting", True, False)
        may(0.3, "separator", ": ", " = ", ":", "")
        may(0.02, "bogus", 1)
    elif f == "python":
        may(0.3, "indent", 0, 1, 2, 4)
        may(0.3, "width", 1, 20, 40, 120)
        may(0.2, "depth", 1, 2, 3)
        may(0.2, "compact", True)
        may(0.2, "sort_dicts", False)
        may(0.2, "underscore_numbers", True)
        may(0.02, "bogus", 1)
    elif f == "msgpack":
        may(0.2, "use_bin_type", True, False)
        may(0.1, "strict_types", True)
        may(0.02, "bogus", 1)
    return o


INI = ["[a]", "[b]", "[a]", "[DEFAULT]", "x = 1", "y: 2", "x=1", "  more", "\tmore", "", "", "# c", "; c", "v", "p = %(x)s", "p = %(nope)s", "p = %%", "p = 100%", "[c", "k = v ; c", "k = v # c", "= v", "[c] rest", "Key = Value", "e =", "// c", "e = [x]"]
TOML = ["a = 1", "b = 'x'", "a = 2", "[t]", "[t.u]", "[[l]]", "[[l]]", "c = [1, 2, 3]", "d = {x = 1, y = 'z'}", "e = 1979-05-27T07:32:00Z", "f = 1979-05-27", "g = 1.5", "h = true", "# c", "", "i = \"a\\n\\u00e9\"", "bare", "k =", "l = 0x1F", "m = 1_000", "\"q r\" = 1", "x.y = 1", "x.z = 2",
    "n = \"\"\"\ntwo\nlines\"\"\"", "o = '''\nraw\\'''", "[", "[t]x", "p = 1 # c", "r = -1e3", "s = 10:20:30", "u = 1979-05-27T07:32:00.5-07:00", "v = \"\\x\"", "w = [ 'a', 'b',]", "y = [\n 1,\n 2\n]", "z = []"]
EX = ["a: 1", "a: !aggregate x", "a: !aggregate [1, 2]", "a: !aggregate {x: 1}", "a: !aggregate {y: {z: 1}}", "a: !aggregate {x: [1]}", "a: {x: 1}", "a: {y: 2}", "!reset a: 5", "!reset a: !aggregate [9]", "!aggregate a: 7", "b: !aggregate 1", "b: !aggregate [2]", "b: !aggregate 1", "b: !reset [3]", "c: [1, {d: 2, d: 3}]", "m: yes", "d: 010", "d: ~",
    "e: !aggregate", "f: {!aggregate g: 1, !aggregate g: 2}", "f: {!aggregate g: 3}", "h: *a", "i: &a [1]", "h: *a", "<<: {x: 1}", "bad: [", "- x", "k: 'q'", "l: !foo 1"]
KV = ["a=1", "b = 2", "c: 3", "d='q'", 'e="r"', "", "f", "a=9", "g==h", "x='", "k=", "é=ü", "long=a=b"]


def lines(of, n):
    return "\n".join(r.choice(of) for _ in range(r.randint(0, n))) + r.choice(["", "\n"])


def plain(v):
    """v as JSON can show it."""
    if isinstance(v, bytes):
        return {"bytes": base64.b64encode(v).decode()}
    if isinstance(v, dict):
        return [["dict"], *[[plain(k), plain(w)] for k, w in v.items()]]
    if isinstance(v, (list, tuple)):
        return [["list"], *[plain(w) for w in v]]
    if hasattr(v, "isoformat"):
        return {"date": v.isoformat()}
    return json.loads(json.dumps(v, default=repr)) if not isinstance(v, str) else "".join(v)


def main():
    out = []
    for _ in range(int(sys.argv[2])):
        f = r.choice(list(MODULES))
        o = options(f)
        case = {"format": f, "options": o}
        if r.random() < 0.75:
            v = sections() if f == "configparser" and r.random() < 0.9 else {k: r.choice(TEXTS) for k in r.sample(KEYS, 3)} if f == "keyvalue" and r.random() < 0.5 else [[r.choice(KEYS), scalar()] for _ in range(3)] if f == "keyvalue" and r.random() < 0.5 else dict_of(3, 3) if r.random() < 0.8 else value(3)
            case["value"] = v
            try:
                w = MODULES[f].serialize(v, **json.loads(json.dumps(o)))
                case["text" if isinstance(w, str) else "bytes"] = w if isinstance(w, str) else base64.b64encode(w).decode()
            except BaseException as e:
                case["error"] = repr(e)[:100]
        else:
            if f in ("python", "msgpack"):
                continue
            if r.random() < 0.3:
                src = MODULES[f].serialize
                try:
                    t = src(sections() if f == "configparser" else {k: r.choice(TEXTS) for k in r.sample(KEYS, 3)} if f == "keyvalue" else dict_of(2, 3))
                except BaseException:
                    continue
            else:
                t = {"configparser": lambda: lines(INI, 9), "toml": lambda: lines(TOML, 5), "yamlex": lambda: lines(EX, 5), "keyvalue": lambda: lines(KV, 4)}.get(f, lambda: None)()
                if t is None:
                    continue
            if isinstance(t, bytes):
                case["read_bytes"] = base64.b64encode(t).decode()
            else:
                case["read"] = t
            case["options"] = o = {k: v for k, v in o.items() if f in ("configparser", "keyvalue")}
            try:
                case["got"] = plain(MODULES[f].deserialize(t, **json.loads(json.dumps(o))))
            except BaseException as e:
                case["error"] = repr(e)[:100]
        out.append(case)
    print("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True) for c in out) + "\n]")


main()
