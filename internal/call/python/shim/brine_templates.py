"""The renderers pyobjects and mako."""

import os
import re
import sys

import brine_helper

REQUISITES = ("listen", "onchanges", "onfail", "require", "watch", "use")
REQUISITES += tuple(name + "_in" for name in REQUISITES)


# pyobjects

class Document:
    """What an SLS file declares, in its order."""

    def __init__(self):
        self.states, self.extended, self.included, self.within = {}, {}, [], []
        self.quiet = 0  # files that are being imported declare nothing

    def declare(self, target, module, function, args):
        extends = isinstance(target, Extension)
        name = target.name if extends else target
        found = Declared(self, module, name)
        if self.quiet:
            return found
        full = module + "." + function
        functions = (self.extended if extends else self.states).setdefault(name, {})
        if full in functions:
            raise ValueError("two states have the ID {!r} and the function {}".format(name, full))
        for requisite in REQUISITES:
            if requisite in args:
                given = args[requisite]
                many = isinstance(given, (list, tuple, set)) or hasattr(given, "__next__")
                args[requisite] = [plain(r) for r in (given if many else [given])]
        for reference in self.within:
            args.setdefault(reference.requisite, []).append(plain(reference))
        functions[full] = [{k: args[k]} for k in sorted(args)]
        return found

    def data(self):
        out = dict(self.states)
        if self.included:
            out["include"] = self.included
        if self.extended:
            out["extend"] = self.extended
        return out


class Reference:
    """A state as a requisite: an argument, or of all states in a with block."""

    requisite = "require"

    def __init__(self, document, module, name):
        self.document, self.module, self.name = document, module, name

    def __enter__(self):
        self.document.within.append(self)
        return self

    def __exit__(self, *_):
        self.document.within.pop()
        return False


class Declared(Reference):
    """A state that the file declares."""


class Extension:
    """The name of a state of another file, for extend."""

    def __init__(self, name):
        self.name = name


def plain(requisite):
    return {requisite.module: requisite.name} if isinstance(requisite, Reference) else requisite


class StateFactory:
    """A state module: File.managed(...) declares a state, File(...) refers to one."""

    def __init__(self, document, module):
        self._document, self._module = document, module

    def __call__(self, id_, requisite="require"):
        found = Reference(self._document, self._module, id_)
        found.requisite = requisite
        return found

    def __getattr__(self, function):
        if function.startswith("__"):
            raise AttributeError(function)
        return lambda id_, **args: self._document.declare(id_, self._module, function, args)


class Map:
    """Values by grains: classes in a class say for which grain's value theirs are."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        salt = brine_helper.GLOBALS["__salt__"]
        choices = []
        for name, choice in list(vars(cls).items()):
            if isinstance(choice, type) and not name.startswith("_"):
                values = {k: v for k, v in vars(choice).items() if not k.startswith("_")}
                choices.append((getattr(choice, "__grain__", "os_family"), getattr(choice, "__match__", name), values))
        order = list(getattr(cls, "priority", ()))
        choices.sort(key=lambda c: order.index(c[0]) if c[0] in order else len(order))
        found = {}
        for grain, match, values in choices:
            if salt["grains.get"](grain) == match:
                found.update(values)
        if hasattr(cls, "merge"):
            found.update(salt["pillar.get"](cls.merge) or {})
        for name, value in found.items():
            setattr(cls, name, value)


class Names(dict):
    """The globals of a file: a capitalized name that nothing else has is a state module."""

    def __init__(self, document, values):
        super().__init__(values)
        self.document = document

    def __missing__(self, name):
        import builtins
        if hasattr(builtins, name) or not re.match(r"[A-Z][A-Za-z0-9]*$", name):
            raise KeyError(name)
        module = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
        self[name] = factory = StateFactory(self.document, module)
        return factory


IMPORT = re.compile(r"\s*import\s+(salt://\S+)\s*$")
FROM = re.compile(r"\s*from\s+(salt://\S+)\s+import\s+(.+?)\s*$")


def execute(document, source, path, scope, values, saltenv):
    """Run a file, after the files that it imports; their lines stay, so that those of errors fit."""
    import types
    lines = source.split("\n")
    for i, line in enumerate(lines):
        found = IMPORT.match(line) or FROM.match(line)
        if not found:
            continue
        lines[i] = ""
        url = found.group(1)
        cached = brine_helper.GLOBALS["__salt__"]["cp.cache_file"](url, saltenv)
        if not cached:
            raise ImportError("{} in line {}: there is no file {}".format(path, i + 1, url))
        with open(cached, encoding="utf-8") as file:
            text = file.read()
        document.quiet += 1
        if document.quiet > 20:
            raise ImportError("{} in line {}: imports are nested too deep".format(path, i + 1))
        inner = Names(document, values)
        try:
            execute(document, text, cached, inner, values, saltenv)
        finally:
            document.quiet -= 1
        if found.re is IMPORT:
            module = types.SimpleNamespace(**{k: v for k, v in inner.items() if not k.startswith("__")})
            scope[os.path.splitext(os.path.basename(cached))[0]] = module
            continue
        for part in found.group(2).split(","):
            name, _, alias = part.strip().partition(" as ")
            if name.strip() not in inner:
                raise ImportError("{} in line {}: {} has no {}".format(path, i + 1, url, name.strip()))
            scope[(alias or name).strip()] = inner[name.strip()]
    source = "\n".join(lines)
    brine_helper.remember(path, source)
    exec(compile(source, path, "exec", dont_inherit=True), scope)


def pyobjects(source, path, values):
    """Return the states that a file declares."""
    document = Document()
    salt = brine_helper.GLOBALS["__salt__"]
    scope = {n: brine_helper.GLOBALS["__{}__".format(n.strip("_"))] for n in ("__salt__", "__pillar__", "__grains__", "__opts__")}
    scope.update(salt=salt, pillar=salt.get("pillar.get"), grains=salt.get("grains.get"), mine=salt.get("mine.get"),
                 config=salt.get("config.get"), include=lambda *names: document.quiet or document.included.extend(names),
                 extend=Extension, Map=Map, __sls__=values.get("sls"), __name__="pyobjects", __file__=path)
    for name, value in values.items():
        if name not in ("sls", "saltenv", "tplpath"):
            scope[name] = value
    execute(document, source, path, Names(document, scope), scope, values.get("saltenv") or "base")
    return document.data()


# mako

def mako(source, path, values):
    """Return the text that a template makes."""
    try:
        import mako.exceptions
        import mako.lookup
        import mako.template
    except ImportError:
        raise ImportError("the renderer mako needs the Python library mako, which {} does not have: install it (python3-mako), "
                          "or name another Python by the option python".format(sys.executable)) from None
    saltenv = values.get("saltenv") or "base"

    class Files(mako.lookup.TemplateCollection):
        """Files of the file server, by salt:// or beside the template."""

        def adjust_uri(self, uri, filename):
            if "://" in uri:
                return uri
            base = filename if filename and "://" in filename else "salt://" + (values.get("sls") or "x").replace(".", "/")
            return base.rpartition("/")[0] + "/" + uri if "/" in base[7:] else "salt://" + uri

        def get_template(self, uri, relativeto=None):
            cached = brine_helper.GLOBALS["__salt__"]["cp.cache_file"](uri, saltenv) if uri.startswith("salt://") else None
            if not cached:
                raise mako.exceptions.TopLevelLookupException("there is no file {}".format(uri))
            with open(cached, encoding="utf-8") as file:
                return mako.template.Template(file.read(), uri=uri, lookup=self, strict_undefined=True)

    names = {n: brine_helper.GLOBALS["__{}__".format(n)] for n in ("salt", "grains", "pillar", "opts")}
    names.update(values)
    template = mako.template.Template(source, uri="salt://" + (values.get("sls") or "x").replace(".", "/") + ".sls", lookup=Files(),
                                      strict_undefined=True)
    return template.render(**names)


RENDERERS = {"pyobjects": pyobjects, "mako": mako}
