"""`tacit doctor`: every finding on real files, sockets and nodes of this machine."""

import asyncio
import json
import os
import shutil
import socket
import ssl
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from support.federations import Made, free_ports, written
from tacit.app.cli.main import app
from tacit.app.doctor import local_checks, peer_checks
from tacit.app.doctor.findings import Level, examine
from tacit.core.entropy import SeededEntropy
from tacit.net.membership.identity import Credentials
from tacit.net.store.round_store import RoundStore


@pytest.fixture
def made(tmp_path):
    found = Made.of(tmp_path, "secagg", 3)
    written(found)
    return found


@contextmanager
def running(node):
    """Runs a node in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(node.start(), loop).result(30)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(node.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def levels(found, party=""):
    """Returns the levels of all findings about a party, or about this machine."""
    return {each.code: each.level for each in found if each.party == party}


def only(found, level=Level.FAILED):
    (one,) = [each for each in found if each.level is level]
    return one


def path_of(made):
    return made.folder / "federation.toml"


def test_a_machine_whose_peers_run_has_no_failure(made):
    with running(made.node("p1")), running(made.node("p2")), running(made.node("server")):
        found = examine(path_of(made), "p0")
        assert [each for each in found if each.level is not Level.OK] == []
        here = {"roster", "version", "identity", "identity-card", "revision", "folder", "disk", "listen", "clock"}
        assert set(levels(found)) == here
        for peer in ("p1", "p2", "server"):
            asked = {"version", "revision", "rounds"} if peer == "server" else set()  # the others are no peers of p0
            assert set(levels(found, peer)) == {"resolve", "port", "tls", *asked}
        accepted = [each.text for each in found if each.code == "tls"]
        assert all("accepts ours" in text for text in accepted)
        # Without a party it says less, and needs no identity.
        for file in made.folder.glob("*.identity"):
            file.unlink()
        one = only(examine(path_of(made)))
        assert (one.code, one.party) == ("port", "p0"), "it does not know that this machine is p0"


def test_a_peer_that_was_not_started_is_named_with_what_to_do(made):
    with running(made.node("p1")), running(made.node("server")):
        one = only(examine(path_of(made), "p0"))
    assert (one.code, one.party) == ("port", "p2")
    assert one.text.startswith("nobody listens at 127.0.0.1 port")
    assert one.remedy == "start p2, then run this again"


def test_a_peer_with_a_roster_without_us_hangs_up(made):
    other = Credentials.generate("p0", SeededEntropy("another"))
    theirs = made.roster.replace_card(other.card(made.roster.address_of("p0")), SeededEntropy("x"))
    with running(made.node("p1", theirs)), running(made.node("p2")), running(made.node("server")):
        one = only(examine(path_of(made), "p0"))
    assert (one.code, one.party) == ("tls", "p1")
    assert "our certificate" in one.text
    assert one.remedy == "have both take the newest federation.toml"


def test_a_peer_with_another_certificate_than_the_roster_is_named(made):
    entropy = SeededEntropy("changed")
    changed = made.roster.replace_card(Credentials.generate("p1", entropy).card(made.roster.address_of("p1")), entropy)
    changed.save(path_of(made))
    with running(made.node("p1")), running(made.node("p2", changed)), running(made.node("server", changed)):
        one = only(examine(path_of(made), "p0"))
    assert (one.code, one.party) == ("tls", "p1")
    assert "another certificate than the roster" in one.text


@pytest.mark.parametrize(
    ("answer", "words"), [(b"SSH-2.0-x\r\n", "does not speak TLS"), (b"", "hung up"), (None, "silent after")]
)
def test_something_else_at_the_port_of_a_peer(answer, words, made):
    """A server of another kind, one that closes at once, and one that says nothing."""
    host, port = made.roster.address_of("p1").split(":")
    roster = SimpleNamespace(
        deadlines=SimpleNamespace(connect=1.0, certificate=86400.0),
        certificate_of=made.roster.certificate_of,
        host_of=made.roster.host_of,
    )
    with socket.create_server((host, int(port))) as server:

        def serve():
            connection, _ = server.accept()
            if answer is None:
                threading.Event().wait(2.0)
            elif answer:
                connection.sendall(answer)
                connection.recv(1 << 12)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        found = peer_checks.check_peer(roster, made.roster.card_of("p1"), made.credentials["p0"])
        thread.join()
    assert words in only(found).text
    assert only(found).code == "tls"


@pytest.mark.parametrize("code", [peer_checks.EXPIRED, peer_checks.NOT_YET_VALID])
def test_a_certificate_outside_its_dates_is_a_matter_of_clocks(code):
    error = ssl.SSLCertVerificationError("x")
    error.verify_code, error.verify_message = code, "certificate has expired"

    def fail(*_, **__):
        raise error

    one = peer_checks.check_tls(None, SimpleNamespace(wrap_socket=fail), "host", "there", "p1", True)
    assert (one.code, one.level, one.party) == ("clock", Level.FAILED, "p1")


def test_a_name_that_nobody_knows(made):
    card = made.credentials["p1"].card("no-such-host.invalid:7400")
    one = only(peer_checks.check_peer(made.roster, card, None))
    assert (one.code, one.party) == ("resolve", "p1")
    assert "no-such-host.invalid cannot be resolved" in one.text


def test_one_address_family_that_works_is_enough_and_the_other_is_a_warning(made, monkeypatch):
    (port,) = free_ports(1)
    card = made.credentials["p1"].card(f"localhost:{port}")
    both = [(family, socket.SOCK_STREAM, 6, "", (host, port)) for family, host in
            ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))]  # fmt: skip
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    made.roster = made.roster.replace_card(made.credentials["p1"].card(f"127.0.0.1:{port}"), SeededEntropy("x"))
    with running(made.node("p1")):
        monkeypatch.setattr(socket, "create_connection", lambda where, timeout: _connect(where, timeout))
        found = peer_checks.check_peer(made.roster, card, made.credentials["p0"])
    assert [each.level for each in found if each.code == "port"] == [Level.OK, Level.WARNING]
    assert levels(found, "p1")["tls"] is Level.OK


def _connect(where, timeout):
    if ":" in where[0]:
        raise TimeoutError
    connection = socket.socket()
    connection.settimeout(timeout)
    connection.connect(where)
    return connection


# --- this machine --------------------------------------------------------------------------------------------------


def test_an_identity_that_others_can_read_is_a_failure_with_its_remedy(made):
    path = made.folder / "p0.identity"
    path.chmod(0o644)
    _, (one,) = local_checks.check_identity(made.roster, "p0", path)
    assert (one.code, one.level) == ("identity", Level.FAILED)
    assert "chmod 600" in one.remedy


def test_an_identity_of_another_party_or_with_other_keys(made):
    _, (one,) = local_checks.check_identity(made.roster, "p0", made.folder / "p1.identity")
    assert one.text.endswith("is the identity of p1, not of p0")
    made.folder.joinpath("p0.identity").unlink()
    _, (missing,) = local_checks.check_identity(made.roster, "p0", made.folder / "p0.identity")
    assert (missing.code, missing.level) == ("identity", Level.FAILED)
    Credentials.generate("p0", SeededEntropy("another")).create(made.folder / "p0.identity")
    mine, found = local_checks.check_identity(made.roster, "p0", made.folder / "p0.identity")
    assert mine is None
    assert [each.code for each in found if each.level is Level.FAILED] == ["identity-card"]


def test_a_folder_that_others_can_change_or_that_cannot_be_written(made, monkeypatch):
    folder = made.folder / "p0.rounds"
    folder.mkdir()
    folder.chmod(0o777)
    assert only(local_checks.check_folder(folder, False)).code == "folder"
    folder.chmod(0o700)
    assert {each.level for each in local_checks.check_folder(folder, False)} == {Level.OK}
    (made.folder / "file").write_text("")
    assert only(local_checks.check_folder(made.folder / "file", False)).code == "folder"

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(local_checks.tempfile, "TemporaryFile", refuse)
    assert "is not writable" in only(local_checks.check_folder(made.folder / "new", False)).text


@pytest.mark.parametrize(("free", "level"), [(50 << 20, Level.FAILED), (500 << 20, Level.WARNING), (5 << 30, Level.OK)])
def test_a_disk_with_little_space(free, level, made, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    (_, disk) = local_checks.check_folder(made.folder / "p0.rounds", False)
    assert (disk.code, disk.level) == ("disk", level)


def test_a_port_that_another_process_has_and_one_that_ours_has(made):
    host, port = made.roster.address_of("p0").split(":")
    with socket.create_server((host, int(port))):
        (one,) = local_checks.check_listening(f"{host}:{port}", False)
    assert (one.code, one.level) == ("listen", Level.FAILED)
    with RoundStore(made.folder / "p0.rounds", "p0", "try"):
        assert local_checks.is_in_use(made.folder / "p0.rounds")
        (one,) = local_checks.check_listening(f"{host}:{port}", True)
        assert one.level is Level.UNCHECKED
    assert not local_checks.is_in_use(made.folder / "p0.rounds")
    (one,) = local_checks.check_listening(f"192.0.2.7:{port}", False)
    assert (one.level, "router" in one.text) == (Level.WARNING, True)
    (one,) = local_checks.check_listening("", False)
    assert one.level is Level.OK


def test_files_from_the_future_show_a_clock_that_was_set_back(made):
    (one,) = local_checks.check_clock([path_of(made)])
    assert (one.level, "no message carries the time" in one.text) == (Level.OK, True)
    later = path_of(made).stat().st_mtime + 86_400
    os.utime(path_of(made), (later, later))
    (one,) = local_checks.check_clock([path_of(made), made.folder / "p0.rounds"])
    assert (one.code, one.level) == ("clock", Level.FAILED)


def test_a_machine_without_grpc(monkeypatch):
    assert local_checks.check_version().level is Level.OK
    monkeypatch.setattr(local_checks, "find_spec", lambda _: None)
    assert local_checks.check_version().level is Level.FAILED


# --- the command ---------------------------------------------------------------------------------------------------


def test_exit_codes_table_and_json(made, monkeypatch):
    monkeypatch.chdir(made.folder)

    def called(*given):
        return CliRunner().invoke(app, ["doctor", *given])

    done = called("federation.toml", "--me", "p0", "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    failures = [each for each in told["findings"] if each["level"] == "failed"]
    assert told["failed"] == len(failures) == 3
    assert {each["party"] for each in failures} == {"p1", "p2", "server"}
    assert all(each["remedy"] for each in failures)
    done = called("federation.toml", "--me", "p0")
    assert done.exit_code == 1
    assert done.stdout.count("try: start ") == 3
    with running(made.node("p1")), running(made.node("p2")), running(made.node("server")):
        done = called("federation.toml", "--me", "p0")
    assert done.exit_code == 0, done.output
    assert "No failure in" in done.stdout
    assert called("federation.toml", "--me", "p9").exit_code == 2
    assert called("missing.toml").exit_code == 2
    Path("federation.toml").write_text("federation = 1")
    assert called("federation.toml").exit_code == 2
