"""Federations of peers that join as a program does, with the server in a thread of the test."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import tacit
from support.federations import written
from tacit.core.suite import SERVER


@contextmanager
def serve(made):
    """Runs the server of a federation in a thread, and gives the path of its roster."""
    path = written(made)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    async def started():
        node = made.node(SERVER)
        await node.start()
        return node, asyncio.create_task(node.serve(lambda _: None))

    async def ended():
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await node.close()

    node, serving = run(started())
    try:
        yield path
    finally:
        run(ended())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def together(peers, work):
    """Returns what each does at the same time."""
    with ThreadPoolExecutor(len(peers)) as pool:
        return list(pool.map(work, peers))


def joined(path, names="abc"):
    return together(names, lambda name: tacit.join(path, me=name))
