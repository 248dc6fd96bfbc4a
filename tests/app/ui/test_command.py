"""`tacit ui`, as far as it goes without a browser."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from http.client import HTTPException
from time import monotonic
from urllib.request import Request, urlopen

from typer.testing import CliRunner

from support.broken_plugins import REASONS, write_broken_plugins
from tacit.app.cli.main import app
from tacit.learn.scenario import Scenario


def test_what_cannot_be_served_is_said_in_one_line(tmp_path):
    told = CliRunner().invoke(app, ["ui", str(tmp_path / "nowhere")])
    assert told.exit_code == 2
    assert "is not a folder" in told.output
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = CliRunner().invoke(app, ["ui", str(tmp_path), "--port", str(taken.getsockname()[1])])
    assert told.exit_code == 2
    assert "give another one, or --port 0" in told.output


def test_its_help_has_an_example():
    told = CliRunner().invoke(app, ["ui", "--help"])
    assert told.exit_code == 0
    assert "tacit ui runs --port 8700" in told.output


@contextmanager
def served(folder, where="."):
    """Serves the page of a folder, called in it, and yields the process and how to ask it."""
    program = [
        sys.executable,
        "-P",
        "-c",
        "from tacit.app.cli.main import main; main()",
        "ui",
        where,
        "--port",
        "0",
        "--json",
    ]
    with subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603
        told = b""
        while line := process.stdout.readline():
            told += line
            if line == b"}\n":
                break
        url = json.loads(told)["url"]
        base, token = url.split("/?token=")

        def ask(path, text=None):
            headers = {"Authorization": f"Bearer {token}", "Origin": base}
            return urlopen(Request(base + path, text, headers), timeout=60)  # noqa: S310

        try:
            yield process, ask
        finally:
            process.kill()


def first(stream):
    """Returns the first event of a stream."""
    return json.loads(stream.readline().removeprefix(b"data: "))


def stopped(process):
    """Says how long it takes to stop a page as Ctrl-C does."""
    before = monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(60)
    return monotonic() - before


def run_in(folder):
    folder.mkdir()
    (folder / "scenario.json").write_bytes(Scenario.of({"title": folder.name, "data": {"parties": 4}}).encode())
    return folder


def test_a_folder_with_modules_in_it_is_only_data(tmp_path):
    for name in ("msgspec", "numpy", "tacit"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'RAN')!r}, 'a').write({name!r})\nraise SystemExit\n"
        )
    with served(tmp_path) as (process, ask):
        with ask("/api/ask?protocol=secagg&parties=4&coalition=p0") as answer:
            assert b'"event":"verdict"' in answer.read()
        stopped(process)
    assert not (tmp_path / "RAN").exists()


def test_plugins_that_cannot_be_used_are_told_beside_the_protocols(tmp_path, monkeypatch):
    plugins = write_broken_plugins(tmp_path / "plugins")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(plugins), *sys.path]))
    with served(tmp_path) as (_, ask), ask("/api/protocols") as answer:
        told = json.loads(answer.read())
    assert {"secagg", "cesar"} <= {each["name"] for each in told["protocols"]}
    assert {each["name"] for each in told["unavailable"]} == REASONS.keys()
    for each in told["unavailable"]:
        assert REASONS[each["name"]] in each["problem"]
        assert each["text"] == f"protocol {each['name']!r} of {each['package']} is not available: {each['problem']}"


def test_odd_folders_hold_up_neither_the_list_nor_the_end(tmp_path):
    run_in(tmp_path / "fine")
    os.mkfifo(run_in(tmp_path / "pipe") / "metrics.jsonl")
    (tmp_path / "party").mkdir()
    os.mkfifo(tmp_path / "party" / "status.json")
    os.rename(run_in(tmp_path / "odd"), os.fsencode(tmp_path) + b"/o\xffdd")
    (tmp_path / "folder" / "scenario.json").mkdir(parents=True)
    with served(tmp_path) as (process, ask), ask("/api/watch") as stream:
        told = first(stream)
        states = {run["id"]: run["state"] for run in told["runs"]}
        unreadable = dict.fromkeys(("pipe", "folder"), "unreadable")
        assert states == {"fine": "running", "o\\xffdd": "running", **unreadable}
        assert "no plain file" in told["parties"][0]["trouble"]
        # A run that goes away while somebody watches is no longer told of, and the rest is.
        shutil.rmtree(tmp_path / "fine")
        stream.readline()
        assert {run["id"] for run in first(stream)["runs"]} == {"pipe", "folder", "o\\xffdd"}
        assert stopped(process) < 10
        stream.read()  # which raises if it was cut off in the middle


def test_a_long_check_does_not_hold_up_the_page_or_its_end(tmp_path):
    with served(tmp_path) as (process, ask):
        many = b'rounds = 1\n[data]\nparties = 3000000\n[protocol]\nname = "secagg"\n'
        with ask("/api/check", many) as answer:
            assert "is more than the page takes" in json.loads(answer.read())["problems"][0]
        long = b'rounds = 1\n[data]\nparties = 1000\n[protocol]\nname = "pushsum"\n'  # which takes seconds
        checking = threading.Thread(target=lambda: suppressed(ask, "/api/check", long), daemon=True)
        checking.start()
        with ask("/api/protocols") as answer:
            assert answer.status == 200
        assert stopped(process) < 10


def suppressed(ask, *asked):
    with suppress(OSError, HTTPException):
        ask(*asked)


def test_tags_are_set_and_wrong_ones_are_refused_with_the_reason(tmp_path):
    run_in(tmp_path / "one")
    with served(tmp_path) as (_, ask):

        def send(body):
            with ask("/api/tags", json.dumps(body).encode() if isinstance(body, dict) else body) as answer:
                return json.loads(answer.read())["problems"]

        assert send({"id": "one", "tags": ["pilot"]}) == []
        assert json.loads((tmp_path / "one" / "tags.json").read_text()) == ["pilot"]
        assert "at most 30" in send({"id": "one", "tags": ["x" * 31]})[0]
        for name in ("nosuch", "../one", str(tmp_path)):
            assert "there is no run" in send({"id": name, "tags": ["pilot"]})[0]
        for body in (b"{", b"[]", b"\xff", {"id": "one", "tags": "pilot"}):
            assert "the tags cannot be read" in send(body)[0]
    assert sorted(os.listdir(tmp_path)) == ["one"]


def test_a_run_names_its_report_and_the_server_serves_it_without_scripts(tmp_path):
    (run_in(tmp_path / "one") / "report.html").write_text("<h1>Report")
    run_in(tmp_path / "two")
    with served(tmp_path) as (_, ask):
        with ask("/api/run?id=two") as answer:
            assert json.loads(answer.read())["report"] is False
        with ask("/api/run?id=one") as answer:
            address = json.loads(answer.read())["report"]
        with ask(address) as answer:
            assert (answer.status, answer.read()) == (200, b"<h1>Report")
            assert "sandbox" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_check_returns_the_values_of_a_text_that_has_problems(tmp_path):
    with served(tmp_path) as (_, ask):
        with ask("/api/check", b"rounds = 0\n[data]\nparties = 4\n") as answer:
            found = json.loads(answer.read())
        assert found["problems"]
        assert found["given"] == {"rounds": 0, "data": {"parties": 4}}
        with ask("/api/check", b"rounds = \n") as answer:
            assert json.loads(answer.read())["given"] == {}
