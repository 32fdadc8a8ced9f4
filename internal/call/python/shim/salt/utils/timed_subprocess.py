"""Programs that may only run for a while."""

import subprocess


class TimedProc:
    """Runs a program."""

    def __init__(self, args, **kwargs):
        self.timeout, self.stdin = kwargs.pop("timeout", None), kwargs.pop("stdin", None)
        kwargs.pop("with_communicate", None)
        kwargs.pop("raise_on_timeout", None)
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        if self.stdin is not None:
            kwargs["stdin"] = subprocess.PIPE
        self.command, self.stdout, self.stderr = args, None, None
        self.process = subprocess.Popen(args, **kwargs)

    def run(self):
        """Wait for the program and return its status."""
        from salt.exceptions import TimedProcTimeoutError
        data = self.stdin.encode() if isinstance(self.stdin, str) else self.stdin
        try:
            self.stdout, self.stderr = self.process.communicate(data, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise TimedProcTimeoutError("{} : Timed out after {} seconds".format(self.command, self.timeout))
        return self.process.returncode
