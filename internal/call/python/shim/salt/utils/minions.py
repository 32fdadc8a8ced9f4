"""Minions of a master."""

import re

import brine_helper as _helper


TARGET_REX = re.compile(r"((?P<engine>[GPIJLNSER])(?P<delimiter>(?<=[GPIJ]).)?@)?(?P<pattern>.+)$")
HAS_RANGE = False


def parse_target(target_expression):
    """Return the kind, the delimiter and the pattern of a part of a compound target."""
    found = TARGET_REX.match(target_expression)
    return found.groupdict() if found else {"engine": None, "delimiter": None, "pattern": target_expression}


def get_minion_data(minion, opts):
    """Return the id, the grains and the pillar of a minion, as the master has them; None for what it does not have. Without an id
    they are those of a minion that has data, and the id is None."""
    if not opts.get("minion_data_cache"):
        return minion or None, None, None
    import salt.cache
    cache = salt.cache.factory(opts)
    for name in (minion,) if minion is not None else cache.list("minions"):
        data = cache.fetch("minions/{}".format(name), "data")
        if data:
            return minion or None, data.get("grains"), data.get("pillar")
    return minion or None, None, None


def nodegroup_comp(nodegroup, nodegroups, skip=None, first_call=True):
    """Return the words of the compound target that a node group is, with those of the groups in it."""
    skip = set(skip or ())
    if nodegroup in skip or nodegroup not in nodegroups:
        return ""
    content = nodegroups[nodegroup]
    words = content.split() if isinstance(content, str) else list(content)
    out, nested = [], False
    for word in words:
        if not isinstance(word, str):
            out.append(str(word))
        elif word in ("(", ")", "and", "or", "not"):
            out.append(word)
        elif word.startswith("N@") and len(word) > 2:
            nested = True
            out += nodegroup_comp(word[2:], nodegroups, skip | {nodegroup}, False)
        else:
            out.append(word)
    out = ["("] + out + [")"]
    if first_call and nested:
        return out
    joined = _of_ids(words)
    return [joined] if joined else words if first_call else out


def _of_ids(words):
    """Return the target for words that are ids, or expressions of them, without operators; else None."""
    kinds = [w for w in words if w in ("(", ")", "and", "or", "not") or "*" in w or re.match("[A-Z]@", w)]
    if kinds:
        return None
    return ("E@" if any(c in w for w in words for c in "([{\\?}])") else "L@") + ",".join(words)


class CkMinions:
    """Finds minions by targets."""

    def __init__(self, opts=None):
        self.opts = opts

    def check_minions(self, expr, tgt_type="glob", delimiter=":", greedy=True):
        """Return the minions that a target matches, by what the master knows of them."""
        runners = _helper.GLOBALS["__runner__"]
        found = runners["cache.grains"](tgt=expr, tgt_type=tgt_type) if "cache.grains" in runners else ()
        return {"minions": sorted(found), "missing": [], "ssh_minions": False}

    def connected_ids(self, subset=None, show_ip=False):
        """Return the minions that are connected to the master."""
        runners = _helper.GLOBALS["__runner__"]
        found = set(runners["manage.present"]()) if "manage.present" in runners else set()
        return found & set(subset) if subset else found

    def match_check(self, regex, fun):
        """Report whether an expression, or one of a list, matches a function, or all of a list."""
        expressions = [regex] if isinstance(regex, str) else regex
        functions = [fun] if isinstance(fun, str) else fun
        try:
            return bool(functions) and all(any(re.match(e, f) for e in expressions) for f in functions)
        except (TypeError, re.error):
            return False
