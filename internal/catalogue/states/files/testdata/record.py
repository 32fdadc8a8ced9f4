"""Prints what stock Salt's states of the module file do, as root:

    PYTHONPATH=SOURCE-OF-SALT python3 record.py > states.json

Every scenario begins with the same tree, is run as a test, for real, and
again. ROOT stands for the folder of the tree.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

import salt.config
import salt.minion

os.umask(0o022)
root = tempfile.mkdtemp(prefix="rec")
TREE = {
    "srv/a.txt": "one\ntwo\nthree\n", "srv/t.jinja": "name {{ who }} {{ 1 + 1 }}\n", "srv/bin": "\0\1\2", "srv/dir/x": "x\n", "srv/dir/sub/y": "y\n", "srv/dir/sub/z.bak": "z\n",
    "srv/script:0755": "#!/bin/sh\n", "w/same": "one\ntwo\nthree\n", "w/old": "one\n2\nthree\nfour\n", "w/mode:0600": "one\ntwo\nthree\n", "w/conf": "a=1\n#b=2\n# c = 3\nd=4\n",
    "w/block": "top\n# start\nold\n# end\nbottom\n", "w/d/f": "f\n", "w/d/e/g": "g\n", "w/d/keep": "k\n", "w/nonl": "no end", "w/binary": "\0\1", "w/link": "->old", "w/dangling": "->nowhere",
    "w/dlink": "->d", "w/empty/": None, "w/dir/x": "old\n", "w/dir/extra": "e\n",
}
S = []


def s(fun, **kw):
    S.append((fun, kw))


m = "file.managed"
s(m, name="ROOT/w/new", source="salt://a.txt")
s(m, name="ROOT/w/new", source="salt://a.txt", mode="0600")
s(m, name="ROOT/w/new", source="salt://a.txt", mode=640, user="nobody", group="daemon")
s(m, name="ROOT/w/new", source="salt://a.txt", user=1, group=2)
s(m, name="ROOT/w/same", source="salt://a.txt")
s(m, name="ROOT/w/old", source="salt://a.txt")
s(m, name="ROOT/w/old", source="salt://a.txt", show_changes=False)
s(m, name="ROOT/w/mode", source="salt://a.txt", mode=644)
s(m, name="ROOT/w/mode", source="salt://a.txt", user="nobody")
s(m, name="ROOT/w/old", source="salt://a.txt", mode="0640", group="daemon")
s(m, name="ROOT/w/old", source="salt://missing.txt")
s(m, name="ROOT/w/new", source=["salt://missing.txt", "salt://a.txt"])
s(m, name="ROOT/w/new", source=["salt://missing.txt", "salt://missing2.txt"])
s(m, name="ROOT/w/new", source=["salt://missing.txt"])
s(m, name="ROOT/w/new", source="ROOT/srv/a.txt")
s(m, name="ROOT/w/new", source="ROOT/srv/none")
s(m, name="ROOT/w/new", source="salt://script", mode="keep")
s(m, name="ROOT/w/no/way/new", source="salt://a.txt")
s(m, name="ROOT/w/no/way/new", source="salt://a.txt", makedirs=True, mode="0640")
s(m, name="ROOT/w/no/way/new", source="salt://a.txt", makedirs=True, dir_mode="0750")
s(m, name="ROOT/w/new", source="salt://t.jinja", template="jinja", context={"who": "me"}, defaults={"who": "you"})
s(m, name="ROOT/w/old", source="salt://t.jinja", template="jinja", defaults={"who": "you"})
s(m, name="ROOT/w/new", contents="line 1\nline 2")
s(m, name="ROOT/w/new", contents="line 1\nline 2", contents_newline=False)
s(m, name="ROOT/w/new", contents=["one", "two", 3])
s(m, name="ROOT/w/old", contents=["one", "two", 3])
s(m, name="ROOT/w/new", contents="", mode="0644")
s(m, name="ROOT/w/new", contents="", allow_empty=False)
s(m, name="ROOT/w/same", contents="one\ntwo\nthree")
s(m, name="ROOT/w/new", contents="hello {{ who }}", template="jinja", context={"who": "me"})
s(m, name="ROOT/w/new")
s(m, name="ROOT/w/new", mode="0600")
s(m, name="ROOT/w/old")
s(m, name="ROOT/w/old", mode="0600")
s(m, name="ROOT/w/old", source="salt://a.txt", replace=False)
s(m, name="ROOT/w/new", source="salt://a.txt", replace=False)
s(m, name="ROOT/w/new", source="salt://a.txt", create=False)
s(m, name="ROOT/w/d", source="salt://a.txt")
s(m, name="w/new", source="salt://a.txt")
s(m, name="ROOT/w/new", source="salt://a.txt", contents="x")
s(m, name="ROOT/w/new", contents="x", contents_pillar="y")
s(m, name="ROOT/w/new", contents_pillar="no:such")
s(m, name="ROOT/w/new", source="salt://a.txt", user="nosuchuser")
s(m, name="ROOT/w/new", source="salt://a.txt", context=["x"])
s(m, name="ROOT/w/binary", source="salt://a.txt")
s(m, name="ROOT/w/old", source="salt://bin")
s(m, name="ROOT/w/link", source="salt://a.txt")
s(m, name="ROOT/w/link", source="salt://a.txt", follow_symlinks=False)
s(m, name="ROOT/w/new", source="salt://a.txt", check_cmd="grep -q two")
s(m, name="ROOT/w/old", source="salt://a.txt", check_cmd="grep -q four")
s(m, name="ROOT/w/new", contents="ä", encoding="latin-1")
s(m, name="ROOT/w/new", source="http://127.0.0.1:1/x")
s(m, name="ROOT/w/new", source="ROOT/srv/a.txt", source_hash="md5=00000000000000000000000000000000")
d = "file.directory"
s(d, name="ROOT/w/new")
s(d, name="ROOT/w/new", mode="0750", user="nobody", group="daemon")
s(d, name="ROOT/w/d")
s(d, name="ROOT/w/d", dir_mode=700)
s(d, name="ROOT/w/d", user="nobody", recurse=["user"])
s(d, name="ROOT/w/d", user="nobody", group="daemon", dir_mode="0750", file_mode="0640", recurse=["user", "group", "mode"])
s(d, name="ROOT/w/d", user="nobody", recurse=["user", "ignore_files"])
s(d, name="ROOT/w/d", user="nobody", recurse=["user", "silent"])
s(d, name="ROOT/w/d", user="nobody", recurse=["what"])
s(d, name="ROOT/w/d", recurse=["user"])
s(d, name="ROOT/w/no/new")
s(d, name="ROOT/w/no/new", makedirs=True, mode="0700")
s(d, name="ROOT/w/old")
s(d, name="ROOT/w/old", force=True)
s(d, name="ROOT/w/old", backupname="ROOT/w/moved")
s(d, name="ROOT/w/dlink")
s(d, name="ROOT/w/dlink", allow_symlink=False)
s(d, name="ROOT/w/d", clean=True)
s(d, name="ROOT/w/d", clean=True, exclude_pat="e*")
s(d, name="ROOT/w/d", clean=True, exclude_pat="E@^k")
s(d, name="rel")
l = "file.symlink"
s(l, name="ROOT/w/newlink", target="ROOT/w/old")
s(l, name="ROOT/w/link", target="old")
s(l, name="ROOT/w/link", target="conf")
s(l, name="ROOT/w/link", target="old", user="nobody", group="daemon")
s(l, name="ROOT/w/dangling", target="old")
s(l, name="ROOT/w/old", target="conf")
s(l, name="ROOT/w/old", target="conf", force=True)
s(l, name="ROOT/w/d", target="conf")
s(l, name="ROOT/w/d", target="conf", force=True)
s(l, name="ROOT/w/old", target="conf", backupname="old.bak")
s(l, name="ROOT/w/no/link", target="x")
s(l, name="ROOT/w/no/link", target="x", makedirs=True)
s(l, name="ROOT/w/newlink", target="x", user="nosuchuser", group="nosuchgroup")
for n in ["old", "d", "link", "dangling", "none"]:
    s("file.absent", name="ROOT/w/" + n)
    s("file.exists", name="ROOT/w/" + n)
    s("file.missing", name="ROOT/w/" + n)
s("file.absent", name="rel")
s("file.absent", name="/")
s("file.touch", name="ROOT/w/new")
s("file.touch", name="ROOT/w/old", mtime=1000000000)
s("file.touch", name="ROOT/w/no/new")
s("file.touch", name="ROOT/w/no/new", makedirs=True)
s("file.touch", name="ROOT/w/d", atime=1000000000, mtime=1000000000)
s("file.rename", name="ROOT/w/new", source="ROOT/w/old")
s("file.rename", name="ROOT/w/conf", source="ROOT/w/old")
s("file.rename", name="ROOT/w/conf", source="ROOT/w/old", force=True)
s("file.rename", name="ROOT/w/conf", source="ROOT/w/none")
s("file.rename", name="ROOT/w/no/new", source="ROOT/w/d", makedirs=True)
s("file.copy", name="ROOT/w/new", source="ROOT/w/old")
s("file.copy", name="ROOT/w/new", source="ROOT/w/mode", mode="0640", user="nobody")
s("file.copy", name="ROOT/w/conf", source="ROOT/w/old")
s("file.copy", name="ROOT/w/conf", source="ROOT/w/old", force=True)
s("file.copy", name="ROOT/w/new", source="ROOT/w/d")
s("file.copy", name="ROOT/w/new", source="ROOT/w/none")
s("file.copy", name="ROOT/w/empty", source="ROOT/w/old", subdir=True)
s("file.copy", name="ROOT/w/new", source="ROOT/w/mode", preserve=True)
s("file.hardlink", name="ROOT/w/new", target="ROOT/w/old")
s("file.hardlink", name="ROOT/w/conf", target="ROOT/w/old")
s("file.hardlink", name="ROOT/w/conf", target="ROOT/w/old", force=True)
s("file.hardlink", name="ROOT/w/new", target="ROOT/w/none")
r = "file.replace"
s(r, name="ROOT/w/conf", pattern="^#?b=.*$", repl="b=20")
s(r, name="ROOT/w/conf", pattern="^nothing", repl="new=1", append_if_not_found=True)
s(r, name="ROOT/w/conf", pattern="^nothing", repl="new=1", prepend_if_not_found=True, not_found_content="other")
s(r, name="ROOT/w/conf", pattern="^nothing", repl="new=1")
s(r, name="ROOT/w/conf", pattern="a", repl="A", show_changes=False, backup=False)
s(r, name="ROOT/w/none", pattern="a", repl="A")
s(r, name="ROOT/w/none", pattern="a", repl="A", ignore_if_missing=True)
s(r, name="ROOT/w/binary", pattern="a", repl="A")
s(r, name="ROOT/w/nonl", pattern="x", repl="y", append_if_not_found=True)
n = "file.line"
s(n, name="ROOT/w/conf", content="new=5", mode="ensure", after="^a=")
s(n, name="ROOT/w/conf", content="new=5", mode="insert", location="end")
s(n, name="ROOT/w/conf", content="a=9", match="^a=", mode="replace")
s(n, name="ROOT/w/conf", content="d=4", mode="delete")
s(n, name="ROOT/w/conf", content="x")
s(n, name="ROOT/w/conf", mode="ensure")
s(n, name="ROOT/w/none", content="x", mode="insert", location="start")
s(n, name="ROOT/w/conf", content="x", mode="ensure", after="nothere")
b = "file.blockreplace"
s(b, name="ROOT/w/block", marker_start="# start", marker_end="# end", content="new\ntext")
s(b, name="ROOT/w/block", marker_start="# start", marker_end="# end", content="old\n")
s(b, name="ROOT/w/conf", marker_start="# start", marker_end="# end", content="x")
s(b, name="ROOT/w/conf", marker_start="# start", marker_end="# end", content="x", append_if_not_found=True)
s(b, name="ROOT/w/conf", marker_start="# start", marker_end="# end", source="salt://t.jinja", context={"who": "me"}, prepend_if_not_found=True, backup=False)
s(b, name="ROOT/w/none", content="x", append_if_not_found=True)
s("file.comment", name="ROOT/w/conf", regex="^a=")
s("file.comment", name="ROOT/w/conf", regex="^b=2")
s("file.comment", name="ROOT/w/conf", regex="^zzz")
s("file.comment", name="ROOT/w/conf", regex="^zzz", ignore_missing=True)
s("file.uncomment", name="ROOT/w/conf", regex="b=2")
s("file.uncomment", name="ROOT/w/conf", regex="c = 3")
s("file.uncomment", name="ROOT/w/conf", regex="a=1")
s("file.uncomment", name="ROOT/w/conf", regex="zzz", backup=False)
s("file.append", name="ROOT/w/conf", text="new=1")
s("file.append", name="ROOT/w/conf", text=["a=1", "new=1", "x  y"])
s("file.append", name="ROOT/w/conf", text="a=1")
s("file.append", name="ROOT/w/nonl", text="more\nand more")
s("file.append", name="ROOT/w/new", text="first")
s("file.append", name="ROOT/w/no/new", text="first")
s("file.append", name="ROOT/w/no/new", text="first", makedirs=True)
s("file.append", name="ROOT/w/conf", source="salt://t.jinja", context={"who": "me"})
s("file.append", name="ROOT/w/conf", text="a")
s("file.append", name="ROOT/w/conf", text=["b=2", "d=4", "  a=1  ", "a=1 #b=2"])
s("file.append", name="ROOT/w/conf", text=["a=1\n#b=2", "# c =  3", "#c=3"])
s("file.append", name="ROOT/w/old", text="one 2  three")
s("file.append", name="ROOT/w/old", text=["ne", "2"], ignore_whitespace=False)
s("file.append", name="ROOT/w/old", text="it's \"a  b\" c\nfour")
s("file.prepend", name="ROOT/w/conf", text=["#!/bin/sh", "x"])
s("file.prepend", name="ROOT/w/conf", text="a=1")
s("file.prepend", name="ROOT/w/conf", text=["d=4", "e"], header=True)
s("file.prepend", name="ROOT/w/new", text="first")
R = "file.recurse"
s(R, name="ROOT/w/newdir", source="salt://dir")
s(R, name="ROOT/w/dir", source="salt://dir")
s(R, name="ROOT/w/dir", source="salt://dir", clean=True)
s(R, name="ROOT/w/dir", source="salt://dir", exclude_pat="*.bak", dir_mode="0750", file_mode="0640")
s(R, name="ROOT/w/dir", source="salt://dir", include_pat="E@y$")
s(R, name="ROOT/w/dir", source="salt://none")
s(R, name="ROOT/w/dir", source="ROOT/srv")
s(R, name="ROOT/w/old", source="salt://dir")
s(R, name="ROOT/w/newdir", source="salt://dir", maxdepth=0)
s(R, name="ROOT/w/newdir", source="salt://dir", mode="0644")


def build():
    for sub in ("srv", "w"):
        shutil.rmtree(os.path.join(root, sub), ignore_errors=True)
    for path, text in TREE.items():
        path, _, mode = path.partition(":")
        path = os.path.join(root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if text is None:
            continue
        if text.startswith("->"):
            os.symlink(text[2:], path)
            continue
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, int(mode or "0644", 8))


def look():
    out = {}
    for top, dirs, files in os.walk(os.path.join(root, "w")):
        for name in dirs + files:
            p = os.path.join(top, name)
            st = os.lstat(p)
            what = [oct(stat.S_IMODE(st.st_mode)), st.st_uid, st.st_gid]
            if stat.S_ISLNK(st.st_mode):
                what = ["->" + os.readlink(p)] + what[1:]
            elif stat.S_ISREG(st.st_mode):
                with open(p, "rb") as f:
                    what.append(f.read().decode("latin-1"))
            out[p.replace(root, "ROOT")] = what
    return json.loads(json.dumps(out).replace(root, "ROOT"))


def fill(v):
    return json.loads(json.dumps(v).replace("ROOT", root))


opts = salt.config.minion_config(None)
opts.update(file_client="local", file_roots={"base": [root + "/srv"]}, pillar_roots={"base": []}, root_dir=root, cachedir=root + "/cache", pki_dir=root + "/pki", conf_file=root + "/minion",
            sock_dir=root + "/s", log_file=root + "/log", id="rec", fileserver_list_cache_time=0)
opts["grains"] = {}
sm = salt.minion.SMinion(opts)


def untraced(text):
    """Leaves only the error of a traceback: its frames quote Salt's source."""
    return re.sub(r"(Traceback \(most recent call last\):\n)(?: .*\n)+", r"\1", text)


def run(fun, kw, test):
    try:
        ret = sm.functions["state.single"](fun, test=test, **fill(kw))
    except Exception as e:
        return {"crash": str(e)}
    ret = list(ret.values())[0]
    ret = {k: ret.get(k) for k in ("result", "comment", "changes", "warnings") if k in ret}
    ret["comment"] = untraced(ret["comment"])
    return json.loads(json.dumps(ret).replace(root, "ROOT"))


out = []
for fun, kw in S:
    build()
    case = {"fun": fun, "args": kw, "test": run(fun, kw, True)}
    before = look()
    build()
    case["run"] = run(fun, kw, False)
    case["tree"] = {k: v for k, v in look().items() if before.get(k) != v}
    case["gone"] = [k for k in before if k not in look()]
    case["again"] = run(fun, kw, False)
    out.append(case)
json.dump({"tree": TREE, "cases": out}, sys.stdout, indent=0, ensure_ascii=True)
shutil.rmtree(root)
