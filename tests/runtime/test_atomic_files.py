"""Files of a party where other users of the machine have placed links or files, or can write."""

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, TacitError
from tacit.crypto.sealing import Sealing
from tacit.integrations.flower.node_state import NodeFolder
from tacit.learn.training.checkpoint import Checkpoint
from tacit.learn.training.run_folder import CHECKPOINT, KEY, METRICS, load_noise_key, make_folder, read_metrics
from tacit.net.membership.identity import Credentials
from tacit.net.store.index import INDEX_FILE
from tacit.net.store.round_store import RoundStore
from tacit.privacy import Ledger, Spent
from tacit.runtime import atomic_files
from tacit.runtime.atomic_files import (
    create_private,
    is_leftover,
    make_private_folder,
    open_private,
    read_own_file,
    remove_leftovers,
    replace_file,
)

SOMEBODY = 12345
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")
SECRET = b"what somebody else has"


# --- each kind of file ---------------------------------------------------------------------------------------------


def open_store(folder):
    RoundStore(folder, "north", "clinics").close()


def open_node_folder(folder):
    with NodeFolder(folder, "north", Sealing(bytes(32))):
        pass


def spend(folder):
    folder.mkdir(mode=0o700, exist_ok=True)
    ledger = Ledger("a run", path=folder / "ledger.json")
    if not ledger.parties:
        ledger.spend("north", Spent(0.1))


def spend_again(folder):
    Ledger("a run", path=folder / "ledger.json").spend("north", Spent(0.1))


def open_run(folder):
    make_folder(None, folder, False)
    load_noise_key(folder)
    os.close(open_private(folder / METRICS))
    read_metrics(folder / METRICS, 0)
    if not os.path.lexists(folder / CHECKPOINT):
        replace_file(folder / CHECKPOINT, b"")
    try:
        Checkpoint.read(folder / CHECKPOINT)
    except ConfigError as error:
        if "was changed or truncated" not in str(error):  # it is empty
            raise


def open_identity(folder):
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "north.identity"
    if not os.path.lexists(path):
        Credentials.generate("north", SeededEntropy(0)).create(path)
    Credentials.load(path)


@dataclass(frozen=True)
class Kind:
    """A kind of state: what makes it and opens it again, and its files."""

    open: Any
    files: tuple[str, ...]


KINDS = {
    "store": Kind(open_store, ("lock", "records", "records.other", "average", "state", INDEX_FILE)),
    "node on flower": Kind(open_node_folder, ("lock", "mark")),
    "ledger": Kind(spend, ("ledger.json",)),
    "ledger's lock": Kind(spend_again, ("ledger.json.lock",)),
    "run": Kind(open_run, (KEY, METRICS, CHECKPOINT)),
    "identity": Kind(open_identity, ("north.identity",)),
}
CODES = {"identity": "config"}
"""Codes of kinds that were refused before there was another."""
FILES = [(name, file) for name, kind in KINDS.items() for file in kind.files]
FOLDERS = list(KINDS)


def made(name, tmp_path):
    """Returns what opens a folder of a kind, which is there and intact."""
    folder = tmp_path / "place"
    if name == "ledger's lock":
        spend(folder)
    KINDS[name].open(folder)
    KINDS[name].open(folder)
    return folder


@contextmanager
def refused(words, code="unsafe-path"):
    """Expects one line with a code."""
    with pytest.raises(ConfigError, match=words) as caught:
        yield
    assert caught.value.code == code
    (problem,) = caught.value.problems
    assert "\n" not in problem
    assert ";" in problem, "and says what to do"


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_link_in_the_place_of_a_file_is_not_followed(name, file, tmp_path):
    folder, elsewhere = made(name, tmp_path), tmp_path / "elsewhere"
    (folder / file).rename(elsewhere)
    before = elsewhere.read_bytes(), stat.S_IMODE(elsewhere.stat().st_mode)
    (folder / file).symlink_to(elsewhere)
    with refused("is a symbolic link"):
        KINDS[name].open(folder)
    assert (elsewhere.read_bytes(), stat.S_IMODE(elsewhere.stat().st_mode)) == before


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_link_that_leads_nowhere_creates_nothing(name, file, tmp_path):
    folder = made(name, tmp_path)
    (folder / file).unlink()
    (folder / file).symlink_to(tmp_path / "nowhere")
    with pytest.raises(TacitError):
        KINDS[name].open(folder)
    assert not (tmp_path / "nowhere").exists()


@AS_ROOT
@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_file_of_somebody_else_is_refused(name, file, tmp_path):
    folder = made(name, tmp_path)
    os.chown(folder / file, SOMEBODY, -1)
    with refused(f"belongs to another user .{SOMEBODY}", CODES.get(name, "unsafe-path")):
        KINDS[name].open(folder)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_file_that_others_can_change_is_refused(name, file, mode, tmp_path):
    folder = made(name, tmp_path)
    (folder / file).chmod(mode)
    with refused(r"by others.*try: .*chmod (go-w|600) ", CODES.get(name, "unsafe-path")):
        KINDS[name].open(folder)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_a_link_is_refused(name, tmp_path):
    folder = made(name, tmp_path)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with refused("is a symbolic link"):
        KINDS[name].open(folder)


@AS_ROOT
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_somebody_else_is_refused(name, tmp_path):
    folder = made(name, tmp_path)
    os.chown(folder, SOMEBODY, -1)
    with refused("belongs to another user"):
        KINDS[name].open(folder)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_others_can_write_to_is_refused_until_the_command_is_run(name, mode, tmp_path):
    folder = made(name, tmp_path)
    folder.chmod(mode)
    with refused(r"can be changed by others; try: check that it was not changed, then run: chmod go-w "):
        KINDS[name].open(folder)
    folder.chmod(mode & ~0o022)
    KINDS[name].open(folder)


@pytest.mark.parametrize("name", ["store", "node on flower", "run"])
def test_what_is_created_is_for_its_owner_alone_whatever_the_umask(name, tmp_path):
    before = os.umask(0)
    try:
        folder = made(name, tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {name: 0o700 if name == "place" else 0o600 for name in modes}


@pytest.mark.parametrize("name", [f"{INDEX_FILE}-wal", f"{INDEX_FILE}-shm"])
def test_files_of_the_database_are_no_links(name, tmp_path):
    """The database opens them itself, and would follow a link."""
    folder, elsewhere = made("store", tmp_path), tmp_path / "elsewhere"
    elsewhere.write_bytes(SECRET)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(elsewhere)
    with refused("is a symbolic link"):
        open_store(folder)
    assert elsewhere.read_bytes() == SECRET


# --- writing -------------------------------------------------------------------------------------------------------


def test_a_new_file_cannot_be_guessed_and_is_not_written_through(tmp_path, monkeypatch):
    """Its name was that of the file with .new behind it, and a link of that name was followed."""
    (tmp_path / "file.new").symlink_to(tmp_path / "elsewhere")
    names = []
    honest = os.open

    def seen(path, *more, **other):
        names.append(Path(path).name)
        return honest(path, *more, **other)

    monkeypatch.setattr(atomic_files.os, "open", seen)
    for _ in range(3):
        replace_file(tmp_path / "file", b"content")
    create_private(tmp_path / "other", b"content")
    written = [name for name in names if is_leftover(Path(name))]
    assert len(set(written)) == 4
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "elsewhere").write_bytes(SECRET)
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    replace_file(tmp_path / "file", b"content")
    assert (tmp_path / "elsewhere").read_bytes() == SECRET
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_rights_of_a_new_file(private, mode, tmp_path):
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "file", b"", private=private)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(call, tmp_path, monkeypatch):
    replace_file(tmp_path / "file", b"old")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_files.os if call == "fsync" else Path, call, full)
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "file", b"new")
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    names = [".status.json.0123456789abcdef.new", ".hidden", "status.json", "file.new", "..new"]
    for name in names:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*names[1:]}


def test_a_store_that_was_killed_while_it_wrote_its_status_opens(tmp_path):
    folder = made("store", tmp_path)
    (folder / ".status.json.0123456789abcdef.new").touch()
    open_store(folder)
    assert not any(map(is_leftover, folder.iterdir()))


def test_a_pipe_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for opened in (open_private, read_own_file):
        with refused("is not a file"):
            opened(tmp_path / "pipe")


def test_a_folder_is_made_with_those_above_it(tmp_path):
    make_private_folder(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with refused("is a symbolic link"):
        make_private_folder(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()


def test_a_link_further_up_is_followed(tmp_path):
    """Some systems use links above the state folder. Those are the operator's responsibility."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    open_store(tmp_path / "link" / "state")
    assert (tmp_path / "real" / "state" / INDEX_FILE).exists()
