"""Programs that run in a terminal of their own."""

import codecs
import logging
import os
import select
import signal
import subprocess
import sys
import time

from salt._logging import LOG_LEVELS

log = logging.getLogger(__name__)
mswindows = False


class TerminalException(Exception):
    """A terminal cannot be used."""


def setwinsize(child, rows=80, cols=80):
    """Set the size of a terminal."""
    import fcntl
    import struct
    import termios
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def getwinsize(child):
    """Return the rows and columns of a terminal."""
    import fcntl
    import struct
    import termios
    return struct.unpack("HHHH", fcntl.ioctl(child, termios.TIOCGWINSZ, bytes(8)))[:2]


class _Channel:
    """What the program writes to its terminal, or to its standard error."""

    def __init__(self, name, fd, target, encoding):
        self.name, self.fd, self.target, self.ended, self.logger = name, fd, target, False, None
        self.decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size, sanitize):
        """Return a text, "" if a character is not complete, or None at the end."""
        try:
            data = os.read(self.fd, size)
        except BlockingIOError:
            return ""
        except OSError:  # the program has closed its terminal
            self.close()
            data = b""
        text = self.decoder.decode(data, not data).replace("\r\n", os.linesep)
        if not data:
            self.ended = True
            return text or None
        if self.target:
            self.target.write(text)
            self.target.flush()
        if self.logger:
            line = text.strip("\r\n").rstrip()
            if sanitize:
                line = line.replace(sanitize, "******")
            if line:
                self.logger[0].log(self.logger[1], line)
        return text

    def close(self):
        """Close the descriptor."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class Terminal:
    """A program in a terminal: its input and output are the terminal's, its standard error is apart."""

    def __init__(self, args=None, executable=None, shell=False, cwd=None, env=None, preexec_fn=None, rows=None, cols=None, log_stdin=None,
                 log_stdin_level="debug", log_stdout=None, log_stdout_level="debug", log_stderr=None, log_stderr_level="debug",
                 log_sanitize=None, stream_stdout=None, stream_stderr=None, force_receive_encoding="utf-8"):
        if not args and not executable:
            raise TerminalException('You need to pass at least one of "args", "executable" ')
        self.args, self.executable, self.shell, self.cwd, self.env, self.preexec_fn = args, executable, shell, cwd, env, preexec_fn
        size = self._size_of_input()
        self.rows, self.cols = size[0] if rows is None else rows, size[1] if cols is None else cols
        self.stream_stdout = self._target("stream_stdout", stream_stdout, sys.stdout)
        self.stream_stderr = self._target("stream_stderr", stream_stderr, sys.stderr)
        self.receive_encoding = force_receive_encoding
        self.pid = self.exitstatus = self.signalstatus = self.status = None
        self.stdin = self.stdout = self.stderr = None
        self.closed = self.terminated = True
        try:
            self._spawn()
        except Exception as exc:
            log.warning("Failed to spawn the VT: %s", exc)
            raise TerminalException("Failed to spawn the VT. Error: {}".format(exc))
        if log_sanitize and not isinstance(log_sanitize, str):
            raise RuntimeError("'log_sanitize' needs to be a str type")
        self.log_sanitize = log_sanitize or None
        self._stdin_logger = self._logger("STDIN", log_stdin, log_stdin_level)
        self._out.logger = self._logger("STDOUT", log_stdout, log_stdout_level)
        self._err.logger = self._logger("STDERR", log_stderr, log_stderr_level)

    @staticmethod
    def _target(name, given, default):
        """Return where output is copied to."""
        if given is True or given is False:
            return default if given else None
        if given is None:
            raise TerminalException("Don't know how to handle 'None' as the VT's '{}' parameter.".format(name))
        if not all(hasattr(given, n) for n in ("write", "flush", "close")):
            raise TerminalException("'{}' needs to have at least 3 methods, 'write()', 'flush()' and 'close()'.".format(name))
        return given

    def _logger(self, name, given, level):
        """Return a logger and a level, or None."""
        if given is None or given is False:
            return None
        if given is True:
            given = logging.getLogger("{}.Terminal.PID-{}.{}".format(__name__, self.pid, name))
        elif not isinstance(given, logging.Logger):
            raise RuntimeError("'log_{}' needs to subclass `logging.Logger`".format(name.lower()))
        return given, LOG_LEVELS.get(level, level)

    @staticmethod
    def _size_of_input():
        try:
            return getwinsize(sys.stdin.fileno())
        except (OSError, ValueError, AttributeError):
            return 24, 80

    def _spawn(self):
        import fcntl
        import pty
        if self.shell is True and not isinstance(self.args, str):
            self.args = " ".join(self.args)
        parent, child = pty.openpty()
        err_parent, err_child = os.pipe()
        name = os.ttyname(child)

        def prepare():
            os.setsid()
            terminal = os.open(name, os.O_RDWR)  # which it is from now on, since the session has none
            setwinsize(terminal, self.rows, self.cols)
            os.close(terminal)
            if self.preexec_fn is not None:
                self.preexec_fn()

        try:
            self.proc = subprocess.Popen(self.args, preexec_fn=prepare, shell=self.shell, executable=self.executable, cwd=self.cwd,
                                         stdin=child, stdout=child, stderr=err_child, env=self.env, close_fds=True)
        except BaseException:
            os.close(parent)
            os.close(err_parent)
            raise
        finally:
            os.close(child)
            os.close(err_child)
        for fd in (parent, err_parent):
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
        self._out = _Channel("stdout", parent, self.stream_stdout, self.receive_encoding)
        self._err = _Channel("stderr", err_parent, self.stream_stderr, self.receive_encoding)
        self.pid, self.closed, self.terminated = self.proc.pid, False, False

    @property
    def child_fd(self):
        """The descriptor of the terminal, or None."""
        return self._out.fd

    @property
    def child_fde(self):
        """The descriptor of the standard error, or None."""
        return self._err.fd

    @property
    def has_unread_data(self):
        """Whether the end of the output has not been seen."""
        return not (self._out.ended and self._err.ended)

    def send(self, data):
        """Write a text to the terminal; return the number of bytes, 0 if it takes none, or None without one."""
        if self.child_fd is None:
            return None
        if not select.select([], [self.child_fd], [], 0)[1]:
            return 0
        if self._stdin_logger:
            self._stdin_logger[0].log(self._stdin_logger[1], data)
        try:
            return os.write(self.child_fd, data.encode("utf-8"))
        except BrokenPipeError:
            self._out.close()
            return None

    def sendline(self, data, linesep=os.linesep):
        """Write a line to the terminal."""
        return self.send("{}{}".format(data, linesep))

    def recv(self, maxsize=None):
        """Return what there is of the output and of the standard error, without waiting: "" is nothing yet, None the end."""
        size = 1024 if maxsize is None else max(maxsize, 1)
        alive = self.isalive()
        open_ones = [c.fd for c in (self._out, self._err) if c.fd is not None and not c.ended]
        ready = select.select(open_ones, [], [], 0)[0] if open_ones else []
        if not alive and not ready:
            self._out.ended = self._err.ended = True
            self.close()
            return None, None
        out, err = (c.read(size, self.log_sanitize) if c.fd in ready else "" for c in (self._out, self._err))
        return out, err

    def close(self, terminate=True, kill=False):
        """Close the terminal, and end the program."""
        if self.closed:
            return
        self._out.close()
        self._err.close()
        time.sleep(0.1)
        self.closed = True
        if terminate and not self.terminate(kill):
            raise TerminalException("Failed to terminate child process.")

    def isalive(self):
        """Report whether the program runs. After the end of its output this waits for it."""
        if self.terminated:
            return False
        code = self.proc.poll() if self.has_unread_data else self.proc.wait()
        if code is None:
            return True
        self.terminated = True
        if code < 0:
            self.signalstatus, self.status = -code, -code
        else:
            self.exitstatus, self.status = code, code << 8
        return False

    def terminate(self, force=False):
        """End the program, by SIGKILL if force is true and nothing else has helped; report whether it has ended."""
        if not self.closed:
            self.close(terminate=False)
        self._out.ended = self._err.ended = False  # so that isalive does not wait
        for number in (signal.SIGHUP, signal.SIGCONT, signal.SIGINT) + ((signal.SIGKILL,) if force else ()):
            if not self.isalive():
                return True
            self.send_signal(number)
            time.sleep(0.1)
        return not self.isalive()

    def wait(self):
        """Read the output until the program ends, and return its exit code."""
        if not self.isalive():
            raise TerminalException("Cannot wait for dead child process.")
        while self.isalive():
            out, err = self.recv()
            if out is None or err is None:
                break
        return self.exitstatus

    def send_signal(self, sig):
        """Send a signal."""
        self.proc.send_signal(sig)

    def kill(self):
        """End the program at once."""
        self.send_signal(signal.SIGKILL)

    def getwinsize(self):
        """Return the rows and columns."""
        if self.child_fd is None:
            raise TerminalException("Can't check the size of the terminal since we're not connected to the child process.")
        return getwinsize(self.child_fd)

    def setwinsize(self, child, rows=80, cols=80):
        """Set the rows and columns."""
        setwinsize(self.child_fd, rows, cols)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close(terminate=True, kill=True)
        if self.isalive():
            self.wait()
