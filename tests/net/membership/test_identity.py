"""Identities on disk: no other user reads them, errors never show them, and every change is detected."""

import errno
import os
import pickle
import re
import stat
import subprocess
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, ErrorText, UnsafePath
from tacit.core.suite import SERVER, Secret
from tacit.crypto.certificates import certificate_pem
from tacit.net.membership.identity import Card, Credentials, host_and_port, tls_host

BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def made(name="a", seed=0):
    return Credentials.generate(name, SeededEntropy("identity", name, seed))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.identity"
    made().create(path)
    return path


@pytest.fixture
def card(tmp_path):
    path = tmp_path / "a.card"
    made().card("localhost:7400").save(path)
    return path


def refused(load, path):
    """Returns the one line that a file is refused with."""
    with pytest.raises(ConfigError) as caught:
        load(path)
    (problem,) = caught.value.problems
    assert problem.isprintable()
    return problem


def secrets_of(credentials):
    return [credentials.identity.signing, credentials.identity.channel, credentials.tls]


# --- the file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_only_its_owner_can_read_it_whatever_the_umask(tmp_path, umask):
    path = tmp_path / "a.identity"
    before = os.umask(umask)
    try:
        made().create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Credentials.load(path) == made()
    assert [each.name for each in tmp_path.iterdir()] == ["a.identity"]


def test_keys_are_never_overwritten(file):
    before = file.read_bytes()
    with pytest.raises(
        ConfigError,
        match=r"a\.identity exists already, and keys are never overwritten; try: "
        "move it",
    ):
        made(seed=1).create(file)
    assert file.read_bytes() == before
    assert [each.name for each in file.parent.iterdir()] == ["a.identity"]


def test_a_name_that_leads_nowhere_is_not_written_through(tmp_path):
    (tmp_path / "a.identity").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="exists already"):
        made().create(tmp_path / "a.identity")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("call", ["fsync", "link", "fchmod"])
def test_it_is_written_whole_or_not_at_all(tmp_path, monkeypatch, call):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        made().create(tmp_path / "a.identity")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601, 0o777])
def test_what_others_can_read_is_refused_until_the_command_is_run(tmp_path, mode):
    path = tmp_path / "a copy.identity"
    made().create(path)
    path.chmod(mode)
    problem = refused(Credentials.load, path)
    command = ErrorText.parse(problem).remedy
    assert command == f"chmod 600 '{path}'"
    subprocess.run(command, shell=True, check=True)  # noqa: S602 (what we tell people to run)
    assert Credentials.load(path) == made()


def test_a_link_to_it_is_refused_and_what_it_leads_to_is_not(file, tmp_path):
    (tmp_path / "link").symlink_to(file)
    assert "is a symbolic link, which may lead to files of others; try: give the path" in refused(
        Credentials.load, tmp_path / "link"
    )
    assert Credentials.load((tmp_path / "link").resolve()) == made()
    file.chmod(0o644)
    assert "chmod 600" in refused(Credentials.load, (tmp_path / "link").resolve())


# --- its folder ----------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path):
    """An identity as Kubernetes mounts a secret, and the folder of the mount."""
    mount = tmp_path / "secret"
    (mount / "..2026_11_18").mkdir(parents=True, mode=0o755)
    made().create(mount / "..2026_11_18" / "a.identity")
    (mount / "..data").symlink_to("..2026_11_18")
    (mount / "a.identity").symlink_to("..data/a.identity")
    return mount


def unsafe(path):
    """Returns the line that an identity is refused with for its folder or a link."""
    with pytest.raises(UnsafePath) as caught:
        Credentials.load(path)
    assert caught.value.code == "unsafe-path"
    return str(caught.value)


def test_keys_are_not_put_where_others_can_replace_them(tmp_path):
    tmp_path.chmod(0o770)
    with pytest.raises(UnsafePath, match="can be changed by others"):
        made().create(tmp_path / "a.identity")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["a.identity", "..data/a.identity", "..2026_11_18/a.identity"])
def test_the_links_of_a_kubernetes_secret_are_followed(secret, path):
    assert Credentials.load(secret / path) == made()


@pytest.mark.parametrize("folder", ["", "..2026_11_18"])
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_every_folder_that_links_lead_through_is_closed_to_others(secret, folder, mode):
    (secret / folder).chmod(mode)
    assert f"{secret / folder} can be changed by others" in unsafe(secret / "a.identity")


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("mode", [0o1777, 0o3777, 0o777])
def test_a_mount_that_nobody_can_write_to_may_seem_open_to_all(secret, mode, readonly, monkeypatch):
    """Kubernetes mounts secrets so: read-only, and with a sticky bit. Either alone is not enough."""
    flags = os.statvfs(secret).f_flag & ~os.ST_RDONLY | (os.ST_RDONLY if readonly else 0)
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_flag=flags))
    secret.chmod(mode)
    if readonly and mode & stat.S_ISVTX:
        assert Credentials.load(secret / "a.identity") == made()
    else:
        assert "can be changed by others" in unsafe(secret / "a.identity")


@pytest.mark.parametrize("link", ["..data", "a.identity"])
@pytest.mark.parametrize("target", ["{elsewhere}", "../elsewhere", "..data/../../elsewhere"])
def test_links_that_lead_out_of_the_folder_are_refused(secret, link, target):
    """A link of a secret stays in its mount."""
    elsewhere = secret.parent / "elsewhere"
    (secret / "..2026_11_18").rename(elsewhere)
    (secret / link).unlink()
    end = "/a.identity" if link == "a.identity" else ""
    (secret / link).symlink_to(target.format(elsewhere=elsewhere) + end)
    if link == "a.identity":
        (secret / "..data").unlink()
        (secret / "..data").symlink_to(".")
    assert "is a symbolic link" in unsafe(secret / "a.identity")


def test_links_in_a_circle_are_refused(secret):
    (secret / "..data").unlink()
    (secret / "..data").symlink_to("..data")
    assert "too many symbolic links" in unsafe(secret / "a.identity")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links to somebody else")
@pytest.mark.parametrize("link", ["..data", "a.identity"])
def test_a_link_of_somebody_else_is_refused(secret, link):
    os.chown(secret / link, 12345, -1, follow_symlinks=False)
    assert "is a symbolic link" in unsafe(secret / "a.identity")


def test_what_a_secret_leads_to_is_for_its_owner_alone(secret):
    (secret / "..2026_11_18" / "a.identity").chmod(0o440)
    assert "can be read by others" in refused(Credentials.load, secret / "a.identity")


# --- its owner -----------------------------------------------------------------------------------------------------


def test_what_is_not_ours_is_refused(file, monkeypatch):
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)  # what root owns, everybody accepts
    else:
        monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert "belongs to another user" in refused(Credentials.load, file)


def test_what_is_not_ours_to_read_is_refused(file, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    assert "cannot be read by this user; try: run this as its owner" in refused(Credentials.load, file)


def test_what_is_no_file_is_refused(tmp_path):
    assert "tacit keygen" in refused(Credentials.load, tmp_path / "none.identity")
    assert "is not a file" in refused(Credentials.load, tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "is not a file" in refused(Credentials.load, tmp_path / "pipe")  # and nobody waits for what comes out of it
    assert "is not a file" in refused(Credentials.load, "/dev/zero")
    (tmp_path / "noise").write_bytes(b"\xff\xfe" * 50)
    (tmp_path / "long").write_bytes(b"#" * 200_000)
    for name in ("noise", "long"):
        (tmp_path / name).chmod(0o600)
        assert "is not a file that tacit keygen made" in refused(Credentials.load, tmp_path / name)


@pytest.mark.parametrize("lines", range(6))
def test_what_was_cut_short_is_refused_with_what_to_do(file, lines):
    text = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(text[:lines]), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Credentials.load(file)
    assert all("is missing; try: restore the file" in problem for problem in caught.value.problems)


# --- secrets -------------------------------------------------------------------------------------------------------


def test_no_secret_is_printed_or_pickled(file):
    mine = Credentials.load(file)
    shown = repr(mine) + str(mine) + repr(mine.key_pem)
    for secret in secrets_of(mine):
        assert repr(secret.reveal()) not in shown
        assert secret.reveal().hex() not in shown
    assert shown.count("Secret(…)") == 7
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(mine)


@pytest.mark.parametrize("key", ["signing_key", "channel_key", "tls_key"])
@pytest.mark.parametrize("change", [lambda value: f'"{value}!"', lambda value: f'["{value}"]', lambda value: value])
def test_no_secret_is_shown_where_it_is_wrong(file, key, change):
    text = file.read_text(encoding="utf-8")
    value = re.search(rf'^{key} = "(.*)"$', text, re.MULTILINE)[1]
    file.write_text(text.replace(f'"{value}"', change(value)), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Credentials.load(file)
    assert value[:8] not in str(caught.value)


def test_cards_have_no_secret_in_them(card):
    text = card.read_bytes() + b"".join(bytes(each, "utf-8") for each in repr(Card.load(card)))
    for secret in secrets_of(made()):
        assert msgspec.json.encode(secret.reveal())[1:-2] not in text


# --- changed files -------------------------------------------------------------------------------------------------


def flips(text):
    """Yields a text with one bit changed in every letter of its values, or in every fifth of long ones."""
    start = text.index("\n") + 1  # the first line is a comment
    for found in re.finditer(r'"(.*)"', text[start:]):
        for place in range(start + found.start(1), start + found.end(1), 1 if len(found[1]) < 100 else 5):
            old = text[place]
            new = BASE64[BASE64.index(old) ^ 1] if old in BASE64 else chr(ord(old) ^ 1)
            yield text[:place] + new + text[place + 1 :]


def public(credentials):
    return credentials.member, credentials.certificate, credentials.tls


def test_no_bit_of_an_identity_can_change_unnoticed(file):
    noticed = 0
    for text in flips(file.read_text(encoding="utf-8")):
        file.write_text(text, encoding="utf-8")
        try:
            # The last letter of base64 has bits that say nothing, and so has a key of X25519.
            assert public(Credentials.load(file)) == public(made())
        except ConfigError:
            noticed += 1
    assert noticed > 200


def test_no_bit_of_a_card_can_change_unnoticed(card):
    noticed = 0
    for text in flips(card.read_text(encoding="utf-8")):
        card.write_text(text, encoding="utf-8")
        try:
            assert Card.load(card) == made().card("localhost:7400")
        except ConfigError:
            noticed += 1
    assert noticed > 250


@pytest.mark.parametrize("field", ["name", "address", "verify_key", "channel_key", "certificate", "signature"])
def test_nothing_of_one_card_fits_another(card, field):
    other = made("b").card("localhost:7401")
    mixed = msgspec.structs.replace(Card.load(card), **{field: getattr(other, field)})
    mixed.save(card)
    whose = "b" if field == "name" else "a"
    assert f"the card of {whose} is not as {whose} signed it; try: ask {whose} for its card again" in refused(
        Card.load, card
    )


def test_who_signs_a_card_with_somebody_elses_certificate_is_found_out(card):
    """A signature shows only that the key's owner signed the content."""
    mine = made()
    stolen = Credentials(mine.identity, mine.tls, made("b").certificate)
    stolen.card("localhost:7400").save(card)
    assert "the certificate of a does not go with its keys: it is somebody else's" in refused(Card.load, card)
    under_my_name = Credentials(mine.identity, mine.tls, made("a", seed=1).certificate)
    under_my_name.card("localhost:7400").save(card)
    assert "it is somebody else's" in refused(Card.load, card)


@pytest.mark.parametrize("key", [bytes(32), b"", bytes(31), b"\x01" + bytes(31)])
def test_a_key_that_nobody_can_use_is_told(card, key):
    msgspec.structs.replace(Card.load(card), channel_key=key).save(card)
    assert "the keys of a cannot be used; try: ask a for its card again" in refused(Card.load, card)


def test_an_unreadable_key_is_told_with_its_line(card):
    card.write_text(card.read_text(encoding="utf-8").replace('verify_key = "', 'verify_key = "!'), encoding="utf-8")
    assert f"{card}, line 4: verify_key = '!" in refused(Card.load, card)


# --- one file for another ------------------------------------------------------------------------------------------


def test_an_identity_is_no_card_and_its_owner_is_warned(file):
    problem = refused(Card.load, file)
    assert "contains secret keys, which must stay with their party" in problem
    assert "make new keys: tacit keygen" in problem


def test_a_private_key_is_no_card(tmp_path):
    (tmp_path / "a.card").write_bytes(made().key_pem.reveal())
    assert "contains secret keys" in refused(Card.load, tmp_path / "a.card")


@pytest.mark.parametrize("field", ["verify_key", "channel_key"])
def test_a_private_key_in_the_place_of_a_public_one_is_noticed(card, field):
    secret = made().identity.signing if field == "verify_key" else made().identity.channel
    msgspec.structs.replace(Card.load(card), **{field: secret.reveal()}).save(card)
    assert "is not as a signed it" in refused(Card.load, card)


def test_a_card_is_no_identity(card):
    card.chmod(0o600)
    assert "is a card, which is public" in refused(Credentials.load, card)


def test_an_unknown_key_is_told_with_its_line_and_the_nearest(card):
    text = card.read_text(encoding="utf-8").replace("channel_key", "chanel_key")
    card.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Card.load(card)
    assert f"{card}, line 5: there is no chanel_key; did you mean 'channel_key'?" in caught.value.problems


def test_what_others_wrote_does_not_reach_the_terminal_as_it_is(card):
    evil = "\\u001b[2J\\u202e"
    for text in (f'"{evil}" = 1', f'address = "{evil}"', f"'''{evil}''' = 1", f'name = ["{evil}"]'):
        card.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            Card.load(card)
        assert all(problem.isprintable() for problem in caught.value.problems)


# --- names, addresses, fingerprints --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["Spital Zürich ☤", "日本赤十字社医療センター", "St. Mary's/North", SERVER, "x" * 64, "[a]", '"']
)
def test_a_party_may_be_called_anything_that_prints(tmp_path, name):
    mine = made(name)
    mine.create(tmp_path / "identity")
    assert Credentials.load(tmp_path / "identity") == mine
    mine.card("localhost:7400").save(tmp_path / "card")
    assert Card.load(tmp_path / "card").name == name


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 65, "ü" * 33, "onlooker", "\x1b[2J", "\udcff"])
def test_nobody_is_called_what_does_not_print(name):
    with pytest.raises(ConfigError):
        made(name)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("localhost:7400", ("localhost", 7400)),
        ("Tacit.Hospital-A.example.:1", ("tacit.hospital-a.example", 1)),
        ("192.0.2.7:65535", ("192.0.2.7", 65535)),
        ("[2001:DB8:0::1]:7400", ("2001:db8::1", 7400)),
        ("my_host:80", ("my_host", 80)),
    ],
)
def test_addresses_are_hosts_and_ports(address, parts):
    assert host_and_port(address) == parts
    assert made().card(address).address == address


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("localhost", "with a port from 1 to 65535"),
        ("localhost:", "with a port"),
        ("localhost:0", "with a port"),
        ("localhost:65536", "with a port"),
        ("localhost:７４００", "with a port"),
        (":7400", "is no address"),
        ("::1:7400", "IPv6 in brackets"),
        ("[::1:7400", "IPv6 in brackets"),
        ("[localhost]:7400", "is no address"),
        ("256.1.1.1:7400", "is no address"),
        ("http://a.example:7400", "IPv6 in brackets"),
        ("spitäler.example:7400", "xn--"),
        ("a b:7400", "is no address"),
        ("-a.example:7400", "is no address"),
        ("a..example:7400", "is no address"),
        ("0.0.0.0:7400", "every address of a machine"),
        ("[::]:7400", "every address of a machine"),
        ("localhost:7400\n", "is no address"),
    ],
)
def test_what_is_no_address_is_told(address, said):
    with pytest.raises(ConfigError) as caught:
        made().card(address)
    assert said in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_fingerprint_is_eight_groups_of_four_digits_that_stand_for_all_keys_and_the_name():
    card = made().card("localhost:7400")
    assert re.fullmatch(r"\d{4}( \d{4}){7}", card.fingerprint)
    assert made().card("elsewhere:1").fingerprint == card.fingerprint
    others = [
        msgspec.structs.replace(card, **{field: getattr(made("b").card("localhost:7401"), field)}).fingerprint
        for field in ("name", "verify_key", "channel_key", "certificate")
    ]
    assert len({card.fingerprint, *others}) == 5


def test_the_host_of_a_certificate_is_one_that_dns_could_have_and_has_not():
    hosts = {tls_host(made(name).member) for name in ("a", "日本", SERVER)}
    assert len(hosts) == 3
    assert all(re.fullmatch(r"[0-9a-f]{40}\.tacit\.invalid", host) for host in hosts)


# --- certificates --------------------------------------------------------------------------------------------------


def test_a_certificate_vouches_for_nobody_else_and_does_not_run_out():
    found = x509.load_der_x509_certificate(made().certificate)
    assert isinstance(found.public_key().curve, ec.SECP256R1)
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not found.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert (found.not_valid_before_utc.year, found.not_valid_after_utc.year) == (1970, 9999)


@pytest.fixture
def service():
    """Calls a, which accepts calls from a, b and c; returns the certificate that a saw, or the caller's error."""
    grpc = pytest.importorskip("grpc")
    people = {name: made(name) for name in ("a", "b", "c")}

    class Seen(grpc.GenericRpcHandler):
        def service(self, details):
            del details
            return grpc.unary_unary_rpc_method_handler(
                lambda _, context: context.auth_context()["x509_pem_cert"][0],
            )

    mine = people["a"]
    roots = b"".join(each.certificate_pem for each in people.values())
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Seen()])
    shown = grpc.ssl_server_credentials([(mine.key_pem.reveal(), mine.certificate_pem)], roots, True)
    port = server.add_secure_port("127.0.0.1:0", shown)
    server.start()

    def call(key, certificate, known=mine.certificate_pem, host=None):
        options = [("grpc.ssl_target_name_override", host or tls_host(mine.member))]
        credentials = grpc.ssl_channel_credentials(known, key.reveal(), certificate)
        with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
            try:
                return channel.unary_unary("/tacit/seen")(b"", timeout=20)
            except grpc.RpcError as error:
                return error.code()

    yield call
    server.stop(0).wait()


def test_members_know_each_other_and_nobody_else_by_their_certificates(service):
    grpc = pytest.importorskip("grpc")
    b, stranger = made("b"), made("b", seed=1)
    assert service(b.key_pem, b.certificate_pem) == b.certificate_pem
    lost = grpc.StatusCode.UNAVAILABLE
    assert service(stranger.key_pem, stranger.certificate_pem) == lost
    assert service(b.key_pem, b.certificate_pem, known=made("c").certificate_pem) == lost
    assert service(b.key_pem, b.certificate_pem, host=tls_host(made("c").member)) == lost


def test_no_member_can_issue_a_certificate_in_anothers_name(service):
    grpc = pytest.importorskip("grpc")
    b, c = made("b"), made("c")
    issuer = x509.load_der_x509_certificate(b.certificate)
    key = ec.derive_private_key(int.from_bytes(b.tls.reveal()), ec.SECP256R1())
    forged = (
        x509.CertificateBuilder(
            issuer.subject,
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "c")]),
            key.public_key(),
            7,
            issuer.not_valid_before_utc,
            issuer.not_valid_after_utc,
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(tls_host(c.member))]), critical=False)
        .sign(key, SHA256())
        .public_bytes(Encoding.DER)
    )
    for shown in (certificate_pem(forged), certificate_pem(forged) + b.certificate_pem):
        assert service(b.key_pem, shown) == grpc.StatusCode.UNAVAILABLE


def test_the_key_of_another_certificate_is_noticed(tmp_path):
    mine = made()
    Credentials(mine.identity, made("b").tls, mine.certificate).create(tmp_path / "a.identity")
    assert "its keys do not match" in refused(Credentials.load, tmp_path / "a.identity")
    Credentials(mine.identity, Secret(bytes(32)), mine.certificate).create(Path(tmp_path / "b.identity"))
    assert "its keys do not match" in refused(Credentials.load, tmp_path / "b.identity")
