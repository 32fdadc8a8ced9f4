"""Texts."""

import fnmatch
import random as _random
import re
import string


def to_bytes(s, encoding=None, errors="strict"):
    """Return text or bytes as bytes."""
    if s is None or isinstance(s, bytes):
        return s
    if isinstance(s, bytearray):
        return bytes(s)
    if isinstance(s, str):
        return s.encode(encoding if isinstance(encoding, str) else "utf-8", errors)
    raise TypeError("expected str, bytes, or bytearray not {}".format(type(s)))


def to_str(s, encoding=None, errors="strict", normalize=False):
    """Return text or bytes as text."""
    if s is None or isinstance(s, str):
        return s
    if isinstance(s, (bytes, bytearray)):
        for name in encoding if isinstance(encoding, (list, tuple)) else (encoding or "utf-8",):
            return bytes(s).decode(name, errors)
    raise TypeError("expected str, bytes, or bytearray not {}".format(type(s)))


to_unicode = to_str


def to_num(text):
    """Return a text as a number if it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def to_none(text):
    """Return None for an empty text."""
    return None if not str(text).strip() or text is None else text


def is_quoted(value):
    """Return the quote around a text, or an empty text."""
    ok = isinstance(value, str) and len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
    return value[0] if ok else ""


def dequote(value):
    """Return a text without quotes around it."""
    return value[1:-1] if is_quoted(value) else value


def is_hex(value):
    """Report whether a text is a hexadecimal number."""
    try:
        int(value, 16)
        return True
    except (TypeError, ValueError):
        return False


def is_binary(data):
    """Report whether data has zero bytes or many that are not text."""
    if not data or not isinstance(data, (str, bytes)):
        return False
    if isinstance(data, bytes):
        return b"\0" in data
    return "\0" in data


def random(size=32):
    """Return a random text."""
    return "".join(_random.choice(string.ascii_letters + string.digits) for _ in range(size))


def rand_str(size=9999999999, hash_type="sha256"):
    """Return a random hash."""
    import hashlib
    import os
    return hashlib.new(hash_type, os.urandom(32)).hexdigest()


def contains_whitespace(text):
    """Report whether a text has blanks."""
    return any(c.isspace() for c in text)


def human_to_bytes(size, default_unit="B", handle_metric=False):
    """Return a size such as 4G or 2MB in bytes."""
    match = re.match(r"^\s*([0-9.]+)\s*([a-zA-Z]*)\s*$", str(size))
    if not match:
        return 0
    unit = (match.group(2) or default_unit).lower()
    base = 1000 if handle_metric and unit.endswith("b") and not unit.endswith("ib") else 1024
    powers = "bkmgtpezy"
    if unit[:1] not in powers:
        return 0
    return int(float(match.group(1)) * base ** powers.index(unit[0]))


def human_size_to_bytes(size):
    """Return a size such as 4G in bytes."""
    return human_to_bytes(size)


def expr_match(line, expr):
    """Report whether a text matches a glob or a regular expression."""
    if line == expr or fnmatch.fnmatch(line, expr):
        return True
    try:
        return bool(re.match(r"\A{}\Z".format(expr), line))
    except re.error:
        return False


def check_whitelist_blacklist(value, whitelist=None, blacklist=None):
    """Report whether lists of globs and expressions admit a value."""
    def among(patterns):
        patterns = [patterns] if isinstance(patterns, str) else patterns
        return any(expr_match(value, p) for p in patterns)
    if blacklist and among(blacklist):
        return False
    return among(whitelist) if whitelist else True


def check_include_exclude(path_str, include_pat=None, exclude_pat=None):
    """Report whether patterns admit a path."""
    def fits(pattern):
        if pattern.startswith("E@"):
            return bool(re.search(pattern[2:], path_str))
        return fnmatch.fnmatch(path_str, pattern)
    return (not include_pat or fits(include_pat)) and not (exclude_pat and fits(exclude_pat))


def print_cli(msg, *args, **kwargs):
    """Print a text."""
    print(msg)


def camel_to_snake_case(text):
    """Return camelCase as camel_case."""
    text = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", text)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text).lower()


def snake_to_camel_case(text, uppercamel=False):
    """Return snake_case as snakeCase."""
    words = text.split("_")
    first = words[0].title() if uppercamel else words[0]
    return first + "".join(w.title() for w in words[1:])


def build_whitespace_split_regex(text):
    """Return an expression that matches a text with any blanks."""
    blanks = r"(?:[\s]+)?"
    lines = [blanks + blanks.join(map(re.escape, line.split())) + blanks for line in text.splitlines()]
    return "(?m)^" + "".join(lines) + "$"


def get_context(template, line, num_lines=5, marker=None):
    """Return the lines around a line, and the whole text if it has no such line."""
    lines = template.splitlines()
    if line > len(lines):
        return template
    first = max(line - num_lines - 1, 0)
    part = lines[first:line + num_lines]
    if marker:
        part[line - 1 - first] += marker
    before = ["[...]"] if first else []
    after = ["[...]"] if line + num_lines < len(lines) else []
    return "\n".join(["---"] + before + part + after + ["---"])


def get_diff(a, b, *args, **kwargs):
    """Return the difference of two lists of lines."""
    import difflib
    return "".join(difflib.unified_diff([to_str(x) for x in _items(a)], [to_str(x) for x in _items(b)], *args, **kwargs))


def _items(text):
    """Return the items of a list, of bytes as text: a text is a list of characters, as in Salt."""
    return to_str(text) if isinstance(text, bytes) else text


def get_unified_diff(a, b, name_a="", name_b=""):
    """Return the difference of two texts with names."""
    import difflib
    lines = [to_str(text).splitlines(True) for text in (a, b)]
    return "".join(difflib.unified_diff(lines[0], lines[1], name_a, name_b))


def base64_to_hex(text):
    """Return base64 as hexadecimal digits."""
    import base64
    return base64.b64decode(text).hex()
