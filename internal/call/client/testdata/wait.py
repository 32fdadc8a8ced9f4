"""Runs Salt's own waiting for returns over scenarios, with a clock of its own.

stdin: a list of scenarios {minions, missing, order, events: [[time, tag, data]],
answers: [[delay, id, data], ...] per question}; stdout: for each what happened,
[[time, what, ids]].
"""
import json
import sys

import salt.client as client


class Clock:
    now = 1000.0


clock = Clock()


class Time:
    @staticmethod
    def time():
        return clock.now

    @staticmethod
    def sleep(seconds):
        clock.now += 0.01


class Log:
    def __getattr__(self, name):
        return lambda *a, **k: None


client.time = Time
client.log = Log()


class Fake(client.LocalClient):
    def __init__(self, sc):
        self.sc = sc
        self.asked = []
        self.opts = {
            "timeout": 5, "gather_job_timeout": 10, "syndic_wait": 5, "order_masters": sc["order"],
            "master_job_cache": "local_cache",
        }
        self.auto_reconnect = True
        self.queue = {"J": [(1000 + t, tag, data) for t, tag, data in sc["events"] or []]}
        self.event = self
        self.out = []

    def __del__(self):
        pass

    def unsubscribe(self, jid):
        pass

    def returns_for_job(self, jid):
        return {"jid": jid}

    def gather_job_info(self, jid, tgt, tgt_type, listen=True, **kwargs):
        n = len(self.asked)
        self.asked.append(n)
        self.out.append([round(clock.now - 1000, 1), "ask", sorted(tgt)])
        answers = self.sc["answers"] or []
        answers = answers[n] if n < len(answers) else []
        fjid = "F%d" % n
        self.queue[fjid] = [(clock.now + t, "salt/job/%s/ret/%s" % (fjid, data["id"]), data) for t, data in answers]
        return {"jid": fjid, "minions": tgt}

    def get_returns_no_block(self, tag, match_type=None):
        jid = tag.rsplit("/", 1)[1]
        while True:
            q = self.queue[jid]
            if q and q[0][0] <= clock.now:
                _, tag_, data = q.pop(0)
                yield {"tag": tag_, "data": data}
            else:
                yield None

    def run(self):
        clock.now = 1000.0
        for ret in self.get_iter_returns("J", list(self.sc["minions"]), timeout=5, expect_minions=True):
            for id_, r in ret.items():
                self.out.append([round(clock.now - 1000, 1), "absent" if r.get("failed") else "ret", [id_]])
        self.out.append([round(clock.now - 1000, 1), "end", []])
        return self.out


json.dump([Fake(sc).run() for sc in json.load(sys.stdin)], sys.stdout)
