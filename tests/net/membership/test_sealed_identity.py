"""Encrypted identity files: opened with the passphrase alone, and refused in one line without it."""

import re
import sys

import pytest

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.suite import Secret
from tacit.net.membership import passphrase, sealed_identity
from tacit.net.membership.identity import Card, Credentials
from tacit.net.membership.sealed_identity import SealedIdentity

PHRASE = "correct horse battery Zürich"
MINE = Credentials.generate("a", SeededEntropy("sealed"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    seal = SealedIdentity.seal.__func__
    monkeypatch.setattr(
        SealedIdentity, "seal", classmethod(lambda cls, *given: seal(cls, *given, sealed_identity.LEAST_COST))
    )
    for name in (passphrase.COMMAND, passphrase.VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path):
    MINE.create(tmp_path / "a.identity", Secret(PHRASE.encode()))
    return tmp_path / "a.identity"


def refused(path):
    with pytest.raises(ConfigError) as caught:
        Credentials.load(path)
    (problem,) = caught.value.problems
    assert problem.isprintable()
    assert str(path) in problem or "both set" in problem
    assert PHRASE not in problem
    return problem


def test_the_passphrase_opens_it(path, monkeypatch):
    monkeypatch.setenv(passphrase.VARIABLE, PHRASE)
    found = Credentials.load(path)
    assert found.card("localhost:1") == MINE.card("localhost:1")
    assert found.tls.reveal() == MINE.tls.reveal()


def test_no_secret_is_in_the_file(path, tmp_path):
    MINE.create(tmp_path / "plain.identity")
    plain = (tmp_path / "plain.identity").read_text(encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    for value in re.findall(r'_key = "([^"]+)"', plain):
        assert value not in text
    assert 'name = "a"' in text


def test_two_files_of_one_passphrase_have_nothing_in_common(tmp_path, path):
    MINE.create(tmp_path / "again.identity", Secret(PHRASE.encode()))
    one, two = (re.findall(r'= "([^"]+)"', each.read_text()) for each in (path, tmp_path / "again.identity"))
    assert set(one) & set(two) == {"a"}


def test_a_wrong_passphrase(path, monkeypatch):
    monkeypatch.setenv(passphrase.VARIABLE, "wrong")
    problem = refused(path)
    assert problem.startswith(f"{path} cannot be decrypted: the passphrase is wrong, or the file was changed; try: ")


def test_no_passphrase(path):
    problem = refused(path)
    assert problem == (
        f"{path} needs a passphrase, and none was given; try: set TACIT_PASSPHRASE_COMMAND or TACIT_PASSPHRASE"
    )


def test_a_command_prints_it(path, monkeypatch):
    monkeypatch.setenv(passphrase.COMMAND, f"{sys.executable} -c \"print('{PHRASE}')\"")
    assert Credentials.load(path).name == "a"
    monkeypatch.setenv(passphrase.VARIABLE, PHRASE)
    assert "both set" in refused(path)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("false", "failed with code 1"),
        ("/no/such/command", "cannot be run: No such file or directory"),
        ("echo 'open", "cannot be read"),
        ("echo wrong", "the passphrase is wrong"),
        ("true", "is empty"),
        (f'sh -c "echo {PHRASE}; exit 3"', "failed with code 3"),
        (" ", "cannot be read"),
    ],
)
def test_a_command_that_does_not_print_it(path, monkeypatch, command, told):
    monkeypatch.setenv(passphrase.COMMAND, command)
    assert told in refused(path)


def test_a_command_that_hangs(path, monkeypatch):
    monkeypatch.setattr(passphrase, "PATIENCE", 0.1)
    monkeypatch.setenv(passphrase.COMMAND, "sleep 20")
    assert "took more than 0.1 seconds" in refused(path)


def test_a_person_is_asked(path, monkeypatch):
    typed = iter([PHRASE])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(passphrase.getpass, "getpass", lambda _: next(typed))
    assert Credentials.load(path).name == "a"


def test_the_same_letters_typed_on_another_system(path, monkeypatch):
    monkeypatch.setenv(passphrase.VARIABLE, PHRASE.replace("ü", "u\u0308"))
    assert Credentials.load(path).name == "a"


@pytest.mark.parametrize("field", ["name", "cost", "salt", "nonce", "sealed"])
def test_every_change_of_the_file_is_noticed(path, monkeypatch, field):
    monkeypatch.setenv(passphrase.VARIABLE, PHRASE)
    text = path.read_text(encoding="utf-8")
    new = {"name": 'name = "b"', "cost": "cost = 15"}.get(field)
    if new is None:
        new = re.search(rf'^{field} = ".*"$', text, re.MULTILINE)[0]
        new = new[:-6] + ("A" if new[-6] != "A" else "B") + new[-5:]
    changed = re.sub(rf"^{field} = .*$", new, text, flags=re.MULTILINE)
    assert changed != text
    path.write_text(changed, encoding="utf-8")
    assert "was changed" in refused(path)


@pytest.mark.parametrize("line", ["cost = 63", "cost = -1", 'salt = ""', 'sealed = ""', "cost = 1.5", "extra = 1"])
def test_numbers_that_would_take_all_memory_are_refused_before_it_is_taken(path, line):
    field = line.split()[0]
    text = re.sub(rf"^{field} = .*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    path.write_text(f"{line}\n{text}", encoding="utf-8")
    assert "is encrypted, and was changed" in refused(path)


def test_it_is_not_taken_for_a_card(path):
    with pytest.raises(ConfigError, match="contains secret keys"):
        Card.load(path)


def test_it_does_not_print():
    made = SealedIdentity.seal("a", b"secret", Secret(b"p"), SeededEntropy(0))
    assert repr(made) == "SealedIdentity('a', …)"
    assert made.open(Secret(b"p"), "file") == b"secret"
