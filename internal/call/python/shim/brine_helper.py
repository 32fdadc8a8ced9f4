"""Run the Python modules of a machine on behalf of Brine.

Brine starts this program and talks to it over two pipes, descriptors 3 (requests) and
4 (answers). A frame is four bytes of length, one byte of flags, and a tuple in the second
version of the marshal format, which has the same bytes in every Python 3. Bit 0 of the
flags says that the tuple has values that marshal lacks; see wrap and revive.

    ("q", id, operation, env, ...)   a request, in both directions
    ("r", id, succeeded, value)      the answer
    ("l", level, logger, text)       a log record, to Brine only
    ("p", env, stream, text)         what a function prints, to Brine only, if the caller shows it
    ("e", variables)                 changes of the environment of Brine's process, to Python only

While a call waits for an answer, requests of the other side are served, so calls nest.
"""

import marshal
import os
import struct
import sys
import threading
from _collections_abc import MutableMapping  # collections.abc without the import of collections

SHIM = os.path.dirname(os.path.abspath(__file__))
HEAD = struct.Struct(">IB")
PID = os.getpid()
MAIN = threading.get_ident()
MARK = Ellipsis  # first item of a tuple that stands for another value
DEEP = 400  # levels of containers, fewer than marshal's limit


class Refusal(Exception):
    """A value that cannot be sent."""


def wrap(value, depth=0):
    """Return a value as marshal can write it."""
    kind = type(value)
    if kind in (str, bytes, int, float, bool) or value is None:
        return value
    if depth > DEEP:
        raise Refusal("a value is nested more than {} levels deep".format(DEEP))
    depth += 1
    if isinstance(value, dict):
        return {wrap(k, depth): wrap(v, depth) for k, v in value.items()}
    if isinstance(value, list):
        return [wrap(v, depth) for v in value]
    if isinstance(value, (tuple, set, frozenset)):
        return tuple(wrap(v, depth) for v in value)
    for base in (str, bytes, int, float):
        if isinstance(value, base):
            return base.__str__(value) if base is str else base(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    datetime = sys.modules.get("datetime")
    if datetime is not None and isinstance(value, datetime.datetime):
        return (MARK, "time", value.year, value.month, value.day, value.hour, value.minute,
                value.second, value.microsecond)
    if datetime is not None and isinstance(value, datetime.date):
        return (MARK, "date", value.year, value.month, value.day)
    if isinstance(value, Context):
        return wrap(value.value(), depth)
    items = getattr(value, "items", None)
    if items is not None and hasattr(value, "keys") and not isinstance(value, type):
        return {wrap(k, depth): wrap(v, depth) for k, v in items()}
    return str(value)


def revive(value):
    """Undo what the other side did to values that marshal lacks."""
    if type(value) is dict:
        return {revive(k): revive(v) for k, v in value.items()}
    if type(value) is list:
        return [revive(v) for v in value]
    if type(value) is tuple:
        if len(value) == 9 and value[0] is MARK and value[1] == "time":
            import datetime
            return datetime.datetime(*value[2:])
        if len(value) == 5 and value[0] is MARK and value[1] == "date":
            import datetime
            return datetime.date(*value[2:])
        return tuple(revive(v) for v in value)
    return value


class Pipe:
    """The pair of pipes to Brine. Threads of modules may use it, too."""

    def __init__(self):
        for fd in (3, 4):
            os.set_inheritable(fd, False)
        self.source = os.fdopen(3, "rb", 1 << 16)
        self.limit = 64 << 20
        self.writing = threading.Lock()
        self.turn = threading.Condition()
        self.reading = False
        self.answers = {}
        self.last = 0
        self.busy = 0  # requests and messages of the main thread in progress

    def send(self, message):
        with self:
            self.write(message)

    def __enter__(self):
        self.busy += threading.get_ident() == MAIN

    def __exit__(self, *_):
        """End an engine whose signal has arrived meanwhile."""
        if threading.get_ident() == MAIN:
            self.busy -= 1
            if not self.busy and Stop.pending:
                Stop.pending = False
                raise SystemExit(0)

    def write(self, message):
        if os.getpid() != PID:
            os._exit(70)  # a fork of a module fell out of its function
        flags = 0
        try:
            data = marshal.dumps(message, 2)
        except ValueError:
            data, flags = marshal.dumps(wrap(message), 2), 1
        if len(data) > self.limit:
            raise Refusal("{} bytes are more than the {} that one call may hand over".format(
                len(data), self.limit))
        data = HEAD.pack(len(data), flags) + data
        with self.writing:
            view = memoryview(data)
            while view:
                try:
                    view = view[os.write(4, view):]
                except BrokenPipeError:
                    os._exit(0)

    def receive(self):
        head = self.source.read(HEAD.size)
        if len(head) < HEAD.size:
            leave()
        size, flags = HEAD.unpack(head)
        data = self.source.read(size)
        if len(data) < size:
            leave()
        message = marshal.loads(data)
        return revive(message) if flags & 1 else message

    def ask(self, operation, *args):
        """Send a request of the current call and return the answer."""
        succeeded, value = self.request(operation, frame().env, args)
        if succeeded:
            return value
        raise failure(value)

    def request(self, operation, env, args):
        """Send a request and return whether it succeeded, and the value or the error."""
        with self:
            with self.turn:
                self.last += 1
                number = self.last
            self.send(("q", number, operation, env) + args)
            return self.wait(number)

    def wait(self, number):
        """Serve requests until the answer to a request is there; for ever without one."""
        while True:
            with self.turn:
                while self.reading and number not in self.answers:
                    self.turn.wait()
                if number in self.answers:
                    return self.answers.pop(number)
                self.reading = True
            try:
                message = self.receive()
            finally:
                with self.turn:
                    self.reading = False
                    self.turn.notify_all()
            if message[0] == "e":
                set_environment(message[1])
            elif message[0] == "r":
                with self.turn:
                    self.answers[message[1]] = message[2:4]
                    self.turn.notify_all()
            else:
                serve(message)


class Stop:
    """The signal by which an engine ends: SystemExit, but not within a message."""

    pending = False

    @classmethod
    def arrived(cls, *_):
        if getattr(pipe, "busy", 0):
            cls.pending = True
        else:
            raise SystemExit(0)


class Child(Pipe):
    """The pipe of a forked process: a thread of the process that forked it passes requests on."""

    def __init__(self, connection, limit):
        self.connection, self.limit, self.writing, self.busy = connection, limit, threading.RLock(), 0

    def send(self, message):
        if message[0] == "r":
            os._exit(70)  # a fork of a module fell out of its function
        with self.writing:
            put(self.connection, message)

    def request(self, operation, env, args):
        with self.writing:
            put(self.connection, ("q", 0, operation, env) + args)
            answer = get(self.connection)
        if answer is None:
            os._exit(0)
        return answer[2:4]


def put(connection, message):
    data = marshal.dumps(wrap(message), 2)
    try:
        connection.sendall(HEAD.pack(len(data), 1) + data)
    except OSError:
        os._exit(0)


def get(connection):
    """Return the next message of a connection between processes, or None at its end."""
    data, size = b"", HEAD.size
    while len(data) < size:
        try:
            part = connection.recv(min(size - len(data), 1 << 20))
        except OSError:
            part = b""
        if not part:
            return None
        data += part
        if size == HEAD.size and len(data) == size:
            size += HEAD.unpack(data)[0]
    return revive(marshal.loads(data[HEAD.size:]))


forking = threading.local()


def before_fork():
    import socket
    try:
        forking.pair = socket.socketpair()
    except OSError:
        forking.pair = None


def after_fork_in_parent():
    pair, forking.pair = forking.pair, None
    if pair:
        pair[1].close()
        threading.Thread(target=pass_on, args=(pair[0],), daemon=True).start()


def after_fork_in_child():
    global pipe, PID, MAIN
    pair, forking.pair = forking.pair, None
    if not pair:
        return  # send ends this process
    pair[0].close()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (3, 4):
        os.dup2(null, fd, False)
    os.close(null)
    pipe, PID, MAIN = Child(pair[1], pipe.limit), os.getpid(), threading.get_ident()


def pass_on(connection):
    """Make the requests of a child until it ends."""
    with connection:
        while True:
            message = get(connection)
            if message is None:
                return
            try:
                if message[0] in ("l", "p"):
                    pipe.send(message)
                    continue
                succeeded, value = pipe.request(message[2], message[3], tuple(message[4:]))
            except Refusal as exc:
                succeeded, value = False, {"kind": "command", "text": str(exc)}
            data = marshal.dumps(wrap(("r", 0, succeeded, value)), 2)
            try:
                connection.sendall(HEAD.pack(len(data), 1) + data)
            except OSError:
                return


def leave():
    """End this process: Brine has closed the pipe."""
    if getattr(frames, "stack", None) or threading.current_thread() is not threading.main_thread():
        os._exit(0)
    sys.exit(0)


# Calls in progress.

class Frame:
    """One call that Brine made: its environment, variables and trees of data."""

    def __init__(self, env, variables):
        self.env, self.vars, self.trees = env, variables, {}

    def tree(self, name):
        if name in self.trees:
            return self.trees[name]
        if name in self.vars:
            data = self.vars[name]
        else:
            known = TREES.get(name, ())
            number, data = pipe.ask("tree", name, [n for n, _ in known])
            if number:
                for n, old in known:
                    if n == number:
                        data = old
                if name == "pillar" and not any(n == number for n, _ in known):
                    data = self.local_pillar(data)
                TREES[name] = ([(number, data)] + [t for t in known if t[0] != number])[:4]
        if name == "opts":
            data = Options(data)
            if self.vars.get("test") is not None:
                data["test"] = self.vars["test"]
        self.trees[name] = data
        return data

    def local_pillar(self, pillar, whole=True):
        """Return the pillar, or a value of it, as Salt has it: the mappings below its top are
        OrderedDicts if the minion compiles it itself, but no longer after a message of a master."""
        if dict.get(self.tree("opts"), "file_client") != "local":
            return pillar
        if whole and type(pillar) is dict:
            return {k: ordered(v) for k, v in pillar.items()}
        return ordered(pillar)


TREES = {}  # name: [(number, data)], newest first
frames = threading.local()
latest = [Frame(0, {})]  # for threads of modules, which have no frame of their own


def frame():
    stack = getattr(frames, "stack", None)
    return stack[-1] if stack else latest[-1]


class Options(dict):
    """The options, with the grains and the pillar, which are fetched when they are asked for."""

    LATE = ("grains", "pillar")

    def __missing__(self, key):
        if key in self.LATE:
            self[key] = data = frame().tree(key)
            return data
        raise KeyError(key)

    def get(self, key, default=None):
        return self[key] if key in self else default

    def __contains__(self, key):
        return key in self.LATE or dict.__contains__(self, key)

    def complete(self):
        """Return the options after fetching the grains and the pillar."""
        for key in self.LATE:
            self[key]  # pylint: disable=pointless-statement
        return self


class Context(MutableMapping):
    """A mapping whose content belongs to the current call, such as __grains__."""

    def __init__(self, name, get):
        self._name, self._get = name, get

    def value(self):
        return self._get()

    def __getitem__(self, key):
        return self._get()[key]

    def __setitem__(self, key, value):
        self._get()[key] = value

    def __delitem__(self, key):
        del self._get()[key]

    def __contains__(self, key):
        return key in self._get()

    def __iter__(self):
        return iter(self._get())

    def __len__(self):
        return len(self._get())

    def __bool__(self):
        return bool(self._get())

    def __eq__(self, other):
        # As in Salt, such a mapping is not equal to a dict of the same content.
        return isinstance(other, Context) and self._name == other._name

    def __ne__(self, other):
        return not self == other

    __hash__ = None

    def get(self, key, default=None):
        return self._get().get(key, default)

    def keys(self):
        return self._get().keys()

    def values(self):
        return self._get().values()

    def items(self):
        return self._get().items()

    def pop(self, *args):
        return self._get().pop(*args)

    def popitem(self):
        return self._get().popitem()

    def setdefault(self, key, default=None):
        return self._get().setdefault(key, default)

    def update(self, *args, **kwargs):
        self._get().update(*args, **kwargs)

    def clear(self):
        self._get().clear()

    def __repr__(self):
        return repr(self._get())

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._get(), name)

    def __copy__(self):
        return dict(self._get())

    def __deepcopy__(self, memo):
        import copy
        return copy.deepcopy(self._get(), memo)


if sys.version_info >= (3, 8):
    class Settings(Context, dict):
        """__opts__: in Salt a dict, so modules look for one.

        The dict itself has one entry that nothing reads: json writes {} for a dict without entries.
        From 3.8 on Python uses the methods of a class that replaces __iter__, also for dict(...) and
        {**...}.
        """

        def __init__(self, name, get):
            super().__init__(name, get)
            dict.__setitem__(self, "id", None)

        def _whole(self):
            return self._get().complete()

        def value(self):
            return self._whole()

        def __iter__(self):
            return iter(self._whole())

        def __len__(self):
            return len(self._whole())

        def __eq__(self, other):
            return dict(self._whole()) == (dict(other._whole()) if isinstance(other, Settings) else other)

        def keys(self):
            return self._whole().keys()

        def values(self):
            return self._whole().values()

        def items(self):
            return self._whole().items()

        def copy(self):
            return dict(self._whole())

        def popitem(self):
            return self._whole().popitem()

        def __reversed__(self):
            return reversed(self._whole())

        def __or__(self, other):
            return {**self._whole(), **other}

        def __ror__(self, other):
            return {**other, **self._whole()}

        def __ior__(self, other):
            self.update(other)
            return self

        def __copy__(self):
            return dict(self._whole())

        def __deepcopy__(self, memo):
            import copy
            return copy.deepcopy(dict(self._whole()), memo)

        def __reduce_ex__(self, protocol):
            return dict, (dict(self._whole()),)
else:
    Settings = Context  # dict(...) of a subclass would be empty


CONTEXTS = {}  # job: __context__, oldest first
LOADED = {}  # what modules put into __context__ while they are loaded; all jobs have it


def context():
    """Return the __context__ of the job."""
    if Loader.depth:
        return LOADED
    job = frame().vars.get("job") or "call-{}".format(frame().env)
    if job not in CONTEXTS:
        while len(CONTEXTS) >= 16:
            del CONTEXTS[next(iter(CONTEXTS))]
        CONTEXTS[job] = dict(LOADED)
    return CONTEXTS[job]


# Errors.

RAISED = []  # (number, exception), newest first: one that passes through Brine stays the same object


def own_frames(exc):
    """Return the traceback of an exception from the first frame of a module on."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(SHIM):
        trace = trace.tb_next
    return trace


def describe(exc):
    """Return an exception as Brine's side gets it."""
    trace = own_frames(exc)
    import traceback
    number = RAISED[0][0] + 1 if RAISED else 1
    RAISED[:] = [(number, exc)] + RAISED[:7]
    names = [c.__module__ + "." + c.__qualname__ for c in type(exc).__mro__]
    lines = traceback.format_exception(type(exc), exc, trace)
    if trace is None and lines and lines[0].startswith("Traceback"):
        lines = lines[-1:]
    try:
        text = str(exc)
    except Exception:  # pylint: disable=broad-except
        text = "(an exception whose text cannot be made)"
    info = getattr(exc, "info", None)
    return {"names": names, "text": text, "trace": "".join(lines)[-65536:], "number": number,
            "info": info if isinstance(info, dict) else None,
            "summary": getattr(exc, "error", None) if isinstance(info, dict) else None}


def failure(error):
    """Return the exception for an error of Brine's side."""
    for number, exc in RAISED:
        if number == error.get("number"):
            return exc
    import salt.exceptions
    kind, text = error["kind"], error["text"]
    if kind == "unknown":
        return KeyError(text)
    if kind == "argument":
        return TypeError(text)
    names = {"command": "CommandExecutionError", "invocation": "SaltInvocationError",
             "program": "CommandNotFoundError"}
    if error.get("class"):
        return named_exception(error["class"], text)
    if error.get("info"):
        return salt.exceptions.CommandExecutionError(error["summary"], error["info"])
    return getattr(salt.exceptions, names.get(kind, "CommandExecutionError"))(text)


def named_exception(name, text):
    """Return an exception by the name of its class, as a traceback shows it."""
    import builtins
    import salt.exceptions
    module = salt.exceptions if name.startswith("salt.exceptions.") else builtins
    found = getattr(module, name.rpartition(".")[2], None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(text)
        except Exception:  # a class with other arguments, pylint: disable=broad-except
            pass
    return Exception(text)


# Functions of Brine.

def find_sets(value, found, depth=0):
    """Collect the types of the sets in a value, by their items."""
    kind = type(value)
    if depth > DEEP or kind in (str, int, bool, float, bytes) or value is None:
        return
    if kind is set or kind is frozenset:
        found[frozenset(value)] = kind
    if isinstance(value, dict):
        for k, v in value.items():
            find_sets(k, found, depth + 1)
            find_sets(v, found, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for v in value:
            find_sets(v, found, depth + 1)


def with_sets(value, sets):
    """Return an answer with its sets: Brine has tuples in their place. A tuple with the items of a
    set among the arguments of the call is that set."""
    kind = type(value)
    if kind is dict:
        return {with_sets(k, sets): with_sets(v, sets) for k, v in value.items()}
    if kind is list:
        return [with_sets(v, sets) for v in value]
    if kind is tuple:
        value = tuple(with_sets(v, sets) for v in value)
        try:
            items = frozenset(value)
        except TypeError:
            return value
        if items in sets and len(items) == len(value):
            return sets[items](value)
    return value


# Functions that return values of the pillar, and whether they return a map of them.
PILLAR_FUNCTIONS = {"pillar.get": False, "pillar.raw": False, "pillar.item": True, "pillar.items": True}


class Function:
    """A function that Brine has."""

    def __init__(self, kind, name, source=None):
        self.kind, self.name, self.source = kind, name, source or kind
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self.__module__ = "salt.loaded.int.{}.{}".format(TAGS.get(kind, kind), name.partition(".")[0])

    def __call__(self, *args, **kwargs):
        if self.kind == "modules":
            kwargs = inherited(self.name, args, kwargs)
        sets = {}
        find_sets((args, kwargs), sets)
        value = pipe.ask("call", self.source, self.name, list(args), kwargs)
        if sets:
            value = with_sets(value, sets)
        if self.kind == "modules" and self.name in PILLAR_FUNCTIONS:
            whole = PILLAR_FUNCTIONS[self.name] or not (args or kwargs.get("key"))
            value = frame().local_pillar(value, whole)
        return value

    @property
    def __doc__(self):
        return pipe.ask("doc", self.kind, self.name)

    @property
    def __signature__(self):
        import inspect
        kinds = inspect.Parameter
        found = pipe.ask("call", "modules", "sys.argspec", [self.name], {}) if self.kind == "modules" else {}
        spec = (found or {}).get(self.name)
        if not spec:
            return inspect.Signature([kinds("args", kinds.VAR_POSITIONAL), kinds("kwargs", kinds.VAR_KEYWORD)])
        defaults = list(spec["defaults"] or ())
        defaults = [kinds.empty] * (len(spec["args"]) - len(defaults)) + defaults
        parts = [kinds(n, kinds.POSITIONAL_OR_KEYWORD, default=d) for n, d in zip(spec["args"], defaults)]
        if spec["varargs"]:
            parts.append(kinds("args", kinds.VAR_POSITIONAL))
        if spec["kwargs"]:
            parts.append(kinds("kwargs", kinds.VAR_KEYWORD))
        return inspect.Signature(parts)

    def __repr__(self):
        return "<function {} of Brine>".format(self.name)


class Functions(MutableMapping):
    """__salt__ and its like: functions by name, those of the user's modules and Brine's."""

    def __init__(self, kind):
        self.kind, self.own = kind, {}

    def _find(self, name):
        if not isinstance(name, str):
            return None
        if name in self.own:
            return self.own[name]
        loader = LOADERS.get(self.kind)
        if STOCK and pipe.ask("has", self.kind, name):
            return Function(self.kind, name)  # stock Salt has what Brine has not
        found = loader.find(name, False) if loader else None
        if found is None and not STOCK and pipe.ask("has", self.kind, name):
            found = Function(self.kind, name)
        if isinstance(found, Function) and name.startswith("environ."):
            import brine_environ
            return vars(brine_environ).get(name.partition(".")[2], found)
        if found is None and not STOCK and self.kind == "modules" and name.startswith("pkg_resource."):
            import salt.modules.pkg_resource as shared
            function = name.partition(".")[2]
            found = None if function.startswith("_") else getattr(shared, function, None)
        if found is None and loader and not STOCK:
            found = loader.find(name, True)
        return found

    def __getitem__(self, name):
        found = self._find(name)
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name, function):
        self.own[name] = function

    def __delitem__(self, name):
        del self.own[name]

    def __contains__(self, name):
        return self._find(name) is not None

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other

    def value(self):
        return self

    def missing_fun_string(self, name):
        """Return the message for a function that does not exist."""
        return "'{}' is not available.".format(name)

    def get(self, name, default=None):
        found = self._find(name)
        return default if found is None else found

    def keys(self):
        names = set(pipe.ask("names", self.kind))
        if self.kind in LOADERS:
            names.update(LOADERS[self.kind].all())
        return sorted(names)

    def __iter__(self):
        return iter(self.keys())

    def __len__(self):
        return len(self.keys())

    def items(self):
        # Names of a module of Brine's that one of the user's replaces lead nowhere.
        found = ((name, self._find(name)) for name in self.keys())
        return [(name, function) for name, function in found if function is not None]

    def values(self):
        return [function for _, function in self.items()]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Part(self, name)


Context.register(Functions)
Context.__name__ = Context.__qualname__ = "NamedLoaderContext"  # as in Salt, for messages


class Part:
    """__salt__.module, for __salt__.module.function()."""

    def __init__(self, functions, name):
        self._functions, self._name = functions, name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._functions[self._name + "." + name]
        except KeyError:
            raise AttributeError("{}.{}".format(self._name, name)) from None

    def __getitem__(self, name):
        return self._functions[self._name + "." + name]


class Executors(Functions):
    """__executors__: the user's executors and Brine's."""

    def _find(self, name):
        found = Functions._find(self, name)
        if isinstance(found, Function):
            return direct_call if name == "direct_call.execute" else Builtin(name)
        return found


class Builtin:
    """The function execute of one of Brine's executors."""

    def __init__(self, name):
        self.name = name

    def __call__(self, opts, data, func, args, kwargs):
        return pipe.ask("call", "executors", self.name, [data, list(args)], kwargs)


def direct_call(opts, data, func, args, kwargs):
    """Call a function, as the executor direct_call does."""
    return func(*args, **kwargs)


class Progress:
    """__jid_event__: the events of the runner in progress."""

    def fire_event(self, data, tag=None):
        pipe.ask("progress", data)
        return True


class Utils(Functions):
    """__utils__: the user's utils, then those of the shim."""

    def _find(self, name):
        found = LOADERS["utils"].find(name, False) if "utils" in LOADERS else None
        if found is None and isinstance(name, str) and "." in name:
            module, _, function = name.rpartition(".")
            import importlib
            try:
                found = getattr(importlib.import_module("salt.utils." + module), function, None)
            except ImportError:
                found = None
        if found is None and "utils" in LOADERS:
            found = LOADERS["utils"].find(name, True)
        return found

    def keys(self):
        return sorted(LOADERS["utils"].all()) if "utils" in LOADERS else []


# Loading of modules.

VALUES = ("__low__", "__env__", "__sls__", "__instance_id__", "__pub_jid__")


class Entry:
    """A loaded module."""

    def __init__(self):
        self.names, self.functions, self.reason, self.module, self.failed = (), {}, None, None, False


class Loader:
    """The user's modules of one kind: execution modules, states, grains."""

    depth = 0  # loads in progress, which nest

    def __init__(self, kind, files, claims):
        self.kind, self.files, self.claims, self.entries = kind, files, claims, {}
        self.complete = False

    def find(self, full, everywhere):
        """Return a function by its full name, or None.

        Without everywhere only files are loaded that are likely to have it.
        """
        module, _, name = full.partition(".")
        stems = list(self.claims.get(module, ()))
        if everywhere:
            stems += sorted(set(self.files) - set(stems))
        for stem in stems:
            entry = self.load(stem)
            if module in entry.names and name in entry.functions:
                return entry.functions[name]
        return None

    def why(self, full):
        """Say why there is no function of a full name."""
        module, _, name = full.partition(".")
        stems = self.claims.get(module, ())
        for stem in stems:
            if self.load(stem).reason:
                return self.load(stem).reason
        if stems:
            return "{} has no function {}".format(self.files[stems[0]], name)
        return "there is no module {}".format(module)

    def all(self):
        """Load all files and return the full names of the functions."""
        names = []
        for stem in sorted(self.files):
            entry = self.load(stem)
            names += [n + "." + f for n in entry.names for f in entry.functions]
        return names

    def missing(self):
        """Return the modules that cannot be used, and why."""
        self.all()
        return {stem: e.reason for stem, e in self.entries.items() if not e.names}

    def load(self, stem):
        if stem in self.entries:
            return self.entries[stem]
        Loader.depth += 1
        surroundings = Surroundings()
        places = list(sys.path)
        try:
            return self.load_new(stem)
        finally:
            Loader.depth -= 1
            surroundings.adopt()
            sys.path.extend(p for p in places if p not in sys.path)
            for values in CONTEXTS.values():
                for name, value in LOADED.items():
                    values.setdefault(name, value)

    def load_new(self, stem):
        entry = self.entries[stem] = Entry()
        path = self.files[stem]
        try:
            module = self.execute(stem, path)
        except SyntaxError as exc:
            entry.failed = True
            entry.reason = "{} cannot be loaded: SyntaxError in line {}: {}".format(
                exc.filename or path, exc.lineno, exc.msg)
        except BaseException as exc:  # pylint: disable=broad-except
            entry.failed = True
            entry.reason = "{} cannot be loaded: {}{}: {}".format(
                path, type(exc).__name__, where(exc, path), exc)
        else:
            self.enter(entry, stem, module)
        if entry.reason and entry.failed:
            pipe.send(("l", 40, "brine", entry.reason))
        return entry

    def execute(self, stem, path):
        import importlib.util
        name = "salt.loaded.{}.{}.{}".format("int" if STOCK else "ext", TAGS.get(self.kind, self.kind), stem)
        search = None
        if path.endswith("__init__.py"):
            search = [os.path.dirname(path)]
        if path.endswith(".zip"):
            return self.execute_zipped(name, stem, path)
        if path.endswith(".so"):
            spec = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
        module = importlib.util.module_from_spec(spec)
        self.pack(module)
        sys.modules[name] = module
        directory = os.path.dirname(search[0] if search else path)
        sys.path.append(directory)
        try:
            with open(path, "rb") as source:
                exec(compile(source.read(), path, "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
        finally:
            if directory in sys.path:
                sys.path.remove(directory)
        defaults = module.__dict__.get("__opts__")
        self.pack(module)
        if type(defaults) is dict:
            module.__opts__ = self.with_defaults(stem, defaults)
        return module

    def execute_zipped(self, name, stem, path):
        """Load the module or package of an archive that has the archive's name."""
        import types
        import zipimport
        archive = zipimport.zipimporter(path)
        code = archive.get_code(stem)
        module = types.ModuleType(name)
        module.__file__ = archive.get_filename(stem)
        if archive.is_package(stem):
            module.__path__ = [os.path.join(path, stem)]
            module.__package__ = name
        self.pack(module)
        sys.modules[name] = module
        try:
            exec(code, module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
        self.pack(module)
        return module

    def with_defaults(self, stem, defaults):
        """Return __opts__ of a module that sets it: its values are those of options that nothing sets."""
        key = "opts of {}.{}".format(self.kind, stem)

        def get():
            trees = frame().trees
            if key not in trees:
                trees[key] = Options(defaults)
                trees[key].update(frame().tree("opts"))
            return trees[key]
        return Settings("__opts__", get)

    def pack(self, module):
        for name, value in GLOBALS.items():
            setattr(module, name, value)
        if self.kind == "runners":
            module.__salt__ = GLOBALS["__runner__"]
        if self.kind in ("runners", "wheel"):
            module.__jid_event__ = Progress()
        if self.kind == "engines":
            on_master = dict.get(frame().tree("opts"), "__role") == "master"
            module.__runners__ = GLOBALS["__runner__"] if on_master else []

    def enter(self, entry, stem, module):
        """Ask the module whether and under which name it can be used, and list its functions."""
        import functools
        import types
        start = getattr(module, "__init__", None)
        if isinstance(start, types.FunctionType):
            try:
                start(frame().tree("opts"))
            except TypeError:
                pass
            except BaseException as exc:  # pylint: disable=broad-except
                path = self.files[stem]
                entry.failed = True
                entry.reason = "{} cannot be used: its function __init__ raised {}{}: {}".format(
                    path, type(exc).__name__, where(exc, path), exc)
                return
        name = stem
        virtual = getattr(module, "__virtual__", None)
        if callable(virtual):
            try:
                answer = virtual()
            except BaseException as exc:  # pylint: disable=broad-except
                answer = (False, "Exception raised when processing __virtual__ function for {}. "
                          "Module will not be loaded: {}".format(module.__name__, exc))
                entry.failed = True
            reason = None
            if isinstance(answer, tuple):
                answer, reason = answer[0], answer[1] if len(answer) > 1 else None
            if not answer:
                entry.reason = None if reason is None else str(reason)
                return
            name = getattr(module, "__virtualname__", answer)
            if name is True:
                name = stem
            if not isinstance(name, str):
                entry.failed = True
                entry.reason = "{} cannot be used: its function __virtual__ returned {!r}, which is no name".format(
                    self.files[stem], name)
                return
        entry.module = module
        aliases = getattr(module, "__virtual_aliases__", ())
        entry.names = (name,) + tuple([aliases] if isinstance(aliases, str) else aliases)
        renamed = getattr(module, "__func_alias__", {})
        chosen = getattr(module, "__load__", None) or getattr(module, "__all__", None) or dir(module)
        for attr in chosen:
            function = getattr(module, attr, None)
            if attr.startswith("_"):
                continue
            if not isinstance(function, (types.FunctionType, functools.partial)):
                continue
            # As in Salt, an imported function is none of the module, except in utils.
            if self.kind == "utils" or str(function.__module__).startswith("salt.loaded"):
                entry.functions[renamed.get(attr, attr)] = function
        decorators = sys.modules.get("salt.utils.decorators")
        if hasattr(decorators, "enforce"):
            decorators.enforce(module.__name__, entry.functions, renamed)


class Surroundings:
    """What a process has that modules change: environment, directory, mask of files, signals."""

    start = None  # those with which a call starts

    def __init__(self):
        import signal
        self.environ = dict(os.environ)
        try:
            self.directory = os.getcwd()
        except OSError:
            self.directory = "/"
        self.mask = os.umask(0o022)
        os.umask(self.mask)
        self.handlers = {n: signal.getsignal(n) for n in (
            signal.SIGALRM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)}

    def adopt(self):
        """Make what has changed since part of the surroundings with which calls start."""
        start, now = Surroundings.start, Surroundings()
        if start is None:
            return
        for name in self.environ.keys() | now.environ.keys():
            if self.environ.get(name) != now.environ.get(name):
                if name in now.environ:
                    start.environ[name] = now.environ[name]
                else:
                    start.environ.pop(name, None)
        if self.directory != now.directory:
            start.directory = now.directory
        if self.mask != now.mask:
            start.mask = now.mask
        for number, handler in now.handlers.items():
            if handler is not self.handlers[number]:
                start.handlers[number] = handler

    def restore(self):
        """Undo what the last call has changed, which in Salt ends with the process of the job."""
        import signal
        if dict(os.environ) != self.environ:
            os.environ.clear()
            os.environ.update(self.environ)
        try:
            if os.getcwd() != self.directory:
                os.chdir(self.directory)
        except OSError:
            os.chdir("/")
        os.umask(self.mask)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self.handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def set_environment(changes):
    """Change environment variables for this call and later ones; None removes a variable."""
    start = Surroundings.start
    for variables in (os.environ,) + ((start.environ, start.inherited) if start else ()):
        for name, text in changes.items():
            if text is None:
                variables.pop(name, None)
            else:
                variables[name] = text


def inherited(name, args, kwargs):
    """Return the keywords of a function that starts a program, which inherits os.environ in Salt."""
    start = Surroundings.start
    if name not in PROGRAMS or start is None or len(args) > 2:
        return kwargs
    changed = {n: v for n, v in os.environ.items() if start.inherited.get(n) != v}
    given = kwargs.get("env")
    if any(n not in os.environ for n in start.inherited) and not kwargs.get("clean_env") and name != "cmd.exec_code":
        # Brine's process still has what the module has removed.
        changed = {n: v for n, v in os.environ.items() if n not in LOCALE or n in changed}
        kwargs = dict(kwargs, clean_env=True)
    if not changed:
        return kwargs
    if not given or isinstance(given, dict):
        return dict(kwargs, env=dict(changed, **(given or {})))
    if isinstance(given, list):
        return dict(kwargs, env=[{n: v} for n, v in changed.items()] + given)
    return kwargs


# Variables that cmd.run sets or removes, unless they are given.
LOCALE = {"LC_" + n for n in (
    "CTYPE", "NUMERIC", "TIME", "COLLATE", "MONETARY", "MESSAGES", "PAPER", "NAME", "ADDRESS", "TELEPHONE", "MEASUREMENT",
    "IDENTIFICATION")} | {"LANGUAGE", "NOTIFY_SOCKET"}
PROGRAMS = {"cmd." + name for name in (
    "exec_code", "retcode", "run", "run_all", "run_bg", "run_stderr", "run_stdout", "script", "script_retcode", "shell")}


def where(exc, path):
    """Return the line of a file at which an exception was raised, in words."""
    line, trace = None, exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else " in line {}".format(line)


TAGS = {"modules": "module", "renderers": "render", "returners": "returner", "runners": "runner",
        "beacons": "beacons", "executors": "executor"}
LOADERS = {}
GLOBALS = {}
STOCK = []  # the directory of stock Salt's package, if that is used


def fill_globals():
    GLOBALS.update({
        "__salt__": Functions("modules"), "__states__": Functions("states"), "__runner__": Functions("runners"),
        "__wheel__": Functions("wheel"),
        "__utils__": Utils("utils"), "__proxy__": {}, "__serializers__": Functions("serializers"),
        "__ret__": Functions("returners"), "__executors__": Executors("executors"),
        "__context__": Context("__context__", context), "__salt_system_encoding__": "utf-8",
    })
    for name in ("grains", "pillar", "opts", "running", "lowstate"):
        GLOBALS["__{}__".format(name)] = (Settings if name == "opts" else Context)(
            "__{}__".format(name), lambda name=name: frame().tree(name))
    GLOBALS["__file_client__"] = None


# Requests of Brine.

def specification(function):
    """Describe the arguments and the documentation of a function."""
    real = function
    while hasattr(real, "__wrapped__"):
        real = real.__wrapped__
    code = getattr(real, "__code__", None)
    if code is None:
        return {"doc": getattr(function, "__doc__", None), "args": [], "defaults": [],
                "varargs": "args", "keywords": "kwargs", "only": [], "onlydefaults": {},
                "out": None}
    names, count = code.co_varnames, code.co_argcount
    only = names[count:count + code.co_kwonlyargcount]
    rest = names[count + code.co_kwonlyargcount:]
    varargs = keywords = None
    if code.co_flags & 4:
        varargs, rest = rest[0], rest[1:]
    if code.co_flags & 8:
        keywords = rest[0]
    args = list(names[:count])
    if getattr(real, "__self__", None) is not None:
        args = args[1:]
    return {"doc": function.__doc__ or real.__doc__, "args": args,
            "defaults": list(real.__defaults__ or ()), "varargs": varargs, "keywords": keywords,
            "only": list(only), "onlydefaults": dict(real.__kwdefaults__ or {})}


def safe(value):
    """Return a default as it can be sent."""
    try:
        marshal.dumps(value, 2)
        return value
    except ValueError:
        return wrap(value) if isinstance(value, (dict, list, tuple, set)) else repr(value)


def do_find(kind, name, everywhere):
    loader = LOADERS.get(kind)
    function = loader.find(name, everywhere) if loader else None
    if function is None:
        return None
    spec = specification(function)
    spec["defaults"] = [safe(v) for v in spec["defaults"]]
    spec["onlydefaults"] = {k: safe(v) for k, v in spec["onlydefaults"].items()}
    module = sys.modules.get(getattr(function, "__module__", None))
    outputters = getattr(module, "__outputter__", None)
    spec["out"] = outputters.get(name.partition(".")[2]) if isinstance(outputters, dict) else None
    return spec


def do_list(kind):
    loader = LOADERS.get(kind)
    if loader is None:
        return [[], {}]
    return [sorted(loader.all()), loader.missing()]


def do_call(kind, name, args, kwargs):
    loader = LOADERS.get(kind)
    function = loader.find(name, True) if loader else None
    if function is None:
        import salt.exceptions
        raise salt.exceptions.CommandExecutionError(loader.why(name) if loader else name)
    if kind == "beacons":
        return list(function(*args, **kwargs) or ())
    if kind == "fileserver":
        return listed(function(*args, **kwargs))
    if kind == "states":
        kwargs = {name: ordered(value) for name, value in kwargs.items()}
    return finish(inject(function, args, kwargs))


def listed(value):
    """Return what a file server backend answers; Salt takes any kind of collection of names."""
    if isinstance(value, (str, bytes, bytearray, list, tuple, set, frozenset)) or hasattr(value, "items"):
        return value
    return list(value) if hasattr(value, "__iter__") else value


def do_engine(name, kwargs):
    """Run the function start of an engine until it ends, and the threads and processes that it leaves.

    The result is whether there is such an engine, and why there is none.
    """
    import signal
    signal.signal(signal.SIGTERM, Stop.arrived)
    loader, full = LOADERS.get("engines"), name + ".start"
    start = loader.find(full, True) if loader else None
    if start is None:
        return [False, loader.why(full) if loader else "there is no module {}".format(name)]
    try:
        start(**kwargs)
    except Exception as exc:  # pylint: disable=broad-except
        if left_running():
            pipe.send(("l", 40, "brine", "the engine {} goes on without its function start, which raised an exception: {}".format(
                name, describe(exc)["trace"])))
        join_others()
        raise
    join_others()
    return [True, None]


def left_running():
    """Return the threads and processes for which a process waits at its end."""
    found = [t for t in threading.enumerate() if not t.daemon and t.ident != MAIN]
    processes = sys.modules.get("multiprocessing")
    return found + ([p for p in processes.active_children() if not p.daemon] if processes else [])


def join_others():
    """Wait for the threads and processes that a module has started."""
    while True:
        found = left_running()
        if not found:
            return
        found[0].join(1)


def ordered(value):
    """Return a value with OrderedDicts in place of its mappings, as Salt reads SLS files."""
    if type(value) is dict:
        from collections import OrderedDict
        return OrderedDict((k, ordered(v)) for k, v in value.items())
    if type(value) is list:
        return [ordered(v) for v in value]
    return value


def do_execute(name, fun, data, args, kwargs):
    """Call an executor. If its result is None, the next one gets the arguments that it has left."""
    loader = LOADERS.get("executors")
    execute = loader.find(name, True) if loader else None
    if execute is None:
        import salt.exceptions
        raise salt.exceptions.SaltInvocationError(
            "Executor '{}' is not available".format(name.rpartition(".")[0]))
    func = GLOBALS["__salt__"].get(fun, fun)
    result = finish(execute(frame().tree("opts"), data, func, args, kwargs))
    return [result, list(args), kwargs] if result is None else [result, [], {}]


def do_aggregate(name, index, chunks, running):
    """Call mod_aggregate of a state module; return its result, and the chunks that it has changed."""
    import copy
    function = LOADERS["states"].find(name, True)
    before = copy.deepcopy(chunks)
    low = inject(function, [chunks[index], chunks, running], {})
    changed = {n: c for n, c in enumerate(chunks) if n < len(before) and c != before[n]}
    return [low, changed]


def inject(function, args, kwargs):
    """Call a function with the variables of the call among its globals."""
    variables = frame().vars
    scope = getattr(function, "__globals__", None)
    real = function
    while hasattr(real, "__wrapped__"):
        real = real.__wrapped__
        scope = getattr(real, "__globals__", scope)
    values = {n: variables[n] for n in VALUES if n in variables}
    if scope is None or not values:
        return function(*args, **kwargs)
    missing = object()
    before = {n: scope.get(n, missing) for n in values}
    scope.update(values)
    try:
        return function(*args, **kwargs)
    finally:
        for n, v in before.items():
            if v is missing:
                scope.pop(n, None)
            else:
                scope[n] = v


def finish(value):
    """Return the result of a call; a generator's parts are put together."""
    import types
    if not isinstance(value, types.GeneratorType):
        return value
    whole = {}
    for part in value:
        if isinstance(part, dict) and isinstance(whole, dict):
            whole.update(part)
        else:
            if not isinstance(whole, list):
                whole = []
            whole.append(part)
        pipe.ask("progress", part)
    return whole


def do_grains(collected):
    """Return what the user's grains modules say."""
    loader, out = LOADERS.get("grains"), {}
    frame().trees["grains"] = collected
    for stem in sorted(loader.files) if loader else ():
        entry = loader.load(stem)
        for name in sorted(entry.functions):
            function = entry.functions[name]
            spec = specification(function)
            kwargs = {}
            if "grains" in spec["args"]:
                kwargs["grains"] = collected
            if "proxy" in spec["args"]:
                kwargs["proxy"] = None
            try:
                part = function(**kwargs)
            except BaseException as exc:  # pylint: disable=broad-except
                pipe.send(("l", 40, "brine", "grains function {} in {} failed: {}".format(
                    name, loader.files[stem], describe(exc)["trace"])))
                continue
            if isinstance(part, dict):
                part = decoded(part)
                out.update(part)
                collected.update(part)
    return out


def decoded(value):
    """Return a value with text for bytes, as Salt has it in grains."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value
    if isinstance(value, dict):
        return {decoded(k): decoded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(decoded, value)) if type(value) in (list, tuple) else value
    return value


def do_render(name, data, first, path, values):
    """Run a renderer: py, or one of the user's."""
    import io
    if name == "py":
        return run_source(data, path, values)
    function = LOADERS["renderers"].find(name + ".render", True) if "renderers" in LOADERS else None
    if function is None:
        import brine_templates
        return brine_templates.RENDERERS[name](data if isinstance(data, str) else str(data), path, values)
    kwargs = {k: v for k, v in values.items() if k in ("saltenv", "sls", "argline", "context")}
    kwargs["tmplpath"] = path
    source = io.StringIO(data) if first and isinstance(data, str) else data
    result = function(source, **kwargs)
    return result.read() if hasattr(result, "read") else result


def run_source(source, path, values):
    """Run the function run of a Python source, as the renderer py does."""
    import types
    module = types.ModuleType(os.path.basename(path).partition(".")[0] or "template")
    module.__file__ = path
    module.__dict__.update(GLOBALS)
    for name in ("salt", "grains", "pillar", "opts"):
        module.__dict__[name] = GLOBALS["__{}__".format(name)]
    for name in ("grains", "pillar"):
        module.__dict__[name] = module.__dict__["__{}__".format(name)] = frame().tree(name)
    module.__dict__.update(values)
    module.__env__, module.__sls__ = values.get("saltenv"), values.get("sls")
    remember(path, source)
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    try:
        return module.run()
    except Exception as exc:  # as in Salt, its traceback is the text, other than at an error outside of run, pylint: disable=broad-except
        import traceback
        import salt.exceptions
        lines = traceback.format_exception(type(exc), exc, own_frames(exc))
        raise salt.exceptions.SaltRenderError("".join(lines)) from None


def remember(path, source):
    """Let tracebacks quote a source that is in no file."""
    import linecache
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)


# Objects in templates.

LENT = {}  # number: object among the variables of a template that Brine renders
LENT_KEY = "\0lent"


def is_value(value):
    """Report whether a value can be sent as it is; an object is lent instead."""
    kind = type(value)
    if value is None or isinstance(value, (str, bytes, int, float, bytearray, memoryview, Context)) or kind in (
            list, tuple, set, frozenset, dict):
        return True
    return kind.__module__ in ("collections", "datetime", "salt.utils.odict", "salt.utils.jinja")


def lend(value):
    """Return what a template gets for a value: the value, or a number for an object."""
    if isinstance(value, type({}.keys())) or isinstance(value, (type({}.values()), type({}.items()))) or hasattr(value, "__next__"):
        value = list(value)
    if is_value(value):
        return ("value", value)
    number = LENT["last"] = LENT.get("last", 0) + 1
    LENT[number] = value
    kind = ""
    if isinstance(value, dict) or hasattr(value, "keys") and hasattr(value, "__getitem__") and not isinstance(value, type):
        kind = "map"
    elif callable(value):
        kind = "call"
    elif hasattr(value, "__iter__") and hasattr(value, "__len__"):
        kind = "iterate"
    return ("object", number, type(value).__name__, kind)


def borrowed(value):
    """Return the object for what a template passes back."""
    if type(value) is dict and len(value) == 1 and LENT_KEY in value:
        return LENT[value[LENT_KEY]]
    return value


def do_object(number, action, *args):
    """Do to an object what a template does to it. None means that it does not have that."""
    value = LENT[number]
    if action == "attribute":
        try:
            return lend(getattr(value, args[0]))
        except AttributeError:
            return None
    if action == "item":
        try:
            return lend(value[borrowed(args[0])])
        except (AttributeError, TypeError, LookupError):
            return None
    if action == "call":
        return lend(value(*[borrowed(a) for a in args[0]], **{k: borrowed(v) for k, v in args[1].items()}))
    if action == "text":
        return ("value", repr(value) if args[0] else str(value))
    if action == "iterate":
        return ("value", list(value))
    if action == "length":
        return ("value", len(value))
    if action == "contains":
        return ("value", borrowed(args[0]) in value)
    return ("value", value if isinstance(value, (dict, list, tuple)) or hasattr(value, "keys") else str(value))


def ask_render(name, text, saltenv, path, variables):
    """Render a text with a pipe of Brine's renderers. Objects among the variables stay here."""
    first = LENT.get("last", 0)
    values, objects = {}, {}
    for key, value in (variables or {}).items():
        if isinstance(value, Functions) or not isinstance(key, str):
            continue  # the template has its own
        described = lend(value)
        if described[0] == "value":
            values[key] = described[1]
        else:
            objects[key] = described
    try:
        return pipe.ask("render", name, text, saltenv, path, values, objects)
    finally:
        for number in range(first + 1, LENT.get("last", 0) + 1):
            LENT.pop(number, None)


OPERATIONS = {"object": do_object, "engine": do_engine, "find": do_find, "list": do_list, "call": do_call, "execute": do_execute,
              "aggregate": do_aggregate, "grains": do_grains, "render": do_render}


def serve(message):
    number, operation, env, variables = message[1:5]
    stack = frames.__dict__.setdefault("stack", [])
    current = Frame(env, variables)
    stack.append(current)
    latest.append(current)
    try:
        try:
            value = OPERATIONS[operation](*message[5:])
            code = 0
            if operation in ("call", "execute") and len(stack) == 1:
                code = CONTEXTS.get(variables.get("job") or "call-{}".format(env), {}).pop("retcode", 0)
                code = code if type(code) is int else 0
            flush_printed()
            pipe.send(("r", number, True, value, code))
        except BaseException as exc:  # pylint: disable=broad-except
            flush_printed()
            pipe.send(("r", number, False, describe(exc), 0))
    finally:
        stack.pop()
        latest.remove(current)
        CONTEXTS.pop("call-{}".format(env), None)
        if not stack and threading.current_thread() is threading.main_thread():
            Surroundings.start.restore()


# The shim: import of salt.*.

def install_shim():
    import importlib.machinery as machinery

    class Source(machinery.SourceFileLoader):
        """Keeps the compiled shim, although modules of users are not kept compiled."""

        def get_code(self, fullname):
            before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
            try:
                return super().get_code(fullname)
            finally:
                sys.dont_write_bytecode = before

        def exec_module(self, module):
            super().exec_module(module)
            if type(module) is type(sys) and not hasattr(module, "__getattr__"):
                module.__getattr__ = lambda name: lacking(module.__name__, name)

    def lacking(module, name):
        if name.startswith("__"):
            raise AttributeError(name)
        from salt.substitutes import absent
        return absent(module, name)

    class Finder:
        """Finds the shim's modules, and says what it does not have."""

        @staticmethod
        def find_spec(fullname, path=None, target=None):
            if fullname != "salt" and not fullname.startswith("salt."):
                return None
            base = os.path.join(SHIM, *fullname.split("."))
            for file in (os.path.join(base, "__init__.py"), base + ".py"):
                if os.path.isfile(file):
                    return spec(fullname, file)
            import salt.substitutes
            return salt.substitutes.spec(fullname)

    def spec(fullname, file):
        import importlib.util
        package = [os.path.dirname(file)] if file.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            fullname, file, loader=Source(fullname, file), submodule_search_locations=package)

    sys.meta_path.insert(0, Finder)


def add_levels():
    """Give logging the levels that Salt adds."""
    import logging
    for number, name in ((5, "trace"), (15, "profile"), (1, "garbage")):
        logging.addLevelName(number, name.upper())

        def method(self, text, *args, _number=number, **kwargs):
            if self.isEnabledFor(_number):
                self._log(_number, text, args, **kwargs)
        setattr(logging.Logger, name, method)
        setattr(logging, name.upper(), number)


def start_logging(level):
    import logging

    class Handler(logging.Handler):
        """Passes records to Brine's log."""

        def emit(self, record):
            try:
                pipe.send(("l", record.levelno, record.name, self.format(record)))
            except Refusal:
                pass

    add_levels()
    logging.root.addHandler(Handler())
    logging.root.setLevel(level)


class Printed:
    """sys.stdout or sys.stderr: what the function of a call prints is passed on if the caller shows
    it. All else goes to the log."""

    SIZE, PAUSE = 1 << 14, 0.05  # what is passed on at once, and how often lines are

    def __init__(self, name, stream):
        self._name, self._stream, self._env, self._text, self._last = name, stream, 0, "", 0
        self._lock = threading.RLock()

    def write(self, text):
        if not isinstance(text, str):
            return self._stream.write(text)  # raises the error
        stack = getattr(frames, "stack", None) or latest
        env = next((f.env for f in reversed(stack) if f.vars.get("prints")), 0)
        if not env:
            return self._stream.write(text)
        import time
        with self._lock:
            if env != self._env:
                self.flush()
            self._env, self._text = env, self._text + text
            if len(self._text) > self.SIZE or "\n" in text and time.monotonic() - self._last > self.PAUSE:
                self.flush()
                self._last = time.monotonic()
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        with self._lock:
            text, self._text = self._text, ""
            for start in range(0, len(text), self.SIZE):
                pipe.send(("p", self._env, self._name, text[start:start + self.SIZE]))
        self._stream.flush()

    def __getattr__(self, name):
        return getattr(self._stream, name)


def flush_printed():
    """Pass on what was printed, before the answer."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Printed):
            stream.flush()


def close_others():
    """Close descriptors that this process has got by mistake."""
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = range(5, 1024)
    for fd in found:
        if fd > 4:
            try:
                os.close(fd)
            except OSError:
                pass


def main():
    global pipe
    close_others()
    pipe = Pipe()
    sys.dont_write_bytecode = True
    sys.argv = ["salt-minion"]
    message = pipe.receive()
    settings = message[1]
    pipe.limit = settings["limit"]
    if settings["stock"]:
        STOCK.append(settings["stock"])
        sys.path[0] = settings["stock"]  # instead of the shim, which this program has loaded
    else:
        install_shim()
    start_logging(settings["level"])
    sys.stdout, sys.stderr = Printed("stdout", sys.stdout), Printed("stderr", sys.stderr)
    fill_globals()
    for kind, (files, claims) in settings["loaders"].items():
        LOADERS[kind] = Loader(kind, files, claims)
    for directory in settings["path"]:
        sys.path.append(directory)
    os.register_at_fork(before=before_fork, after_in_parent=after_fork_in_parent, after_in_child=after_fork_in_child)
    Surroundings.start = Surroundings()
    Surroundings.start.inherited = dict(os.environ)
    pipe.send(("r", 0, True, list(sys.version_info[:3]), 0))
    pipe.wait(None)
