"""Connect a program on a master's machine, which imports the package salt, to Brine.

The program starts `brine python serve` when it first needs the master, and talks to it over
two pipes as a helper talks to the process that has started it; see brine_helper. A process that
the program forks starts its own.
"""

import os
import subprocess
import threading

import brine_helper as helper


class Host(helper.Pipe):
    """The pair of pipes to `brine python serve`."""

    def __init__(self):  # pylint: disable=super-init-not-called
        self.limit, self.file = 64 << 20, None
        self.starting = threading.RLock()
        self.reset()

    def reset(self):
        """Forget the connection of the process that has forked this one."""
        self.source = self.sink = self.child = None
        self.pid = os.getpid()
        self.writing, self.turn = threading.Lock(), threading.Condition()
        self.reading, self.answers, self.last, self.busy = False, {}, 0, 0
        self.pending = set()  # numbers of requests without an answer

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass

    def use(self, path):
        """Use the configuration of a master. One process uses one."""
        if not path:
            return
        path = os.path.abspath(os.path.join(path, "master") if os.path.isdir(path) else path)
        with self.starting:
            if self.child is not None and self.file and self.file != path:
                raise error("this process uses the master of {} already, and cannot use that of {}: Brine serves one in each "
                            "process".format(self.file, path))
            if self.child is None:
                self.file = path

    def connect(self):
        """Start Brine unless it runs."""
        with self.starting:
            if self.child is not None:
                return
            command = [program(), "python", "serve"] + ([self.file] if self.file else [])
            try:
                self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
            except OSError as exc:
                raise error("cannot start {}: {}".format(command[0], exc))
            self.source, self.sink = self.child.stdout, self.child.stdin
            try:
                _, _, succeeded, value = self.receive()[:4]
            except Exception:
                self.end()
                raise
            if not succeeded:
                self.end()
                raise error(value["text"])
            if not self.file:
                self.file = helper.frame().tree("opts").get("conf_file")

    def end(self):
        """End the connection, and with it the requests of all threads; the next one makes another."""
        child, self.child = self.child, None
        for stream in (self.source, self.sink):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        if child is not None:
            child.kill()
            child.wait()
        with self.turn:
            for number in self.pending:
                self.answers[number] = (False, {"kind": "other", "class": "salt.exceptions.SaltClientError", "text": ENDED})
            self.turn.notify_all()

    def send(self, message):
        if message[0] == "l":
            import logging
            logging.getLogger(message[2]).log(message[1], "%s", message[3])
            return
        super().send(message)

    def request(self, operation, env, args):
        if os.getpid() != self.pid:
            forked()  # Python 3.6 does not call it
        self.connect()
        with self.turn:
            self.last += 1
            number = self.last
            self.pending.add(number)
        try:
            self.send(("q", number, operation, env) + args)
            return self.wait(number)
        finally:
            with self.turn:
                self.pending.discard(number)
                self.answers.pop(number, None)

    def write(self, message):
        flags = 0
        try:
            data = helper.marshal.dumps(message, 2)
        except ValueError:
            data, flags = helper.marshal.dumps(helper.wrap(message), 2), 1
        if len(data) > self.limit:
            raise error("{} bytes are more than the {} that one call may hand over".format(len(data), self.limit))
        sink = self.sink
        with self.writing:
            try:
                view = memoryview(helper.HEAD.pack(len(data), flags) + data)
                while view:
                    view = view[sink.write(view):]
            except (OSError, ValueError, AttributeError):
                self.lost(sink)

    def receive(self):
        source = self.source
        size, flags = helper.HEAD.unpack(self.read(source, helper.HEAD.size))
        message = helper.marshal.loads(self.read(source, size))
        return helper.revive(message) if flags & 1 else message

    def read(self, source, size):
        """Return so many bytes."""
        parts = []
        while size:
            try:
                part = source.read(min(size, 1 << 20))
            except (OSError, ValueError, AttributeError):
                part = b""
            if not part:
                self.lost(source)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def lost(self, stream):
        """Raise the error of a connection that has ended. Another thread may have made a new one already."""
        with self.starting:
            if stream is not None and stream in (self.source, self.sink):
                self.end()
        raise error(ENDED)


ENDED = "the connection to brine has ended"


def error(text):
    """Return an exception of salt.client."""
    import salt.exceptions
    return salt.exceptions.SaltClientError(text)


def program():
    """Return the path of the program brine."""
    import shutil
    named = os.environ.get("BRINE")
    found = named or shutil.which("brine", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/bin", "/usr/local/bin"]))
    if not found:
        raise error("there is no program brine; the variable BRINE can name it")
    return found


def options(path=None):
    """Return the options of the master that a configuration file is for."""
    helper.pipe.use(path)
    helper.pipe.connect()
    return dict(helper.frame().tree("opts"))


class Minion:
    """The functions of a minion that is configured on this machine, by salt-call."""

    def __init__(self, path):
        path = path or os.environ.get("SALT_MINION_CONFIG") or os.path.join(os.environ.get("SALT_CONFIG_DIR") or "/etc/salt", "minion")
        self.directory = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))

    def call(self, fun, *args, **kwargs):
        """Call a function."""
        import json
        import salt.exceptions
        words = [json.dumps(a) for a in args] + ["{}={}".format(k, json.dumps(v)) for k, v in kwargs.items()]
        done = subprocess.run([program(), "salt-call", "-c", self.directory, "--out=json", "--", fun] + words,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        try:
            return json.loads(done.stdout.decode("utf-8", "replace"))["local"]
        except (ValueError, KeyError):
            text = done.stderr.decode("utf-8", "replace").strip()
            raise salt.exceptions.CommandExecutionError(text or "salt-call ended with {}".format(done.returncode))

    def __getitem__(self, fun):
        import functools
        return functools.partial(self.call, fun)

    def __contains__(self, fun):
        return fun in self.call("sys.list_functions")

    def options(self):
        """Return the options of the minion."""
        return self.call("test.get_opts")


def use(opts, sock_dir=None):
    """Use the master whose options these are."""
    if opts and opts.get("conf_file") and opts.get("__role") != "minion":
        helper.pipe.use(opts["conf_file"])
    if sock_dir:
        have = options().get("sock_dir")
        if os.path.realpath(sock_dir) != os.path.realpath(have):
            raise error("sock_dir {} is not that of the master of {}, {}: pass opts of salt.config.master_config".format(
                sock_dir, helper.pipe.file, have))


def begin():
    """Make this process one that uses Brine's package salt outside of a helper."""
    helper.pipe = Host()
    helper.install_shim()
    helper.fill_globals()
    helper.latest[0].vars.update(bus=True, host=True)
    helper.add_levels()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forked)


def forked():
    """Let go of the connection of the parent."""
    pipe = helper.pipe
    if pipe.pid == os.getpid():
        return
    for stream in (pipe.source, pipe.sink):
        if stream is not None:
            stream.close()  # it has no buffer
    pipe.starting = threading.RLock()
    pipe.reset()
    helper.latest[0].trees.clear()
