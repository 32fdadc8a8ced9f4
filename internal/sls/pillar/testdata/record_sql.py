# Makes trees of rows with stock Salt's external pillar sqlite3, for a list of
# [statements, cases] on standard input.
import json, logging, os, sqlite3, sys, tempfile, warnings
warnings.simplefilter("ignore")
import salt.pillar.sqlite3 as sq
logging.disable(logging.CRITICAL)
statements, cases = json.load(sys.stdin)
path = tempfile.mkdtemp() + "/db"
db = sqlite3.connect(path)
for s in statements:
    db.execute(s)
db.commit()
sq.__opts__ = {"sqlite3": {"database": path}}
out = []
for case in json.loads(json.dumps(cases).replace("%s", "?")):
    args, kwargs = (case, {}) if isinstance(case, list) else ([], case)
    out.append(sq.ext_pillar("web1", {}, *args, **kwargs))
json.dump(out, sys.stdout, indent=1)
