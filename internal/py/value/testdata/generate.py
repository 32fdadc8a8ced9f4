"""Writes python.json: what Python makes of values. Run it with any Python 3.10 to 3.11."""
import json
import struct

strings = ["", "a", "it's", 'say "hi"', "both ' and \"", "back\\slash", "tab\there", "line\nfeed\r", "\x00\x01\x1f\x7f",
           "caf\u00e9", "\u00a0\u00ad\u0085", "\u200b\u2028\u2029\u202e", "\ufeff\ufffd\ufffe\uffff", "\u3000\u4e2d\u6587",
           "\U0001f600\U000e0001\U0010ffff\U00020000", "\ue000\u0378", "e\u0301\u20dd", "\u00b2\u00bd\u2160\u20ac\u0660", "\u0600\u061c\u180e"]
blobs = [b"", b"a", b"it's", b'"', b"'\"", b"\\", b"\t\n\r\x0b\x00\x7f\x80\xff"]
floats = [0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 1e15, 1e16, 9999999999999998.0, 123456789012345680.0, 1e22, 1e23, 5e-324, 1.7976931348623157e308,
          0.0001, 0.00012345, 0.00001, 1e-5, 2.5e-7, 1e100, 1.5e300, float("inf"), float("-inf"), float("nan"), 100.0, 3.14, 2 ** 53 + 0.0, 2.0 ** 63]
numbers = [0, 1, -1, True, False, 1.0, 0.5, -0.5, 2 ** 53, 2 ** 53 + 1, 2.0 ** 53, 2 ** 62, 2.0 ** 62, 2 ** 63 - 1, 2 ** 63, 2.0 ** 63, -(2 ** 63), -(2 ** 63) - 1, -(2.0 ** 63),
           2 ** 64, 2.0 ** 64, 10 ** 30, 1e30, 10 ** 400, float("inf"), float("-inf"), 1.7976931348623157e308, -(10 ** 400)]


def num(n):
    if isinstance(n, bool):
        return {"bool": n}
    if isinstance(n, float):
        return {"float": struct.pack(">d", n).hex()}
    return {"int": str(n)}


out = {
    "strings": [[s, repr(s)] for s in strings],
    "bytes": [[b.hex(), repr(b)] for b in blobs],
    "floats": [[struct.pack(">d", f).hex(), repr(f)] for f in floats],
    "numbers": [num(n) for n in numbers],
    # -1, 0 or 1 for each pair in row order
    "compare": [[(a > b) - (a < b) for b in numbers] for a in numbers],
    # which earlier number is the same dict key
    "same_key": [next(i for i, m in enumerate(numbers) if {m: 1}.get(n)) for n in numbers],
    # all of the first plane but for code points without a character, which later Unicode versions may fill
    "unprintable": [i for i in range(0x3000) if not chr(i).isprintable() and __import__("unicodedata").category(chr(i)) != "Cn"],
    "printable_runs": [],
}
start = None
for i in range(0x110000 + 1):
    p = i < 0x110000 and chr(i).isprintable()
    if p and start is None:
        start = i
    if not p and start is not None:
        out["printable_runs"].append([start, i])
        start = None
with open("python.json", "w") as f:
    json.dump(out, f, separators=(",", ":"))
    f.write("\n")
