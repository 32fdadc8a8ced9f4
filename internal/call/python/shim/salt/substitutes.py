"""Modules that are made when they are imported: salt.modules.x and the like."""

import importlib.machinery
import sys
import types

# Files of Salt whose functions have another name.
FILES = {
    "cmdmod": "cmd", "aptpkg": "pkg", "yumpkg": "pkg", "dpkg_lowpkg": "lowpkg", "rpm_lowpkg": "lowpkg",
    "useradd": "user", "groupadd": "group", "sysmod": "sys", "systemd_service": "service",
    "debian_service": "service", "rh_service": "service", "linux_sysctl": "sysctl", "linux_lvm": "lvm",
    "linux_acl": "acl", "linux_shadow": "shadow", "virtualenv_mod": "virtualenv", "mod_random": "random",
    "localemod": "locale", "debian_ip": "ip", "rh_ip": "ip", "debconfmod": "debconf", "ini_manage": "ini",
    "timezone": "timezone", "dockermod": "docker", "pip_state": "pip", "alternatives": "alternatives",
}
KINDS = {"salt.modules": "__salt__", "salt.states": "__states__", "salt.runners": "__runner__",
         "salt.wheel": "__wheel__"}


class Substitute(types.ModuleType):
    """A module whose functions are those of __salt__ or __states__."""

    def __dir__(self):
        import brine_helper
        package, _, module = self.__name__.rpartition(".")
        if package not in KINDS:
            return super().__dir__()
        start = FILES.get(module, module) + "."
        kind = brine_helper.GLOBALS[KINDS[package]].kind
        found = brine_helper.pipe.ask("names", "builtin") if kind == "modules" else ()
        return sorted(n[len(start):] for n in found or brine_helper.pipe.ask("names", kind) if n.startswith(start))

    def __getattr__(self, name):
        package, _, module = self.__name__.rpartition(".")
        if name == "__all__" and package in KINDS:
            return dir(self)
        if name == "__proxyenabled__" and package in KINDS:
            return ["*"]
        if name.startswith("__"):
            raise AttributeError(name)
        import brine_helper
        if package == "salt.output":
            return self._outputter(module, name)
        functions = brine_helper.GLOBALS[KINDS[package]]
        module = FILES.get(module, module)
        own = brine_helper.LOADERS.get(functions.kind)
        for candidate in (name, name.rstrip("_")):
            full = module + "." + candidate
            if functions.kind == "modules" and own and module in own.claims and brine_helper.pipe.ask("has", "builtin", full):
                return brine_helper.Function("modules", full, "builtin")  # not that of a module of the user's
            found = functions.get(module + "." + candidate)
            if found is not None:
                return found
        if name.startswith("_"):  # a helper of Salt's module: only those functions fail that use it
            return Absent(name, (Exception,), {"__module__": self.__name__, "full": self.__name__ + "." + name})
        known = brine_helper.pipe.ask("names", functions.kind)
        if self.__name__ in names() and not any(full.startswith(module + ".") for full in known):
            return Absent(name, (Exception,), {"__module__": self.__name__, "full": self.__name__ + "." + name})
        raise AttributeError("Brine has no function {}.{}, which {}.{} of Salt is".format(
            module, name, self.__name__, name))


    @staticmethod
    def _outputter(module, name):
        """Return the function of an outputter of Salt's."""
        if name != "output":
            raise AttributeError("Brine's outputter {} has only the function output, not {}".format(module, name))
        import salt.output
        return salt.output.get_printout(module, {})


class Package(types.ModuleType):
    """A package whose modules are made on demand."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        import importlib
        try:
            return importlib.import_module(self.__name__ + "." + name)
        except ImportError as exc:
            raise AttributeError(str(exc)) from None


class Loader:
    """Makes one module."""

    def __init__(self, kind):
        self.kind = kind

    def create_module(self, spec):
        return self.kind(spec.name)

    def exec_module(self, module):
        pass


def spec(fullname):
    """Return how to import a module that is in no file, or raise an ImportError that says what is missing."""
    if fullname in KINDS:
        return importlib.machinery.ModuleSpec(fullname, Loader(Package), is_package=True)
    package = fullname.rpartition(".")[0]
    if package in KINDS or package == "salt.output":
        return importlib.machinery.ModuleSpec(fullname, Loader(Substitute))
    if fullname.startswith("salt.loaded"):
        if fullname.count(".") < 4:
            return importlib.machinery.ModuleSpec(fullname, Loader(Package), is_package=True)
        return loaded(fullname)
    if fullname in names():
        import brine_helper
        brine_helper.pipe.send(("l", 30, "brine", "{} imports {}, which Brine does not provide: what uses it fails".format(
            importer(), fullname)))
        return importlib.machinery.ModuleSpec(fullname, Loader(Missing), is_package=True)
    raise ModuleNotFoundError(
        "Brine does not provide Salt's Python module {}, which {} imports; see python-modules.md".format(
            fullname, importer()), name=fullname)


NAMES = {}


def names():
    """Return the public names of the modules of Salt's package, by module."""
    if not NAMES:
        import os
        import brine_helper
        with open(os.path.join(brine_helper.SHIM, "names.txt"), encoding="utf-8") as file:
            for line in file:
                module, _, content = line.partition(":")
                NAMES[module.strip()] = content.split()
    return NAMES


def absent(module, name):
    """Return what stands for a name that a module of Salt has and that of Brine lacks."""
    full = module + "." + name
    if full in names():
        import importlib
        return importlib.import_module(full)
    if name not in names().get(module, ()):
        raise AttributeError("module '{}' has no attribute '{}'".format(module, name))
    return Absent(name, (Exception,), {"__module__": module, "full": full})


class Absent(type):
    """The kind of a name that can be imported, but not used: a function or class of Salt that Brine lacks."""

    def _text(cls):
        return "Brine does not provide {} of Salt, which {} uses; see python-modules.md".format(cls.full, importer())

    def __call__(cls, *args, **kwargs):
        import salt.exceptions
        raise salt.exceptions.CommandExecutionError(cls._text())

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(cls._text())


class Missing(types.ModuleType):
    """A module of Salt that Brine lacks: importing it works, so that functions that do not use it work."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(self.__name__, name)


def loaded(fullname):
    """Import a module of the user's by the name that Salt gives it."""
    import brine_helper
    path = getattr(sys.modules.get(fullname.rpartition(".")[0]), "__path__", None)
    if path:  # the parent is a package of the user
        return importlib.machinery.PathFinder.find_spec(fullname, path)
    tag, _, stem = fullname[len("salt.loaded.ext."):].partition(".")
    for kind, loader in brine_helper.LOADERS.items():
        if brine_helper.TAGS.get(kind, kind) == tag and stem in loader.files:
            loader.load(stem)
            module = sys.modules.get(fullname)
            if module is not None:
                found = importlib.machinery.ModuleSpec(fullname, Existing(module), origin=getattr(module, "__file__", None))
                found.submodule_search_locations = getattr(module, "__path__", None)
                # The import system uses the specification of a module that was imported meanwhile.
                module.__spec__ = found
                return found
    raise ModuleNotFoundError("there is no module {}".format(fullname), name=fullname)


class Existing(Loader):
    """Hands out a module that exists."""

    def __init__(self, module):
        super().__init__(None)
        self.module = module

    def create_module(self, spec):
        return self.module


def importer():
    """Return the file and line of the import statement that is being executed."""
    import brine_helper
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(brine_helper.SHIM) and not name.startswith("<frozen"):
            if "/importlib/" not in name:
                return "{} in line {}".format(name, frame.f_lineno)
        frame = frame.f_back
    return "a module"
