"""Prints what Python's re makes of the cases below: python3 record.py > re.json"""

import json
import re

PATTERNS = [
    r"a", r"(a)(b)?", r"(?P<x>\w+)-(?P<y>\d+)", r"(?P<q>['\"]).*?(?P=q)", r"(\w)\1", r"(?i)ABC", r"^x", r"(?m)^\s*x.*$", r"(?s)b.*e",
    r"x*", r"\bfoo\b", r"foo(?=bar)", r"foo(?!bar)", r"(?<=x)y", r"(?<!x)y", r"[]a]+", r"[^]a]+", r"[[a]+", r"[\w.-]+@[\w.]+", r"a{,2}b",
    r"a{2,}", r"(?:a|b)+", r"(a)|(b)", r"\d+\Z", r"$", r"^", r"", r"(?x) a  # comment\n b", r"(a(b(c)))", r"(?(1)x|y)", r"(x)?(?(1)y|z)",
    r"\s+", r"[ä-ü]", r"ß", r"\.", r"\/", r"(?i:A)b", r"a.c", r"(?s:a.c)", r"[a-z&&[aeiou]]", r"\x41", r"\u00e9", r"\101", r"(", r"a)", r"[a",
    r"*", r"\q", r"(?P<1>a)", r"(?P<a>x)(?P<a>y)", r"(?P=no)", r"a**", r"(?<name>a)", r"x(?#comment)y", r"^\s*#?\s*PermitRootLogin.*$",
    r"(?m)^[#]*Port\s+(\d+)$", r"(.*?)=(.*)", r"\w+$", r"(?:)", r"a|ab", r"(?m)$", r"\t", r"[\]\-\\]", r"(?ms)^BEGIN.*^END", r"(?a)\w+", r"(?a)[\w-]+|\W", r"(?a)[\W]+", r"(?a)[^\S]|[\D]+", r"(?a)\b.", r"(?a)\B.\d?\s?",
]
TEXTS = [
    "", "a", "ab", "abc abd", "foo-12 bar-7", "say 'hi' or \"ho\"", "xx yy", "xabcx ABC", "x\n  x y\nz", "b\nc\ne", "axxb", "foo foobar xfoo",
    "xy y", "]a]b[", "me@ex.org", "aab", "aaa", "1\n12\n", "a b", "äöü ß", "a/b.c", "ABC aéA", "a\nc", "#PermitRootLogin yes\nPort 22\n#Port 23\n",
    "key=value=more", "a]b-c\\d", "x\ty", "x\nBEGIN\n1\nEND\n", "\U0001f600x\U0001f600",
]
SUBS = [
    (r"(\w+) (\w+)", r"\2 \1", "hello big world"), (r"(?P<a>\d)", r"<\g<a>\g<1>\g<0>>", "1 2"), (r"x", r"\n\t\\", "axb"), (r"x*", "-", "axb"),
    (r"(a)|(b)", r"[\1\2]", "abc"), (r"a", r"\.", "a"), (r"a", r"\q", "a"), (r"a", r"\2", "a"), (r"(a)", r"\g<no>", "a"), (r"(a)", r"\101\0", "a"),
    (r"(?m)^(\s*)#\s*(foo)", r"\1\2", "# foo\n  #foo\n"), (r"^", "> ", "x"), (r"(?m)^", "> ", "x\ny\n"), (r"$", "!", "x\n"), (r"b|", "-", "abc"),
    (r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)", r"\10-\1", "abcdefghij"), (r"é", "e", "café é"), (r"a", "\\", "a"), (r"(.)", r"\g<1", "a"),
]


def groups(m):
    return [m.group(0), list(m.span()), list(m.groups())] if m else None


out = {"cases": [], "subs": [], "escape": []}
for p in PATTERNS:
    try:
        r = re.compile(p)
    except (re.error, IndexError):
        out["cases"].append({"pattern": p, "error": True})
        continue
    out["cases"].append({"pattern": p, "groups": r.groups, "names": dict(r.groupindex), "texts": [{
        "text": t, "search": groups(r.search(t)), "match": groups(r.match(t)), "full": groups(r.fullmatch(t)),
        "all": [groups(m) for m in r.finditer(t)], "split": r.split(t), "split1": r.split(t, 1),
    } for t in TEXTS]})
for p, s, t in SUBS:
    c = {"pattern": p, "repl": s, "text": t}
    try:
        c["all"], c["n"] = re.subn(p, s, t)
        c["one"] = re.sub(p, s, t, count=1)
    except (re.error, IndexError):
        c["error"] = True
    out["subs"].append(c)
for t in TEXTS:
    out["escape"].append([t, re.escape(t)])
print(json.dumps(out, ensure_ascii=False, indent=0))
