#!/usr/bin/env python3
"""Records what Python's jmespath (1.0) makes of the expressions in cases.txt,
a line each, over data.json, and of random ones, into golden.json. Run it in
this folder."""
import json
import random
import warnings

import jmespath

warnings.simplefilter("ignore")
data = json.load(open("data.json"))
r = random.Random(1)
NAMES = ["people", "name", "age", "tags", "d", "nested", "x", "empty", "n", "none", '"with space"', "deep", "t"]


def rnd(depth):
    """A random expression."""
    k = r.randrange(22 if depth > 0 else 4)
    e = lambda: rnd(depth - 1)
    if k <= 2:
        return r.choice(NAMES)
    return [
        lambda: r.choice(["@", "`1`", "'a'", "`null`", "`[1, 2]`", "*", "[0]", "[-1]", "[]", "[*]"]),
        lambda: e() + "." + r.choice(NAMES),
        lambda: e() + "." + r.choice(NAMES),
        lambda: e() + "[*]",
        lambda: e() + "[]",
        lambda: e() + "[%d]" % r.randint(-3, 3),
        lambda: e() + "[%s:%s]" % (r.choice(["", 1, -2]), r.choice(["", 2, -1])),
        lambda: e() + "[::%s]" % r.choice([1, 2, -1, -2]),
        lambda: e() + "[?%s]" % e(),
        lambda: e() + "[?%s %s %s]" % (e(), r.choice(["==", "!=", "<", ">=", ">", "<="]), e()),
        lambda: e() + " | " + e(),
        lambda: e() + " || " + e(),
        lambda: e() + " && " + e(),
        lambda: "!" + e(),
        lambda: "(" + e() + ")",
        lambda: e() + ".[%s, %s]" % (e(), e()),
        lambda: e() + ".{a: %s, b: %s}" % (e(), e()),
        lambda: e() + ".*",
        lambda: r.choice(["length", "keys", "values", "sort", "max", "min", "sum", "avg", "type", "reverse", "to_string", "to_array",
                          "to_number", "not_null", "abs", "ceil", "floor"]) + "(" + e() + ")",
    ][k - 3]()


def run(expr):
    try:
        return {"expr": expr, "out": jmespath.search(expr, data)}
    except Exception as exc:
        return {"expr": expr, "error": type(exc).__name__, "text": str(exc).split("\n")[0]}


cases = [run(line.rstrip("\n")) for line in open("cases.txt") if line.strip()]
cases += [run(rnd(3)) for _ in range(600)]
with open("golden.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
print(len(cases), sum("error" in c for c in cases))
