"""Names that moved between Python 2 and 3."""

import builtins
import functools
import importlib
import io
import itertools
import shlex
import sys
import types

filter, map, range, zip, input = filter, map, range, zip, input  # noqa: A001
xrange, reduce, intern = range, functools.reduce, sys.intern
zip_longest, filterfalse = itertools.zip_longest, itertools.filterfalse
StringIO = cStringIO = io.StringIO
shlex_quote = shlex.quote
reload_module = importlib.reload
getcwd = __import__("os").getcwd
_MODULES = {
    "configparser": "configparser", "queue": "queue", "http_client": "http.client", "copyreg": "copyreg",
    "html_parser": "html.parser", "html_entities": "html.entities", "urllib_parse": "urllib.parse",
    "urllib_error": "urllib.error", "cPickle": "pickle", "socketserver": "socketserver", "_thread": "_thread",
    "BaseHTTPServer": "http.server", "xmlrpc_client": "xmlrpc.client", "http_cookiejar": "http.cookiejar",
    "email_mime_text": "email.mime.text", "email_mime_multipart": "email.mime.multipart", "builtins": "builtins",
}


class _Moves(types.ModuleType):
    """Imports modules under their old names when they are asked for."""

    def __getattr__(self, name):
        if name in _MODULES:
            return importlib.import_module(_MODULES[name])
        raise AttributeError(name)


sys.modules[__name__].__class__ = _Moves


class _Finder:
    """Makes import salt.ext.six.moves.configparser work."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        package, _, name = fullname.rpartition(".")
        if package != __name__ or name not in _MODULES:
            return None
        from salt.substitutes import Existing
        from importlib.machinery import ModuleSpec
        return ModuleSpec(fullname, Existing(importlib.import_module(_MODULES[name])))


sys.meta_path.insert(0, _Finder)
from salt.ext.six.moves import urllib  # noqa: E402,F401
