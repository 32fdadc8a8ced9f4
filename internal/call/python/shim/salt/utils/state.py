"""States and their results."""


import copy


def get_sls_opts(opts, **kwargs):
    """Return the options for a run of states, with the environments that its keywords name."""
    from salt.exceptions import CommandExecutionError
    out = copy.deepcopy(dict(opts))
    saltenv = kwargs.get("saltenv")
    if saltenv is not None:
        if out.get("lock_saltenv") and str(saltenv) != out.get("saltenv"):
            raise CommandExecutionError("lock_saltenv is enabled, saltenv cannot be changed")
        out["saltenv"] = saltenv
    if "pillarenv" in kwargs or out.get("pillarenv_from_saltenv"):
        name = kwargs.get("pillarenv") or saltenv
        out["pillarenv"] = None if name is None else str(name)
    return out


def gen_tag(low):
    """Return the key of a state among the results of a run."""
    return "_|-".join(str(low[key]) for key in ("state", "__id__", "name", "fun"))


def check_result(running, recurse=False, highstate=None):
    """Report whether no state of a run has failed."""
    if not isinstance(running, dict) or not running:
        return False
    for tag, result in running.items():
        if not isinstance(result, dict):
            if not recurse and not (tag == "__extend__" and isinstance(result, list)):
                return False
        elif "result" in result:
            if result["result"] is False:
                return False
        elif not check_result(result, True, highstate):
            return False
    return True


def merge_subreturn(original_return, sub_return, subkey=None):
    """Add the result of another state to that of a state, and return it."""
    if sub_return["result"] is False:
        original_return["result"] = False
    more = sub_return["comment"]
    more = more if isinstance(more, list) else [more]
    comment = original_return.setdefault("comment", [])
    if isinstance(comment, list):
        comment.extend(more)
    else:
        original_return["comment"] = "\n".join(([comment] if comment else []) + more)
    if sub_return["changes"]:
        changes = original_return.setdefault("changes", {})
        changes[subkey or sub_return["name"]] = sub_return["changes"]
    return original_return
