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
        self.strerror_without_changes = self.error
        if not info:
            return
        prefix = self.error
        if prefix:
            prefix += ("" if prefix[-1] in ".?!" else ".") + " "
        prefix += "Additional info follows:\n\n"
        whole = prefix + _nested_output(info)
        if isinstance(info, dict):
            rest = {k: v for k, v in info.items() if k != "changes"}
            if rest:
                self.strerror_without_changes = prefix + _nested_output(rest)
        else:
            self.strerror_without_changes = whole
        self.args = (whole,)
        self.message = self.strerror = whole


def _nested_output(data):
    """Return data as the outputter nested shows it."""
    import salt.output
    return salt.output.out_format(data, "nested", {"no_color": True}).rstrip()


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


def _define(base, *names, more=()):
    for name in names:
        globals()[name] = type(name, (base,) + more, {"__module__": __name__, "__doc__": base.__doc__})


_define(
    SaltException, "SaltClientError", "SaltMasterError", "SaltNoMinionsFound", "SaltSyndicMasterError", "SaltReqTimeoutError",
    "SaltClientTimeout", "SaltCacheError", "SaltConfigurationError", "SaltDeserializationError", "SaltProcessExit", "SaltMissingArgs",
    "FileserverConfigError", "FileLockError", "GitLockError", "GitRemoteError", "LoaderError", "MinionError", "PkgParseError",
    "PillarRenderError", "PublishError", "NotImplemented", "SSHException", "CommandNotFoundError", "MissingSmb", "SaltCloudException",
    "GitPythonError", "KeyGenerationError", "InvalidKeyError", "NotFound", "SaltValidationError", "TemplateError", "TimeoutError",
    "SaltMasterUnresolvableError", "NxosError", "EncryptionError", "UnsupportedAlgorithm")
_define(SaltException, "SaltInvocationError", more=(TypeError,))
_define(SystemExit, "MasterExit", "SaltSystemExit")
_define(RuntimeError, "LoggingRuntimeError")
_define(
    CommandExecutionError, "SaltSSHError", "ArgumentValueError", "CheckError", "CodePageError", "InvalidConfigError", "InvalidEntityError",
    "VMwareSaltError")
_define(SaltRenderError, "SaltTemplateRenderError")
_define(
    globals()["SaltCloudException"], "SaltCloudSystemExit", "SaltCloudConfigError", "SaltCloudNotFound",
    "SaltCloudExecutionTimeout", "SaltCloudExecutionFailure", "SaltCloudPasswordError")
_define(globals()["NxosError"], "NxosClientError", "NxosCliError", "NxosRequestNotSupported")
_define(
    globals()["VMwareSaltError"], "VMwareRuntimeError", "VMwareConnectionError", "VMwareObjectRetrievalError",
    "VMwareObjectNotFoundError", "VMwareObjectExistsError", "VMwareNotFoundError", "VMwareApiError", "VMwareSystemError",
    "VMwarePowerOnError", "VMwareVmRegisterError", "VMwareVmCreationError")
_define(globals()["VMwareObjectRetrievalError"], "VMwareMultipleObjectsError")
_define(globals()["VMwareApiError"], "VMwareFileNotFoundError")
CommandNotFoundError = globals()["CommandNotFoundError"]
SaltInvocationError = globals()["SaltInvocationError"]


def get_error_message(error):
    """Return the text of an exception."""
    return str(error.args[0]) if getattr(error, "args", None) else ""
