"""Runs one end of Salt's own transport classes, for tests against the other.

usage: stock.py tcp|ws requests PORT COUNT     send COUNT requests, print the replies
       stock.py tcp|ws subscribe PORT ID       register as ID, print publications until {"end": ...}
       stock.py tcp|ws serve RET_PORT PUB_PORT answer requests, publish {"n": ...} again and again

Everything is printed as one JSON value per line; what Salt logs at level
WARNING or above as {"log": text}.
"""

import asyncio
import importlib
import json
import logging
import os
import sys
import tempfile

import tornado.ioloop

import salt.channel.server
import salt.payload
import salt.transport.frame


def say(value):
    print(json.dumps(value, default=lambda b: {"hex": bytes(b).hex()}), flush=True)


class Log(logging.Handler):
    def emit(self, record):
        say({"log": self.format(record)})


logging.getLogger("salt").addHandler(Log(logging.WARNING))
KIND, ROLE, ARGS = sys.argv[1], sys.argv[2], sys.argv[3:]
transport = importlib.import_module("salt.transport." + KIND)
OPTS = {"ipv6": False, "tcp_keepalive": True, "ssl": None, "interface": "127.0.0.1", "order_masters": False}


async def requests(loop):
    port, count = ARGS[0], int(ARGS[1])
    client = transport.RequestClient(dict(OPTS, master_uri="tcp://127.0.0.1:" + port), loop)
    loads = [{"n": i, "text": "é" * i, "blob": b"\xff" * (i + 1)} for i in range(count)]
    if KIND == "tcp":
        await client.connect()  # two first requests at once would open two connections
        replies = await asyncio.gather(*[client.send(load, timeout=20) for load in loads])
    else:
        replies = [await client.send(load, timeout=20) for load in loads]
    for load, reply in zip(loads, replies):
        say({"n": reply["n"], "same": reply == load})
    client.close()
    await asyncio.sleep(0.1)


async def subscribe(loop):
    done = asyncio.Event()
    client = transport.PublishClient(dict(OPTS), loop, host="127.0.0.1", port=int(ARGS[0]))

    async def received(message):
        payload = client._decode_messages(message)
        say(payload)
        if "end" in payload:
            done.set()

    await client.connect()
    if KIND == "tcp":
        body = {"enc": "aes", "load": ARGS[1].encode(), "version": 3}
        client._stream.write(salt.transport.frame.frame_msg(body, header=None))
    client.on_recv(received)
    await done.wait()


async def serve(loop):
    async def answer(payload):
        if isinstance(payload, dict) and payload.get("wait"):
            await asyncio.sleep(payload["wait"])
        return payload

    def presence(subscriber, msg):
        class Channel:
            opts, aes_key = OPTS, None

            class aes_funcs:
                @staticmethod
                def verify_minion(id_, token):
                    return True

        if msg["enc"] == "aes":
            say({"registered": msg["load"]})
            return
        # What the real channel does with any other message.
        salt.channel.server.PubServerChannel.presence_callback(Channel(), subscriber, msg)

    server = transport.RequestServer(dict(OPTS, ret_port=int(ARGS[0])))
    server.pre_fork(None)
    server.post_fork(answer, loop)
    pull = os.path.join(tempfile.mkdtemp(), "pull.ipc")
    pub = transport.PublishServer(dict(OPTS), pub_host="127.0.0.1", pub_port=int(ARGS[1]), pull_path=pull)
    asyncio.ensure_future(pub.publisher(lambda *a: None, presence, lambda s: None, loop))
    await asyncio.sleep(0.5)
    say({"ready": True})
    n = 0
    while True:
        n += 1
        await pub.publish_payload(salt.payload.dumps({"n": n}))
        await asyncio.sleep(0.05)


async def main():
    await globals()[ROLE](tornado.ioloop.IOLoop.current())


try:
    asyncio.run(main())
finally:
    sys.stdout.flush()
    os._exit(0)
