"""What runners use of the master's request handlers: the client and the targets."""

import salt


class RemoteFuncs:
    """Has the client that commands minions, and what finds them by targets."""

    def __init__(self, opts=None):
        import salt.client
        import salt.utils.minions
        self.opts = opts
        self.local = salt.client.LocalClient()
        self.ckminions = salt.utils.minions.CkMinions(opts)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        from salt.exceptions import CommandExecutionError
        raise CommandExecutionError("Brine does not provide salt.daemons.masterapi.RemoteFuncs.{} of Salt; see python-modules.md".format(name))


__getattr__ = salt._parts_of(__name__)
