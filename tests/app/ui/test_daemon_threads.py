"""Work beside the loop of the page: so much of it at a time, and none of it holds up the end."""

import asyncio
import subprocess
import sys
import threading

import pytest

from tacit.app.ui.daemon_threads import DaemonThreads


def test_what_work_returns_and_raises_comes_back():
    async def work():
        threads = DaemonThreads(1)
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        return await threads.run(int, "12", base=3)

    assert asyncio.run(work()) == 5


def test_only_so_much_is_done_at_a_time_also_if_nobody_waits_for_it_any_more():
    go, begun = threading.Event(), []

    def stuck(name):
        begun.append(name)
        go.wait()

    async def work():
        threads = DaemonThreads(2)
        asked = [asyncio.create_task(threads.run(stuck, name)) for name in "abc"]
        await asyncio.sleep(0.1)
        assert sorted(begun) == ["a", "b"]
        asked[0].cancel()
        await asyncio.sleep(0.1)
        assert sorted(begun) == ["a", "b"]
        go.set()
        await asyncio.gather(*asked[1:])
        assert sorted(begun) == ["a", "b", "c"]

    asyncio.run(work())


def test_what_is_stuck_is_not_waited_for_at_the_end():
    program = """
import asyncio, threading
from tacit.app.ui.daemon_threads import DaemonThreads

async def work():
    stuck = asyncio.create_task(DaemonThreads(1).run(threading.Event().wait))
    await asyncio.sleep(0.1)
    stuck.cancel()

asyncio.run(work())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)  # noqa: S603
