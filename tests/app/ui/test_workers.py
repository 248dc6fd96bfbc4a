"""Processes that work for the page: what they tell, in which order, and how they are ended."""

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest

import tacit
from tacit.app.ui.adversary_query import AdversaryQuery
from tacit.app.ui.worker_pool import MOST_ANSWERED, PageWorkers

pytestmark = pytest.mark.long

ADMM = AdversaryQuery(protocol="admm", parties=9, settings=("group_size=3", "iterations=5"), coalition=("p0",))
SECAGG = AdversaryQuery(parties=6, rounds=3, dropout=0.2, coalition=("server",))


@pytest.fixture(scope="module")
def done():
    """Returns what runs some work with workers, which are the same for all tests: to start them takes longest."""
    with asyncio.Runner() as runner:
        workers = PageWorkers()
        yield lambda work: runner.run(work(workers))
        runner.run(workers.close())


async def told(workers, question, until=None):
    said = []
    async with aclosing(workers.audit(question)) as events:
        async for event in events:
            said.append(event)
            if event["event"] == until:
                break
    return said


def test_a_verdict_then_recipes_then_their_proof(done):
    said = done(lambda workers: told(workers, ADMM))
    assert [each["event"] for each in said] == ["graph", "rounds", "verdict", "recipes", "proof", "done"]
    verdict, recipes, proof = said[2:5]
    report = tacit.audit("admm", parties=9, coalition=["p0"], group_size=3, iterations=5)
    assert verdict["victims"] == dict.fromkeys(report.exposed, 1)
    assert set(recipes["recipes"]) == set(report.exposed)
    assert all(error < 1e-3 for error in proof["errors"].values())


def test_victims_are_told_with_the_round_from_which_they_are_exposed(done):
    async def work(workers):
        few, many = await told(workers, SECAGG), await told(workers, AdversaryQuery(**{**fields(SECAGG), "rounds": 12}))
        return [next(each for each in said if each["event"] == "verdict")["victims"] for said in (few, many)]

    few, many = done(work)
    for rounds, victims in ((3, few), (12, many)):
        for victim, first in victims.items():
            known = [
                victim in tacit.audit("secagg", parties=6, coalition=["server"], rounds=n, dropout=0.2).exposed
                for n in (first - 1, first)
                if n
            ]
            assert known in ([False, True], [True]), (rounds, victim, first)
    assert few == {"p3": 3}
    assert len(many) > 1


def fields(question):
    return {name: getattr(question, name) for name in question.__struct_fields__}


def test_the_same_question_is_answered_from_memory_and_another_coalition_by_the_same_process(done):
    async def work(workers):
        first = await told(workers, ADMM)
        again = await told(workers, ADMM)
        other = await told(workers, AdversaryQuery(**{**fields(ADMM), "coalition": ("p4",)}))
        return first, again, other

    first, again, other = done(work)
    assert again == first
    assert not any(each["event"] == "problem" for each in other)
    assert next(each for each in other if each["event"] == "verdict")["victims"].keys() == {"p3", "p5"}


def test_problems_are_told_and_the_page_goes_on(done):
    async def work(workers):
        wrong = await told(workers, AdversaryQuery(protocol="cesar", parties=5, settings=("maskin=2",)))
        nobody = await told(workers, AdversaryQuery(parties=4, coalition=("p9",)))
        unsure = await told(
            workers,
            AdversaryQuery(
                protocol="pushsum", parties=5, settings=("weighted=true", "masked=true"), rounds=3, coalition=("p0",)
            ),
        )
        return wrong, nobody, unsure, await told(workers, AdversaryQuery(parties=4, coalition=("p1",)))

    wrong, nobody, unsure, fine = done(work)
    assert "did you mean 'masking'" in wrong[-1]["problems"][0]
    assert "p9 is nobody here" in nobody[-1]["problems"][0]
    assert "not linear" in unsure[-1]["why"]
    assert fine[-1] == {"event": "done"}


def alive(process):
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_run_that_nobody_waits_for_any_more_is_ended(done):
    long = AdversaryQuery(protocol="admm", parties=60, settings=("group_size=3", "iterations=6"), coalition=("p0",))

    async def work(workers):
        await told(workers, long, until="graph")
        return long.key in workers._kept

    assert not done(work)


def test_a_newer_question_cuts_the_proof_of_the_older_short(done):
    slow = AdversaryQuery(parties=40, rounds=40, dropout=0.1, coalition=("server",))  # its replay takes many seconds

    async def work(workers):
        await told(workers, slow, until="verdict")
        worker = workers._kept[slow.key]
        newer = await told(workers, AdversaryQuery(**{**fields(slow), "coalition": ("server", "p1")}), until="verdict")
        return newer, alive(worker._process)

    newer, kept = done(work)
    assert newer[-1]["event"] == "verdict"
    assert kept


def test_who_leaves_late_does_not_cut_the_answer_to_a_newer_question_short(done):
    newer = AdversaryQuery(**{**fields(ADMM), "coalition": ("p0", "p4")})

    async def work(workers):
        older = workers.audit(AdversaryQuery(**{**fields(ADMM), "coalition": ("p7",)}))
        async with aclosing(older):
            async for event in older:
                if event["event"] == "verdict":
                    break
            answer = workers.audit(newer)
            said = [await anext(answer) for _ in range(3)]
        return said + [event async for event in answer]

    said = done(work)
    assert [each["event"] for each in said] == ["graph", "rounds", "verdict", "recipes", "proof", "done"]
    assert "interrupted" not in said[-1]


def test_a_plan_tells_how_far_it_is(done):
    asked = {"parties": 4, "coalition_size": 1, "rounds": 2, "dropout": 0.0, "entries": 100}

    async def work(workers):
        return [event async for event in workers.plan(asked)], [event async for event in workers.plan(asked)]

    first, again = done(work)
    assert {event["event"] for event in first[:-1]} == {"progress"}
    plan = first[-1]
    assert again == [plan]
    wanted = tacit.plan(4, coalition_size=1, rounds=2, dropout=0.0, entries=100)
    assert [each["verdict_code"] for each in plan["proposals"]] == [each.verdict for each in wanted.proposals]
    assert plan["proposals"][0]["command"].startswith("tacit audit ")


def test_a_plan_that_cannot_be_is_a_problem(done):
    asked = {"parties": 4, "coalition_size": 3, "rounds": 2, "dropout": 0.0, "entries": 100}

    async def work(workers):
        return [event async for event in workers.plan(asked)]

    assert "coalition_size must be 1 to 2 of 4 parties" in done(work)[-1]["problems"][0]


def test_a_folder_is_data_also_to_processes_that_are_started_in_it(tmp_path, monkeypatch):
    hostile(tmp_path)
    monkeypatch.chdir(tmp_path)
    with asyncio.Runner() as runner:
        workers = PageWorkers()
        said = runner.run(told(workers, AdversaryQuery(parties=4, coalition=("p1",))))
        runner.run(workers.close())
    assert said[-1] == {"event": "done"}
    assert not (tmp_path / "RAN").exists()


def hostile(folder):
    """Puts modules into a folder that are imported first by whoever looks there."""
    for name in ("msgspec", "numpy", "tacit", "asyncio", "sitecustomize"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'RAN')!r}, 'a').write({name!r})\nraise SystemExit\n")


def test_more_questions_at_once_than_are_worked_on_wait_for_their_turn():
    questions = [
        AdversaryQuery(
            protocol="admm", parties=12, settings=("group_size=3", f"iterations={4 + n % 3}"), coalition=(f"p{n}",)
        )
        for n in range(9)
    ]
    most = 0

    async def work():
        nonlocal most
        workers = PageWorkers()
        asking = [asyncio.create_task(told(workers, each)) for each in questions]
        while not all(each.done() for each in asking):
            most = max(most, len(children()))
            await asyncio.sleep(0.02)
        await workers.close()
        return [await each for each in asking]

    before = len(children())
    said = asyncio.run(work())
    assert all(each[-1]["event"] == "done" for each in said)
    assert sum(each[0] == {"event": "queued"} for each in said) == 9 - MOST_ANSWERED
    assert most - before <= MOST_ANSWERED + 1
    assert len(children()) == before


def children():
    """Returns the processes that this one has started."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()


def test_two_who_ask_for_the_same_setting_at_once_share_a_process():
    first, other = (AdversaryQuery(**{**fields(ADMM), "coalition": (each,)}) for each in ("p0", "p4"))

    async def work():
        workers = PageWorkers()
        await asyncio.gather(told(workers, first, "graph"), told(workers, other, "verdict"))
        kept = len(workers._kept)
        await workers.close()
        return kept

    before = len(children())
    assert asyncio.run(work()) == 1
    assert len(children()) == before


def test_who_waits_too_long_for_a_turn_is_told_the_command(monkeypatch):
    async def work():
        workers = PageWorkers()
        async with aclosing(workers.audit(ADMM)) as older:
            await anext(older)
            monkeypatch.setattr("tacit.app.ui.worker_pool.DEADLINE", 0.05)
            said = await told(workers, AdversaryQuery(parties=5, coalition=("p1",)))
        await workers.close()
        return said

    monkeypatch.setattr("tacit.app.ui.worker_pool.MOST_ANSWERED", 1)
    queued, late = asyncio.run(work())
    assert queued == {"event": "queued"}
    assert "tacit audit secagg --parties 5" in late["problems"][0]


def test_a_worker_is_ended_with_the_fork_that_proves_for_it():
    slow = AdversaryQuery(parties=40, rounds=40, dropout=0.1, coalition=("server",))  # its replay takes many seconds

    async def work():
        workers = PageWorkers()
        async with aclosing(workers.audit(slow)) as events:
            async for event in events:
                if event["event"] == "verdict":
                    break
            async with asyncio.timeout(5):
                await workers.close()

    asyncio.run(work())


def test_what_takes_too_long_is_left_to_the_command_line(done, monkeypatch):
    monkeypatch.setattr("tacit.app.ui.worker_pool.DEADLINE", 0.001)
    said = done(lambda workers: told(workers, AdversaryQuery(parties=5, coalition=("p1",))))
    assert "tacit audit secagg --parties 5" in said[-1]["problems"][0]
