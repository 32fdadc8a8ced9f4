"""Arguments of functions."""

import collections
import inspect
import re
import shlex

ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


def clean_kwargs(**kwargs):
    """Return the keywords that do not begin with two underscores."""
    return {k: v for k, v in kwargs.items() if not k.startswith("__")}


def invalid_kwargs(invalid, raise_exc=True):
    """Raise an error that names keywords."""
    from salt.exceptions import SaltInvocationError
    text = "The following keyword arguments are not valid: {}".format(", ".join(
        "{}={}".format(k, v) for k, v in invalid.items()) if isinstance(invalid, dict) else ", ".join(invalid))
    if raise_exc:
        raise SaltInvocationError(text)
    return text


def get_function_argspec(func, is_class_method=None):
    """Return the arguments of a function."""
    while hasattr(func, "__wrapped__"):
        func = func.__wrapped__
    spec = inspect.getfullargspec(func)
    args = spec.args[1:] if is_class_method or inspect.ismethod(func) else list(spec.args)
    named = spec.kwonlydefaults or {}
    defaults = tuple(spec.defaults or ()) + tuple(named[n] for n in spec.kwonlyargs if n in named)
    return ArgSpec(args + spec.kwonlyargs, spec.varargs, spec.varkw, defaults or None)


def arg_lookup(func, aspec=None):
    """Return the required arguments and those with defaults."""
    spec = aspec or get_function_argspec(func)
    defaults = spec.defaults or ()
    first = len(spec.args) - len(defaults)
    return {"args": spec.args[:first], "kwargs": dict(zip(spec.args[first:], defaults))}


def format_call(fun, data, initial_ret=None, expected_extra_kws=(), is_class_method=None):
    """Return from data the arguments and keywords that a function takes."""
    from salt.exceptions import SaltInvocationError
    out = dict(initial_ret or {}, args=[], kwargs={})
    spec = get_function_argspec(fun, is_class_method)
    known = arg_lookup(fun, spec)
    missing = [a for a in known["args"] if a not in data]
    if missing:
        raise SaltInvocationError("{} takes at least {} argument{} ({} given)".format(
            getattr(fun, "__name__", fun), len(known["args"]), "s" * (len(known["args"]) > 1),
            len(known["args"]) - len(missing)))
    out["args"] = [data[a] for a in known["args"]]
    out["kwargs"] = {k: data.get(k, v) for k, v in known["kwargs"].items()}
    extra = {k: v for k, v in data.items() if k not in spec.args and k not in expected_extra_kws}
    if spec.keywords:
        out["kwargs"].update(extra)
    return out


def yamlify_arg(arg):
    """Return an argument of a command line as YAML reads it, if that is a number, a text, a list or a dict in brackets."""
    if not isinstance(arg, str) or arg.strip() in ("", "---", "...", "|", "!") or any(c in arg for c in "\t\r\n"):
        return arg
    if arg == "None":
        return None
    if "_" in arg and not set(arg.strip()) - set("0123456789_"):
        return arg  # YAML reads 1_000 as a number
    import salt.utils.yaml
    try:
        value = salt.utils.yaml.safe_load(arg)
    except Exception:  # pylint: disable=broad-except
        return arg
    if "#" in arg and (value is None or isinstance(value, str)):
        return arg  # what follows is no comment
    opening = {dict: "{", list: "["}.get(type(value))
    if opening and not arg.startswith(opening) or not isinstance(value, (type(None), dict, list, float, int, str)):
        return arg
    return value


def split_input(val, mapper=None):
    """Return the parts of a list or of a text with commas."""
    parts = val if isinstance(val, list) else [p.strip() for p in str(val).split(",")]
    return [mapper(p) for p in parts] if mapper else parts


def shlex_split(s, **kwargs):
    """Return the words of a command line."""
    return shlex.split(s, **kwargs) if isinstance(s, str) else s


def argspec_report(functions, module=""):
    """Return the arguments of functions by name."""
    out = {}
    for name, function in functions.items():
        if name.startswith(module):
            spec = get_function_argspec(function)
            out[name] = {"args": spec.args, "defaults": spec.defaults, "varargs": True if spec.varargs else None,
                         "kwargs": True if spec.keywords else None}
    return out


def test_mode(**kwargs):
    """Report whether the keyword test is set."""
    from salt.utils.data import is_true
    return any(k.lower() == "test" and is_true(v) for k, v in kwargs.items())


KWARG_REGEX = re.compile(r"^([^\d\W][\w.-]*)=(?!=)(.*)$", re.UNICODE)


def parse_kwarg(string):
    """Return the name and the value of a keyword, or two times None."""
    found = KWARG_REGEX.match(string)
    return found.groups() if found else (None, None)


def condition_input(args, kwargs):
    """Return arguments and keywords as one list."""
    out = [str(a) if isinstance(a, int) and not isinstance(a, bool) and abs(a) >= 1 << 63 else a for a in args]
    if kwargs:
        out.append(dict(kwargs, __kwarg__=True))
    return out


def parse_input(args, condition=True, no_parse=None, kwargs=None):
    """Return the arguments of a command line, as YAML reads them."""
    if no_parse is None:
        no_parse = ()
    positional, named = [], {}
    if kwargs:
        named.update(kwargs)
    for arg in args:
        name, value = parse_kwarg(arg) if isinstance(arg, str) else (None, None)
        if name is not None:
            named[name] = value if name in no_parse else yamlify_arg(value)
        elif isinstance(arg, dict) and arg.pop("__kwarg__", False):
            named.update(arg)
        else:
            positional.append(yamlify_arg(arg))
    return condition_input(positional, named) if condition else (positional, named)


def parse_function(s):
    """Return the name, arguments and keywords of a call that is written as text."""
    nothing = None, None, None
    words = shlex.shlex(s, posix=True)
    words.escapedquotes = "\"'"
    name = ""
    for word in words:
        if word == "(":
            break
        name += word
    else:
        return nothing
    positional, named, open_, key, value = [], {}, [], None, []
    for word in words:
        if not name:
            break
        if word in (",", ")") and not open_:
            if key:
                named[key] = "".join(value)
            elif value:
                positional.append("".join(value))
            if word == ")":
                return name, positional, named
            key, value = None, []
        elif word == "=" and not open_:
            key, value = "".join(value), []
        else:
            if word in ("[", "{", "("):
                open_.append(word)
            elif word in ("]", "}", ")") and (not open_ or open_.pop() + word not in ("[]", "{}", "()")):
                return nothing
            value.append(word)
    return nothing


def prepare_kwargs(all_kwargs, class_init_kwargs):
    """Return the keywords of a class and the others."""
    import collections
    given = get_function_argspec(class_init_kwargs).args if callable(class_init_kwargs) else class_init_kwargs
    first, rest = collections.OrderedDict(), collections.OrderedDict()
    for name, value in all_kwargs.items():
        (first if name in given else rest)[name] = value
    return first, rest
