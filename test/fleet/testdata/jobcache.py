"""A job cache and event returner in files, as a master's module in Python."""
import json
import os
import tempfile

__virtualname__ = "kept"


def __virtual__():
    return __virtualname__


def _path(*names):
    return os.path.join(__opts__["kept.dir"], *names)


def _write(data, *names):
    # Readers in other processes see no half of it.
    number, new = tempfile.mkstemp(dir=_path())
    with open(number, "w") as out:
        json.dump(data, out, default=str)
    os.rename(new, _path(*names))


def _read(*names):
    with open(_path(*names)) as file:
        return json.load(file)


def prep_jid(nocache=False, passed_jid=None):
    os.makedirs(_path("jobs", passed_jid))
    return passed_jid


def save_load(jid, clear_load, minions=None):
    _write([clear_load, minions], "jobs", jid, ".load")


def returner(load):
    what = load["return"]
    if what == "poison":
        raise ValueError("this one is poisoned")
    if what == "exit":
        os._exit(3)
    if what == "later" and not os.path.exists(_path("up")):
        raise ConnectionRefusedError("the server is down")
    _read("jobs", load["jid"], ".load")  # a job is stored before its returns
    _write({"return": what, "fun": load["fun"], "by": __salt__["test.echo"](__opts__["id"])}, "jobs", load["jid"], load["id"])


def get_load(jid):
    return _read("jobs", jid, ".load")[0] if os.path.exists(_path("jobs", jid)) else {}


def get_jid(jid):
    if not os.path.exists(_path("jobs", jid)):
        return {}
    return {i: _read("jobs", jid, i) for i in os.listdir(_path("jobs", jid)) if i != ".load"}


def get_jids():
    loads = {jid: get_load(jid) for jid in os.listdir(_path("jobs")) if os.path.exists(_path("jobs", jid, ".load"))}
    return {jid: {"Function": load["fun"], "Target": load["tgt"]} for jid, load in loads.items()}


def event_return(events):
    if any(e["tag"] == "my/poison" for e in events):
        raise ValueError("this event is poisoned")
    with open(_path("events"), "a") as out:
        for e in events:
            out.write("{} {}\n".format(e["tag"], e["data"]["data"]["n"]))


def clean_old_jobs():
    open(_path("cleaned"), "w").close()
