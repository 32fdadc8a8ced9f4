"""Data as text, by Brine's outputters."""

import re

import brine_helper as _helper

_OPTIONS = ("color", "strip_colors", "nested_indent", "output_indent", "state_output", "state_verbose", "state_tabular", "state_output_diff")


def get_printout(out, opts=None, **kwargs):
    """Return a function that makes text of data."""
    opts = dict(opts or {}, **kwargs)
    if opts.get("output") and opts["output"] != "highstate":
        out = opts["output"]
    given = {k: opts[k] for k in _OPTIONS if opts.get(k) is not None}
    if opts.get("force_color"):
        given["color"] = True
    elif opts.get("no_color"):
        given["color"] = False

    def printout(data, **_):
        return _helper.pipe.ask("output", out or "", data, given)
    return printout


def out_format(data, out, opts=None, **kwargs):
    """Return data as an outputter shows it."""
    return get_printout(out, opts, **kwargs)(data).rstrip()


try_printout = out_format


def strip_esc_sequence(txt):
    """Return a text that does not control the terminal."""
    return txt.replace("\033", "?") if isinstance(txt, str) else txt


def string_format(data, out, opts=None, **kwargs):
    """Return data as an outputter shows it, without colours."""
    return re.sub("\x1b[^m]*m", "", out_format(data, out, opts, **kwargs))


def html_format(data, out, opts=None, **kwargs):
    """Return data as an outputter shows it, for HTML."""
    return string_format(data, out, opts, **kwargs).replace(" ", "&nbsp;").replace("\n", "<br />")


def display_output(data, out=None, opts=None, **kwargs):
    """Print data: what a module prints goes to the log."""
    text = out_format(data, out, opts, **kwargs)
    name = (opts or {}).get("output_file")
    if not text:
        return
    if not name:
        print(text)
    elif hasattr(name, "write"):
        name.write(text + "\n")
    else:
        with open(name, "a", encoding="utf-8") as file:
            file.write(text + "\n")
