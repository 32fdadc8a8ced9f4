"""Keys of minions, by the master's functions."""

import brine_helper as _helper


class Key:
    """Lists and changes keys."""

    ACC, PEND, REJ, DEN = "minions", "minions_pre", "minions_rejected", "minions_denied"

    def __init__(self, opts=None, io_loop=None):
        self.opts = opts

    @staticmethod
    def _call(name, *args, **kwargs):
        return _helper.GLOBALS["__wheel__"]["key." + name](*args, **kwargs)

    def list_keys(self):
        """Return the ids by status."""
        found = self._call("list_all")
        found.pop("local", None)
        return found

    def all_keys(self):
        """Return the ids by status, and the names of the master's own keys."""
        return self._call("list_all")

    def list_status(self, match):
        """Return the ids of a status."""
        return self._call("list", match)

    def name_match(self, match, full=False):
        """Return the ids that match, by status."""
        return self._call("name_match", match)

    def key_str(self, match):
        """Return the keys that match, by status."""
        return self._call("key_str", match)

    def accept(self, match=None, match_dict=None, include_rejected=False, include_denied=False):
        """Accept keys."""
        if match_dict is not None:
            return self._call("accept_dict", match_dict, include_rejected=include_rejected, include_denied=include_denied)
        return self._call("accept", match, include_rejected=include_rejected, include_denied=include_denied)

    def reject(self, match=None, match_dict=None, include_accepted=False, include_denied=False):
        """Reject keys."""
        if match_dict is not None:
            return self._call("reject_dict", match_dict, include_accepted=include_accepted, include_denied=include_denied)
        return self._call("reject", match, include_accepted=include_accepted, include_denied=include_denied)

    def delete_key(self, match=None, match_dict=None, **_):
        """Delete keys."""
        return self._call("delete", match) if match_dict is None else self._call("delete_dict", match_dict)

    def finger(self, match, hash_type=None):
        """Return the fingerprints of keys, by status."""
        return self._call("finger", match)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def get_key(opts=None):
    """Return what lists and changes keys."""
    return Key(opts)
