"""Write what Salt's own matchers say about the targets below, as JSON.

Run with a Salt source tree on PYTHONPATH: golden.py > golden.json
"match" lists the ids for which the minion's matcher is true; "expected" and
"missing" are what the master's greedy check returns when the minion "bare"
has no cached data. A dict key that is not text is written as [":pairs", ...].
"""
import json
import logging
import os
import sys
import tempfile

logging.disable(logging.CRITICAL)

import salt.cache
import salt.config
import salt.loader
import salt.utils.minions


def g(id_, **kw):
    base = {"id": id_, "os": "Debian", "os_family": "Debian", "osmajorrelease": 12, "num_cpus": 4,
            "ipv4": ["127.0.0.1"], "ipv6": ["::1"]}
    base.update(kw)
    return base


SUBJECTS = [
    {"id": "web1", "grains": g("web1", roles=["web", "front-end"], ipv4=["127.0.0.1", "10.1.2.3"], ipv6=["::1", "fe80::1", "2001:db8::5"],
        ec2={"tags": {"Name": "web:1", "env": "prod"}, "zone": "eu-1a"}, virtual="kvm", secure=True, load=1.5, empty={}, nothing=None),
     "pillar": {"app": {"name": "shop", "ports": [80, 443], "tls": True}, "users": [{"name": "ann", "uid": 1000}, {"name": "bob", "uid": 1001}], "top": "x"}},
    {"id": "web2", "grains": g("web2", os="Ubuntu", osmajorrelease=22, roles=["web"], ipv4=["127.0.0.1", "10.1.9.9"], city="Zürich",
        disks={"sda": {"size": 100, "parts": ["a1", "a2"]}, "sdb": {"size": 200, "parts": []}}, path="a:b:c"),
     "pillar": {"app": {"name": "Shop", "ports": [8080]}, "80": "text key", "nest": {"a": {"b": {"c": "deep"}}}}},
    {"id": "db1.example.com", "grains": g("db1.example.com", os="RedHat", os_family="RedHat", osmajorrelease=9, roles=["db"], ipv4=["192.168.7.4"],
        matrix=[[1, 2], ["x", "y"]], mixed=[{"k": "v"}, "plain", 7, None, False], version="9.4", **{"*": "star", "a b": "blank", "x.y": "dot"}),
     "pillar": {"secret": {"key": ["k1", "k2"]}, "weird": {":pairs": [[80, "int"], [1.5, "float"], [True, "bool"], [None, "none"]]}}},
    {"id": "DB2", "grains": g("DB2", os="redhat", roles="db", ipv4=[], kernelrelease="6.1.0-18-amd64", list_of_dicts=[{"name": "eth0"}, {"name": "eth1", "up": {"yes": "1"}}]),
     "pillar": {"app": "not a dict", "list": [["in", "ner"], "out"]}},
    {"id": "min[1]", "grains": g("min[1]", os="Arch", ipv6=["2001:db8::7"], tag="caf\u00e9"), "pillar": {}},
    {"id": "app-10", "grains": g("app-10", os="Debian GNU/Linux", text="line1\nline2", n=0, neg=-3, big=12345678901234567890), "pillar": {"app": {"name": "x*y"}}},
]
BARE = "bare"

NODEGROUPS = {
    "webs": "web*", "two": "web1,web2", "words": "web1 web2", "lst": ["web1", "DB2"], "rx": "web[1-2]", "rx2": ["web(1|2)"],
    "comp": "G@os:Debian or E@db.*", "nest": "N@webs and not N@two", "nest2": "N@comp or N@lst", "deep": ["N@nest2", "and", "not", "web1"],
    "nest3": "N@words or DB2", "nest4": "N@rx", "blank": ["G@os:Debian GNU/Linux"],
}

C = []


def add(typ, *exprs, delimiter=":"):
    for e in exprs:
        C.append((typ, e, delimiter))


add("glob", "*", "web*", "web1", "WEB1", "web?", "web[12]", "web[!1]", "web[1-3]", "*.example.com", "d*1*c*m", "min[1]", "min[[]1]", "min[[]1[]]", "[dD]*", "[!w]*",
    "", "web[", "[]]*", "[!]", "app-[0-9]*", "app-[9-0]*", "app[-]10", "app[+--]10", "**", "*?", "?????", "[a-zA-Z]*", "web[^1]", "*[1]", "web[!", "w*b*1", "a*-1?", "[a-]*", "[z-a]eb1")
add("pcre", r"^(?!web)", r"web(?=\d$)", r"(?!.*\.example)db", r"^((?!db).)*$", r"(\w)\w*\1", r"(?P<a>[eb]).*(?P=a)", r"w(?<=w)eb(?<!x)", "(?x) web [12]", "(w)?(?(1)eb|db)")
add("pcre", "web", "web1$", "eb", ".*1", "web[12]", "(web|db)", "web(1|2)$", r"web\d", r"\w+\.\w+", "WEB", "(?i)web", "(?i:DB)", "^web1", r"db1\.example\.com\Z", "web1(?#c)$",
    r"[\w.-]+$", "w{1}eb", "we{,2}b", "we{0}b", "", "min\\[1\\]", "[a-z]+-[0-9]+", "(?P<n>web)", "[^w]", r"app\-10", r"\S+", r"\x77eb", r"\u0077eb", r"\167eb", "web|", "[[]", "min[[]", "x*", r"[\d]+", r".+\b1")
add("list", "web1", "web1,web2", "web1,nosuch,DB2", ["web1", "web2"], ["nosuch"], [], "nosuch", "web1,", ",web1", "web1,,DB2")
add("grain", "os:Debian", "os:debian", "os:*", "os:D*", "os:[!d]*", "os:Debian*", "os", "nokey:*", "nokey:x", "roles:web", "roles:front-*", "roles:db", "roles:*", "roles", "osmajorrelease:12", "osmajorrelease:1?",
    "secure:True", "secure:true", "secure:1", "load:1.5", "nothing:None", "nothing:*", "empty:*", "empty:x", "ec2:tags:Name:web:1", "ec2:tags:Name:web*", "ec2:tags:env:prod", "ec2:tags", "ec2:tags:*",
    "ec2:tags:Name", "ec2:*:env:prod", "ec2:*:prod", "ec2:*", "*:prod", "*:tags:env:prod", "*:web", "*:*", "*", "ec2:zone", "ec2:zone:eu*", "path:a:b:c", "path:a:*", "path:a", "disks:sda:size:100", "disks:*:size:200",
    "disks:sda:parts:a1", "disks:*:parts:a2", "disks:*:a1", "disks:sd?:size:100", "disks:sdb:parts:*", "matrix:0:1", "matrix:1:x", "matrix:0:3", "matrix:-1:y", "matrix:5:x", "matrix:[1, 2]", "mixed:k:v", "mixed:0:k", "mixed:0:k:v", "mixed:plain",
    "mixed:7", "mixed:none", "mixed:false", "mixed:1:plain", "mixed:2:7", "mixed:k", "roles:0:web", "roles:1:*", "roles:+0:web", "roles: 0 :web", "roles:1_0:web", "version:9.*", "version:9.4", "*:star", "*:dot", "a b:blank", "x.y:dot", "text:line1*", "text:line1?line2",
    "n:0", "neg:-3", "big:12345678901234567890", "tag:caf\u00e9", "tag:CAF\u00c9", "city:z\u00fc*", "os:Debian GNU/Linux", "list_of_dicts:name:eth0", "list_of_dicts:name:eth1", "list_of_dicts:*:eth1", "list_of_dicts:1:name:eth1", "list_of_dicts:up:yes:1", "list_of_dicts:name", "kernelrelease:6.*amd64",
    "os::Debian", ":os:Debian", "os:Debian:", "", ":", "ipv4:10.1.*", "ipv4:0:127*", "ipv6:2001:db8::5", "ipv6:2001*", "virtual:kvm", "*:*:prod", "*:*:*:prod", "*:*:*", "ec2:tags:*:prod", "ec2:*:*:web:1")
add("grain", "os|Debian", "ec2|tags|Name|web:1", "ec2|tags|env|prod", "path|a:b:c", "ec2|*:env:prod", "ec2|*|env|prod", "*|prod", "*|tags:env", "ec2:tags|env", "ec2|tags:env:prod", delimiter="|")
add("grain", "os::Debian", "ec2::tags::Name::web:1", delimiter="::")
add("grain_pcre", "os:(?!deb)", r"os:\w+(?=\s)", "roles:(?!db)", "ec2:tags:(?=n)name", "os_family:((?!hat).)*$")
add("pillar_pcre", "app:name:(?!shop)", "users:name:(?=b)")
add("compound", "E@^(?!web) and not E@(?=min)", "P@os:(?!Debian) or J@top:(?=x)")
add("grain_pcre", "os:(Debian|Ubuntu)", "os:deb", "os:DEB.*$", "os:^debian$", "roles:^web$", "roles:(web|db)", "osmajorrelease:1\\d", "osmajorrelease:1\\D", "ec2:tags:Name:web.1", "ec2:tags:(name|env)", "path:a:(b:c)", "path:(a:b):c", "os:(", "kernelrelease:6\\.1", "os:.*", "nokey:.*",
    "*:kvm", "city:z\\wrich", "text:line1$", "text:line1.", "empty:.*", "ec2:.*", "disks:*:size:2..", "os:[[:alpha:]]+", "ipv4:10\\.1\\..*", "mixed:^(plain|7)$", "tag:caf\\w$", "tag:\\S+$")
add("pillar", "app:name:shop", "app:name:Shop", "app:ports:443", "app:ports:*", "app:ports", "app:tls:true", "app:*", "app:name", "users:name:ann", "users:name:bob", "users:1:name:bob", "users:*:bob", "users:uid:1000", "top:x", "top", "nest:a:b:c:deep", "nest:a:b:c:d*", "nest:*:b:c:deep", "nest:*:c:deep", "nest:a:b",
    "80:text*", "weird:80:int", "weird:1.5:float", "weird:true:bool", "weird:True:bool", "weird:yes:bool", "weird:null:none", "weird:None:none", "weird:81:int", "weird:080:int", "weird:+80:int", "weird:8_0:int", "weird:0x50:int", "weird:1:bool", "weird:80", "weird:*:int", "list:0:in", "list:in", "list:out", "list:['in', 'ner']", "app:not a dict", "app:name:x[*]y", "secret:key:k?")
add("pillar", "app|name|shop", "nest|a|b|c|deep", delimiter="|")
add("pillar_pcre", "app:name:sh.p", "app:name:^shop$", "users:name:(ann|zed)", "app:ports:(80|81)$", "top:.", "secret:key:k[12]", "nest:a:b:c:de+p")
add("pillar_exact", "app:name:shop", "app:name:Shop", "app:name:s*", "app:name:x*y", "app:ports:443", "app:*", "app:name", "top:x", "users:uid:1001", "nest:a:b:c:deep", "nest:a:b:c:d*", "*:x")
add("ipcidr", "10.1.2.3", "10.1.0.0/16", "10.0.0.0/8", "10.1.2.3/16", "127.0.0.1", "127.0.0.0/8", "192.168.7.0/24", "0.0.0.0/0", "192.168.7.0/255.255.255.0", "192.168.7.0/0.0.0.255", "::1", "2001:db8::/32", "2001:db8::7", "2001:0db8:0::5", "fe80::/10", "fe80::1", "nonsense", "", "10.1.2", "10.1.2.3/33", "10.1.2.3/32", "::/0")
add("range", "%x", "web1")
add("nodegroup", "webs", "two", "words", "lst", "rx", "rx2", "comp", "nest", "nest2", "deep", "nest3", "nest4", "blank")
add("compound", "*", "web1", "web*", "G@os:Debian", "G@os:Debian and web1", "G@os:Debian or web2", "not G@os:Debian", "not web*", "* not web1", "* and not web1", "web* not G@os:Ubuntu", "web1 or web2 and DB2", "( web1 or web2 ) and G@os:Ubuntu", "not ( web1 or web2 )", "not ( G@os:Debian and web1 )",
    "web* and ( G@os:Debian or G@os:Ubuntu ) and not web2", "( ( web1 ) )", "( web1 ) not web2", "E@web.*", "E@db1|DB2", "L@web1,web2", "L@web1,nosuch", "L@nosuch or web1", "not L@web1,nosuch", "P@os:(Debian|Arch)$", "I@app:name:shop", "J@app:name:sh.p", "S@10.1.0.0/16", "S@10.1.2.3", "S@nonsense", "S@nonsense or web1", "not S@nonsense", "G@os or web1", "not G@os",
    "G|@os|Debian", "G|@ec2|tags|Name|web:1 or DB2", "I/@app/name/shop", "G@ec2:tags:env:prod", "G@@os@Debian", "E|@web", "G@", "G@@", "G|@", "X@web1", "x@y or web1", "g@os:Debian", "Gos:Debian", "R@%x", "R@%x or web1", "N@webs", "N@two", "N@words", "N@webs and web1", "not N@webs", "N@nest2", "N@deep or min*", "N@rx",
    "", "and", "or web1", "and web1", "web1 and", "web1 or", "not", "web1 web2", "web1 ( web2 )", "( web1", "web1 )", ")", "(", "( )", "web1 or ( )x", "( and web1 )", "( or web1 )", "not not web1", "web1 and and web2", "web1 or and web2", "web1 and not not web2", "not and web1", "web1 AND web2", "web1 And web2", "(web1 or web2)", "web1 or (web2)", "( not web1 )", "( not web1 ) and web*", "web1 or not web1",
    "* and ( not G@os:Debian ) and ( not DB2 )", "not web1 and not web2 or web1", "G@roles:web and G@osmajorrelease:22", "min[[]1]", "G@os:Debian*", "web[12] and not E@.*2", "J@users:name:(ann|zed) or I@top:x", "web1 not web2 not DB2", "not web1 or not web2", "( web1 or ( web2 and ( G@os:Ubuntu or DB2 ) ) )")
add("compound", ["web1", "or", "web2"], ["(", "L@web1,DB2", ")"], ["G@os:Debian GNU/Linux"], ["not", "G@os:Debian GNU/Linux"], ["G@a b:blank", "or", "DB2"])
add("compound_pillar_exact", "I@app:name:shop", "I@app:name:s*", "J@app:name:sh.p", "J@app:name:shop", "I@app:name:x*y", "web* and I@app:name:shop", "G@os:D* and not I@top:x", "I|@app|name|shop")


def unpairs(v):
    if isinstance(v, dict):
        if ":pairs" in v:
            return {k: unpairs(w) for k, w in v[":pairs"]}
        return {k: unpairs(w) for k, w in v.items()}
    if isinstance(v, list):
        return [unpairs(w) for w in v]
    return v


def main():
    root = tempfile.mkdtemp()
    opts = salt.config.master_config(None)
    opts.update(root_dir=root, cachedir=os.path.join(root, "cache"), pki_dir=os.path.join(root, "pki"), nodegroups=NODEGROUPS,
                minion_data_cache=True, key_cache="")
    os.makedirs(os.path.join(opts["pki_dir"], "minions"))
    cache = salt.cache.factory(opts)
    per = []
    for s in SUBJECTS:
        open(os.path.join(opts["pki_dir"], "minions", s["id"]), "w").close()
        data = {"grains": unpairs(s["grains"]), "pillar": unpairs(s["pillar"])}
        cache.store("minions/" + s["id"], "data", data)
        mopts = salt.config.DEFAULT_MINION_OPTS.copy()
        mopts.update(id=s["id"], cachedir=os.path.join(root, "mcache"), root_dir=root, nodegroups=NODEGROUPS, extension_modules="", **data)
        matchers = salt.loader.matchers(mopts)
        matchers.pack["__context__"] = {}
        per.append((s["id"], mopts, matchers))
    open(os.path.join(opts["pki_dir"], "minions", BARE), "w").close()
    ck = salt.utils.minions.CkMinions(opts)
    out = []
    for typ, expr, delim in C:
        case = {"type": typ, "expr": expr}
        if delim != ":":
            case["delimiter"] = delim
        if typ != "compound_pillar_exact":
            case["match"] = []
            for id_, mopts, matchers in per:
                kw = {}
                name, arg = typ, expr
                if typ in ("grain", "grain_pcre", "pillar", "pillar_pcre", "pillar_exact"):
                    kw["delimiter"] = delim
                if typ == "nodegroup":  # as the sender expands it
                    name, arg = "compound", salt.utils.minions.nodegroup_comp(expr, NODEGROUPS)
                try:
                    if matchers[name + "_match.match"](arg, opts=mopts, **kw):
                        case["match"].append(id_)
                except Exception:
                    case.setdefault("raised", []).append(id_)
        if typ != "range":
            if typ == "nodegroup":
                res = ck._check_nodegroup_minions(expr, True)
            else:
                res = ck.check_minions(expr, typ, delimiter=delim)
            case["expected"] = sorted(res["minions"])
            case["missing"] = res["missing"]
        out.append(case)
    rows = ",\n  ".join(json.dumps(c, sort_keys=True) for c in out)
    subs = ",\n  ".join(json.dumps(s, sort_keys=True) for s in SUBJECTS)
    sys.stdout.write('{"nodegroups": %s,\n "bare": "%s",\n "subjects": [\n  %s],\n "cases": [\n  %s]}\n' % (json.dumps(NODEGROUPS), BARE, subs, rows))


main()
