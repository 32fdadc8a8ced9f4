"""Documentation of functions."""

import re

_MARKS = ((r" *\.\. code-block:: \S+\n{1,2}", ""), (r"\.\. note::", "Note:"), (r"\.\. warning::", "Warning:"),
          (r"\.\. versionadded::", "New in version"), (r"\.\. versionchanged::", "Changed in version"))


def strip_rst(docs):
    """Replace marks of reStructuredText in texts by function."""
    for name, text in docs.items():
        for pattern, words in _MARKS:
            text = re.sub(pattern, words, text) if text else text
        docs[name] = text
    return docs
