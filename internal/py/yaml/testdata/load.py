"""Writes load.json and args.json: what Salt's own loader makes of documents.

    PYTHONPATH=<salt source> python3 load.py

Sets are written as sorted lists, since the order of a set means nothing.
"""

import json

import salt.utils.args
import salt.utils.yaml

SCALARS = """
0 00 000 0644 0755 08 09 0_1 0_ -0_ -012 +012 -08 1_000 _1 1_ 12345678901234567890 -9223372036854775808 9223372036854775808
0x1F -0x1F 0x 0x_ 0X1F 0xG 0b101 -0b11 0b 0b2 0o14 +1 -1 - + +- 1 1. .5 +.5 -.5 5.e+3 1e3 1E3 1.0e3 1.0e+3 1.0E-3 6.02e23 6.02e+23
1_0.5 1._5 ._5 . .. .e+3 .inf .Inf .INF -.inf +.inf .iNF .nan .NaN .NAN -.nan inf nan 1.5.2 190:20:30 24:61 01:02 1:2:3 1:2.5 0:30 0:30.5
12:30 -1:30 1:60 1:059 10:20:30.5 true True TRUE tRUE false False FALSE yes Yes YES yEs no No NO on On ON off Off OFF y Y n N t f
null Null NULL nULL ~ ~~ none None NaN Infinity 2020-01-01 2020-1-1 2001-12-14t21:59:43.10-05:00 0x1p3 1,000 1.2.3.4 ::1 fe80::1 a:b a=b
= == <<< foo foo-bar foo_bar foo.bar /etc/salt c:\\x salt://x http://x.y/z * *x &x x* x& ! !! @x `x %x 50% x%y |x >x 'x' "x" 'it''s' "a\\tb\\u00e9\\x41\\/\\e\\0"
'' "" '0644' "0644" '~' - ? : , [] {} [ ] { } [a [a,] [,] {,} {a} {a,} {a:1} {a: 1} {"a":1} {a: b: c} [a: 1] [a: 1, b: 2] [[1,2],[3]] {a: [1, {b: 2}]}
#x x#y !!str !!str~ !foo !<tag:x> é 日本 \U0001f600
""".split()

MORE = [
    "a: 1\n: b", "a:\n  : b", "{: a}", "[: a]", "?\n: a", "? \n", "- : a", "...\na: 1", "# x\n...\n", "%YAML 1.2\n# x\n---\n- 1", "# x\n%YAML 1.2\n---\na: 0644", "a: !\nb: 2", "- !\n- a", "a: \u200b", "a: \x9f", "\ufeff", "\ufeff\ufeffa", "a: 1\n...\n...\n", "a: 1\n...\n---\n", "a: 1\n---", "a: 1\n---\n...",
]

DOCS = MORE + SCALARS + ["a: " + s for s in SCALARS] + [
    "", " ", "\n", "\n\n", "# only a comment", "---", "---\n", "--- a", "...", "--- a\n...", "--- a\n...\n# end", "--- 1\n--- 2", "a: 1\n---\nb: 2", "a\n...\nb",
    "a: 1\n--- [\n", "%YAML 1.1\n---\na", "%YAML 1.2\n---\na", "%YAML 2.0\n---\na", "%TAG !e! tag:x,2000:\n---\n!e!y z", "%FOO x\n--- a", "%TAG ! tag:yaml.org,2002:\n--- !int '3'",
    # mappings
    "a: 1\nb: 2\nc: 3\n", "b: 1\na: 2\n", "a:\n  b:\n    c: d\n", "a: 1\na: 2", "a: 1\nb: 2\na: 3\n", "x:\n  k: 1\n  k: 2\ny: 1\ny: 2", "1: a\ntrue: b\n", "1: a\n1.0: b", "0: a\nfalse: b", "1: a\n'1': b",
    "~: a\n", "null: 1\n~: 2", ": a", "? a\n", "? a\n: b\n", "? [a]\n: b", "? {a: 1}\n: b", "? |\n  block\n: 1", "[1, 2]: x", "{a: 1}: x", "{[a]: 1}", "x: {{ y }}", "x: {{ pillar['a'] }}", "{{ x }}: 1", "- {{ x }}",
    "{% if x %}\na: 1\n{% endif %}", "yes: no\non: off\n", "0644: mode", "08: x\n8: y", "2020-01-01: x", "a: b: c", "a: b\n c: d", "a:\n b: 1\n  c: 2", "a:\n  b: 1\n c: 2", "a:b", "a :b", "a : b", "a:  b  ", "a: b #c", "a: b#c", "a:#b", "a\nb: c", "a: 1\nb", "a: 1\nb\nc: 2",
    "a: 'x\nb: 2", "a: \"x\nb: 2", "a: [1, 2\nb: 3", "a: {b: 1\nc: 2", "a: [1 2]", "a: [1, 2]]", "a: }", "a: ]", "a: , b", "a: 1\n\tb: 2", "a:\n\tb: 2", "\ta: 1", "a:\t1", "a: 1\t# c", "a: 1\t", "- a\n-\tb", "a: |\n\tx\n", "a: [\t1,\t2\t]", "a: b\n\tc",
    "a: 'x'y", "a: 'x' y", "a: \"\\q\"", "a: \"\\x4\"", "a: \"\\uD800\"", "a: \"x\\\n  y\"", "a: \"x\n\n  y\"", "a: 'x\n\n  y\n  z'", "a: x\n  y\n\n  z", "a: x\n  # c\n  y", "a: 'x\n# y'", "a:\n  x\n  y", "a:\n- b\n- c", "a:\n  - b\n - c", "a:\n- b\nc: d", "- a\nb: c", "- a: 1\n  b: 2\n- c", "- - a\n  - b\n- c", "- \n- ~\n-", "-a\n-b", "- a\n - b\n", "-\n  a: 1\n-\n  b: 2",
    "\"a\": 1\n'a': 2", "? a\n? b\n", "{? a : b, ? c}", "{a: , b: }", "{a b: c d}", "[a b, c]", "{'a':1,\"b\":2}", "['a':1]", "[a:1]", "{a:b}", "{http://x: y}", "[http://x]", "{a: b}\n{c: d}", "[a]\n[b]", "'a' 'b'", "a: *x", "a: &x", "&x a: *x", "&x a: 1\nb: *x", "*a : b", "a: &x 1\nb: *x\nc: [*x, *x]",
    # anchors and merges
    "a: &x {b: 1}\nc: *x\n", "a: &x [1]\nb: *x", "a: &x 1\nb: &x 2\nc: *x", "a: &a b\n*a : c", "a: &d {x: 1, y: 2}\nb:\n  <<: *d\n  y: 3\n", "a: &d {x: 1}\nb: {<<: *d, x: 2, z: 3}", "<<: {a: 1}\nb: 2", "b: 1\n<<: {b: 2, c: 3}", "<<: [{a: 1}, {b: 2}]", "<<: [{a: 1}, {a: 2}]", "x: &x {k: 1}\ny: &y {k: 2}\nz: {<<: [*x, *y]}", "x: &x {k: 1}\ny: &y {k: 2}\nz: {<<: [*x, *y], k: 3}",
    "<<: 3", "<<: [3]", "<<: [{a: 1}, 3]", "<<: a", "<<:", "<<: {}", "a: <<", "- <<", "'<<': {a: 1}", "? <<\n: {a: 1}", "<<: {a: 1}\n<<: {b: 2}", "<<: {a: 1}\n<<: {a: 2}", "<<: {<<: {a: 1}, b: 2}\nc: 3", "<<: {'1': a}\n1: b", "<<: {[a]: 1}\n", "=: 1", "a: {=: 1}", "!!str {=: x}", "!!int {=: '3'}", "!!str {a: x}", "a: {<<: {=: 1}}",
    # tags
    "! 12", "! '12'", "! ''", "! |\n x", "{? : a}", "{ ? : a}", "[? : a]", "{a: 1, : b}", "! [a]", "!!str 12", "!!str", "!!str [a]", "!!str {a: 1}", "!!int '12'", "!!int 0x1F", "!!int 012", "!!int 08", "!!int -08", "!!int -0o12", "!!int 0o12", "!!int abc", "!!int ''", "!!int 1.5", "!!int 1:30", "!!int 1:x", "!!int [1]", "!!int {a: 1}", "!!float 1", "!!float abc", "!!float '.5'", "!!float 1e3", "!!float inf", "!!float nan", "!!float 0x10", "!!float ''", "!!float 1e999", "!!float [1]",
    "!!bool yes", "!!bool 'No'", "!!bool maybe", "!!bool ''", "!!null x", "!!null ''", "!!null [a]", "!!binary aGk=", "!!binary aGk", "!!binary a", "!!binary ''", "!!binary é", "!!binary |\n  aGVs\n  bG8=\n", "!!binary 'a-G.k='", "!!binary aGk=aGk=", "!!binary [a]", "!!timestamp 2020-01-01", "!!timestamp abc", "!!timestamp [a]", "!!set {a, b}", "!!set {a, a}", "!!set [a]", "!!set a", "!!set {}", "? !!set {a}\n: 1", "!!omap [a: 1, b: 2]", "!!omap [a: 1, a: 2]", "!!omap {a: 1}", "!!omap [a]", "!!omap [{a: 1, b: 2}]", "!!omap []", "!!pairs [a: 1, a: 2]", "!!pairs a", "!!seq [a]", "!!seq a", "!!seq {a: 1}", "!!map {a: 1}", "!!map a", "!!map [a]", "!!merge x", "!!value x", "!!foo x", "!foo x", "!foo [a]", "!<tag:yaml.org,2002:int> '3'", "!<!foo> x", "!e!foo x",
    "!!python/object/apply:os.system [id]", "!!python/object:os.system {}", "!!python/name:os.system", "!!python/tuple [1, 2]", "!!python/str x", "!!python/unicode x", "!!python/none", "a: !!python/tuple [1]", "!!str &x a", "&x !!str a", "!!str !!int a", "&x &y a", "- &x\n- *x", "- &x !!int '3'\n- *x", "a: !!str\nb: 1", "!!map\na: 1", "a: !x\n  b: 1",
    # block scalars
    "a: |\n  x\n  y\n", "a: |\n  x\n  y", "a: |-\n  x\n\n", "a: |+\n  x\n\n", "a: >\n  x\n  y\n\n  z\n", "a: >-\n  x\n    y\n  z\n", "a: >+\n\n  x\n\n", "a: |2\n   x\n  y\n", "a: |0\n x", "a: |10\n x", "a: | # c\n  x\n", "a: |x\n  y", "a: |\nb: 1", "a: |\n\n\n", "|\n x\n", ">\n x\n y", "|", "- |\n a\n- >\n b", "a: |\n    x\n  y\n", "a: |\n  x\n y: 1", "a: |\n      \n  x\n", "a: >\n  x\n\n\n  y\n   z\n\n  w", "a: |-\n", "a: |\n  # no comment\n  x", "a: |\n  x\n# comment\nb: 1", "a: |\r\n  x\r\n  y\r\n",
    # characters
    "a: b\r\nc: d\r\n", "a: b\rc: d\r", "a: 'x\r\n  y'", "\ufeffa: 1", "a: \ufeffb", "a\x00b", "a\x01b", "a: \x7f", "a: \x80", "a: \x85b", "a: x\x85y: z", "a: x\u2028y", "a: x\u2029  y", "a: \"x\u2028y\"", "a: \xa0b", "a: \ufffe", "\ud7ff: 1", "a: \ue000", "a: \U00010000", "a: 'é'", "é: 日本", "a: \x1b[0m",
    # long things
    "a: " + "x " * 300, "x" * 100 + ": 1", "x" * 1023 + ": 1", "x" * 1025 + ": 1", "? " + "x" * 1025 + "\n: 1", "'" + "x" * 1100 + "': 1", "{" + "x" * 1100 + ": 1}", "a: " + "9" * 4300, "a: " + "9" * 4301, "[" * 20 + "]" * 20,
    # sls
    "vim:\n  pkg.installed: []\n\n/etc/motd:\n  file.managed:\n    - source: salt://motd\n    - mode: 0644\n    - require:\n      - pkg: vim\n",
    "vim:\n  pkg:\n    - installed\n    - name: vim\n  service.running:\n  - enable: true\n", "base:\n  '*':\n    - core\n  'os:Debian':\n    - match: grain\n    - apt\n", "include:\n  - a\n  - b.c\n\nextend:\n  x:\n    file:\n      - y: z\n", "a:\n  cmd.run:\n    - name: |\n        echo a\n        echo b\n    - unless: test -e /x: y\n", "a:\n  cmd.run:\n    - name: echo 'a: b'\n", "*:\n  - core", "'*':\n- core", "a:\n  - b: c\n    d: e\n   f: g", "a: b\n- c", "- a\n- b\nc: d\n", "a: [b, c: d, {e: f}]", "master: [a, b]\nmaster_type: str\n", "a: @b", "a: `b`", "a: %b", "a: b: ", "a: - b", "a: ? b", "a: -", "a: ?", "a: :", "a: 'b' : c", "x: \"{{ y }}\"", "x: '{{ y }}'", "a: {b: c}}", "key: value\nother value\nlast: x", "a: b\n  - c", "a:\n  - b\n  c: d",
]

ARGS = SCALARS + [
    "", " ", "   ", "---", " ... ", "--- a", "1_000", " 1_000 ", "1_0.5", "_", "a_b", "1\t2", "a\nb", "a\rb", "\t", "None", " None", "none", "null", "~", "a #b", "#", " # x", "[1, 2] # x", "{a: 1} # x", "a: 1 # x", "1 # x", "# None", "a: 1", "{a: 1}", " {a: 1}", "{a: 1} ", "[1]", " [1]", "- 1", "- a", "[a", "{a", "{{ x }}", "{a: {{ x }}}", "|", "!", "| ", ">", "!!str 1", "!!int '1'", "!!binary aGk=", "!!set {a}", "!!omap [a: 1]", "{a: !!set {b}}", "[!!binary aGk=]", "!!null x", "!!python/name:os", "'a'", "\"a\"", "'1'", "\"a", "a'b", "it's", "a: b: c", "a:", ":a", "key=value", "a=b c", "*", "*.x", "web*", "&a", "&a b", "%a", "@a", "`a", "a,b", "1,2", "1 2", "True", " True ", "true false", "1.0", "1.10", "-1", "--x", "-", "- ", "?", "? a", "0644", "08", "1e3", "2020-01-01", "12:30", "190:20:30", "é", "日本", "\x01", "\x85", "a\u2028b", "<<", "=", "{=: 1}", "{<<: {a: 1}}", "{a: 1, a: 2}", "salt://a/b", "http://x/#y", "C:\\x", "echo hi", "echo 'hi there'", "ls -l | wc", "date: today", "x" * 1100, "20261121102030123456", "{\"a\": [1, true, null]}", "a\x0bb", "\x0b", "@", "%", "+", "1.", ".", "[]", "{}", "[ ]", "''", "\"\"", "' '",
]


def plain(v):
    if isinstance(v, (set, frozenset)):
        return sorted(v)
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return type(v)(plain(x) for x in v)
    return v


def load(doc):
    out = {"doc": doc}
    try:
        out["value"] = repr(plain(salt.utils.yaml.safe_load(doc)))
    except Exception as exc:
        out["error"] = getattr(exc, "problem", None) or type(exc).__name__
        mark = getattr(exc, "problem_mark", None)
        out["line"] = mark.line + 1 if mark else 0
        out["column"] = mark.column + 1 if mark else 0
    return out


def encodable(docs):
    seen = {}
    for d in docs:
        try:
            d.encode()
        except UnicodeEncodeError:
            continue
        seen[d] = None
    return list(seen)


def write(name, rows):
    with open(name, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


write("load.json", [load(d) for d in encodable(DOCS)])
write("args.json", [{"doc": a, "value": repr(plain(salt.utils.args.yamlify_arg(a)))} for a in encodable(ARGS)])
