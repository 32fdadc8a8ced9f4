"""A minion's request channel made of Salt's own classes.

Arguments: pki folder, request port, transport. Each line on stdin is a JSON
list of a kind and a load; each answer is a JSON line on stdout.
"""
import json
import sys

import salt.channel.client
import salt.config

pki, port, transport = sys.argv[1:4]
opts = salt.config.DEFAULT_MINION_OPTS.copy()
opts.update(
    id="stock", pki_dir=pki, cachedir=pki, sock_dir=pki, transport=transport, __role="minion",
    master="127.0.0.1", master_ip="127.0.0.1", master_port=int(port),
    master_uri="tcp://127.0.0.1:" + port, auth_events=False, user="root",
)
with salt.channel.client.ReqChannel.factory(opts) as channel:
    for line in sys.stdin:
        kind, load = json.loads(line)
        try:
            if kind == "private":
                got = channel.crypted_transfer_decode_dictentry(load, dictkey="pillar", timeout=2, tries=3)
            else:
                got = channel.send(load, timeout=5)
            print(json.dumps({"ok": got}), flush=True)
        except Exception as exc:  # whatever it is, the test wants to see it
            print(json.dumps({"error": repr(exc)}), flush=True)
