"""Colours of terminals."""

_CODES = {"BLACK": "0;30", "DARK_GRAY": "1;30", "RED": "0;31", "LIGHT_RED": "0;1;31", "GREEN": "0;32", "LIGHT_GREEN": "0;1;32",
          "YELLOW": "0;33", "LIGHT_YELLOW": "0;1;33", "BLUE": "0;34", "LIGHT_BLUE": "0;1;34", "MAGENTA": "0;35",
          "LIGHT_MAGENTA": "0;1;35", "CYAN": "0;36", "LIGHT_CYAN": "0;1;36", "LIGHT_GRAY": "0;37", "WHITE": "0;1;37",
          "DEFAULT_COLOR": "0;39", "ENDC": "0;0"}


def get_color_theme(theme):
    """Return the codes of a file of colours."""
    import salt.utils.yaml
    with open(theme, encoding="utf-8") as file:
        return {k: str(v) for k, v in (salt.utils.yaml.safe_load(file) or {}).items()}


def get_colors(use=True, theme=None):
    """Return what starts each colour, by its name; without use, empty strings."""
    codes = dict(_CODES, **(get_color_theme(theme) if theme and use else {}))
    if isinstance(use, str):
        chosen = codes.get(use)
        codes = {k: v if k == "ENDC" or not chosen else chosen for k, v in codes.items()}
    return {k: "\033[{}m".format(v) if use else "" for k, v in codes.items()}
