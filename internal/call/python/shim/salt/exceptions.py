"""The exceptions that modules raise and catch."""


class SaltException(Exception):
    """Base of all."""

    def __init__(self, message=""):
        if not isinstance(message, str):
            message = str(message)
        super().__init__(message)
        self.message = self.strerror = message

    def pack(self):
        """Return the exception as a dict."""
        return {"message": str(self), "args": self.args}


class CommandExecutionError(SaltException):
    """A failure with a message for the user, and optionally details in info."""

    def __init__(self, message="", info=None):
        super().__init__(message)
        self.error, self.info = self.message, info
        if not info:
            return
        texts = info if isinstance(info, (list, tuple)) else [info]
        lines = []
        for text in texts:
            if isinstance(text, dict):
                text = "\n".join("{}: {}".format(k, v) for k, v in text.items())
            lines.append(str(text))
        whole = "\n\n".join([self.message] * bool(self.message) + [
            "Additional info follows:\n\n" + "\n".join(lines)])
        self.args = (whole,)
        self.strerror = whole


class SaltRenderError(SaltException):
    """A template or SLS file that cannot be rendered."""

    def __init__(self, message, line_num=None, buf="", marker="    <======================", trace=None):
        super().__init__(message)
        self.error, self.line_num, self.buffer, self.context = self.message, line_num, buf, ""
        if trace:
            self.message += "\n{}\n".format(trace)
        if line_num and buf:
            lines = buf.splitlines()
            first = max(line_num - 6, 0)
            part = lines[first:line_num + 5]
            if 0 <= line_num - 1 - first < len(part):
                part[line_num - 1 - first] += marker
            self.context = "\n".join(["---"] + part + ["---"])
            self.message += "; line {}\n\n{}".format(line_num, self.context)
        self.args = (self.message,)


class AuthenticationError(SaltException):
    """An authentication failed."""


class EauthAuthenticationError(SaltException):
    """An external authentication failed."""


class TokenAuthenticationError(SaltException):
    """A token is not valid."""


class AuthorizationError(SaltException):
    """A call is not permitted."""


class TimedProcTimeoutError(SaltException):
    """A program took too long."""


class SaltRunnerError(SaltException):
    """A runner failed."""


class SaltWheelError(SaltException):
    """A wheel function failed."""


class SaltDaemonNotRunning(SaltException):
    """A daemon does not run."""


def _define(base, *names):
    for name in names:
        globals()[name] = type(name, (base,), {"__module__": __name__, "__doc__": base.__doc__})


_define(
    SaltException, "SaltClientError", "SaltMasterError", "SaltNoMinionsFound", "SaltSyndicMasterError",
    "SaltSystemExit", "SaltReqTimeoutError", "SaltClientTimeout", "SaltCacheError", "SaltConfigurationError",
    "SaltDeserializationError", "SaltInvocationError", "SaltProcessExit", "SaltMissingArgs",
    "FileserverConfigError", "FileLockError", "GitLockError", "GitRemoteError", "LoaderError",
    "MinionError", "PkgParseError", "PillarRenderError", "PublishError", "NotImplemented", "SSHException",
    "CheckError", "CommandNotFoundError", "LoggingRuntimeError", "MissingSmb", "SaltCloudException",
    "GitPythonError", "KeyGenerationError", "VMwareSaltError", "InvalidConfigError", "ArgumentValueError",
    "InvalidEntityError", "NotFound", "EncryptionError", "MasterExit", "UnsupportedAlgorithm")

_define(
    globals()["SaltCloudException"], "SaltCloudSystemExit", "SaltCloudConfigError", "SaltCloudNotFound",
    "SaltCloudExecutionTimeout", "SaltCloudExecutionFailure", "SaltCloudPasswordError")
_define(SaltRenderError, "SaltTemplateRenderError")
_define(CommandExecutionError, "SaltSSHError")
CommandNotFoundError = globals()["CommandNotFoundError"]
SaltInvocationError = globals()["SaltInvocationError"]


def get_error_message(error):
    """Return the text of an exception."""
    return str(error.args[0]) if getattr(error, "args", None) else ""
