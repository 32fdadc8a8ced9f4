"""Programs, run by Python itself: grains modules have no other functions."""

import os
import shlex
import subprocess

DEFAULT_SHELL = "/bin/sh"

def run_all(cmd, cwd=None, stdin=None, runas=None, shell="/bin/sh", python_shell=None, env=None, timeout=None,
            ignore_retcode=False, redirect_stderr=False, **kwargs):
    """Run a program and return its status and output."""
    use_shell = isinstance(cmd, str) and python_shell is not False
    if isinstance(cmd, str) and not use_shell:
        cmd = shlex.split(cmd)
    elif not isinstance(cmd, str):
        cmd = [str(c) for c in cmd]
    variables = dict(os.environ, LC_ALL="C") if kwargs.get("reset_system_locale", True) else dict(os.environ)
    if isinstance(env, list):
        env = {k: v for item in env for k, v in item.items()}
    variables.update({str(k): str(v) for k, v in (env or {}).items()})
    if runas:
        cmd = ["su", "-s", shell, runas, "-c", cmd if isinstance(cmd, str) else " ".join(map(shlex.quote, cmd))]
        use_shell = False
    process = subprocess.Popen(
        cmd, cwd=cwd, shell=use_shell, executable=shell if use_shell else None, env=variables,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if redirect_stderr else subprocess.PIPE)
    try:
        out, err = process.communicate(stdin.encode() if isinstance(stdin, str) else stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        from salt.exceptions import CommandExecutionError
        raise CommandExecutionError("the program {!r} took more than {} seconds".format(cmd, timeout))

    def text(data):
        data = (data or b"").decode("utf-8", "replace")
        return data.rstrip("\n") if kwargs.get("rstrip", True) else data
    return {"pid": process.pid, "retcode": process.returncode, "stdout": text(out), "stderr": text(err)}


def run_stdout(cmd, **kwargs):
    """Run a program and return its output."""
    return run_all(cmd, **kwargs)["stdout"]


def run_stderr(cmd, **kwargs):
    """Run a program and return what it says about errors."""
    return run_all(cmd, **kwargs)["stderr"]


def run(cmd, **kwargs):
    """Run a program and return all that it writes."""
    return run_all(cmd, redirect_stderr=True, **kwargs)["stdout"]


def retcode(cmd, **kwargs):
    """Run a program and return its status."""
    return run_all(cmd, **kwargs)["retcode"]


def shell(cmd, **kwargs):
    """Run a command line and return all that it writes."""
    return run(cmd, python_shell=True, **kwargs)


def has_exec(cmd):
    """Report whether there is a program."""
    return which(cmd) is not None


def which(cmd):
    """Return the path of a program, or None."""
    import salt.utils.path
    return salt.utils.path.which(cmd)


_run_quiet, _run_all_quiet, _retcode_quiet, _run = run, run_all, retcode, run_all
