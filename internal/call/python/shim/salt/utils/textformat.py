"""Codes of terminals."""

_NUMBERS = {"reset": 0, "bold": 1, "faint": 2, "italic": 3, "underline": 4, "blink": 5, "inverse": 7, "conceal": 8,
            "strikethrough": 9, "black": 30, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36,
            "white": 37}
graph_prefix, graph_suffix = "\033[", "m"


class TextFormat:
    """A sequence of codes."""

    def __init__(self, *attrs, **kwargs):
        codes = [str(a if isinstance(a, int) else _NUMBERS.get(str(a).lower(), a)) for a in attrs]
        if kwargs.get("reset", True):
            codes.insert(0, "0")
        self.sequence = graph_prefix + ";".join(codes) + graph_suffix

    def __str__(self):
        return self.sequence

    def __call__(self, text, reset=True):
        """Return a text with the codes."""
        return self.sequence + text + (graph_prefix + "0" + graph_suffix if reset else "")

    def __len__(self):
        return 0
