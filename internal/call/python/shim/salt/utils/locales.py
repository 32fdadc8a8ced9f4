"""Texts in other encodings."""

from salt.utils.stringutils import to_unicode as sdecode  # noqa: F401


def sdecode_if_string(value):
    """Return bytes as text."""
    return sdecode(value) if isinstance(value, bytes) else value


def split_locale(loc):
    """Return the parts of the name of a locale."""
    out = {}
    rest, _, out["charmap"] = loc.partition(" ")
    rest, _, out["modifier"] = rest.partition("@")
    rest, _, out["codeset"] = rest.partition(".")
    out["language"], _, out["territory"] = rest.partition("_")
    return out


def join_locale(comps):
    """Return the name of a locale of its parts."""
    text = comps["language"]
    for mark, key in (("_", "territory"), (".", "codeset"), ("@", "modifier"), (" ", "charmap")):
        if comps.get(key):
            text += mark + comps[key]
    return text


def normalize_locale(loc):
    """Return the name of a locale in its usual form."""
    comps = split_locale(loc)
    comps["territory"] = comps["territory"].upper()
    comps["codeset"] = comps["codeset"].lower().replace("-", "")
    comps["charmap"] = ""
    return join_locale(comps)


def get_encodings():
    """Return encodings of texts."""
    import sys
    return ["utf-8", sys.getdefaultencoding(), "latin-1"]
