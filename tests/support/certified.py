"""Federations whose parties have certificates that expire: issued by themselves, or by authorities."""

from dataclasses import replace

import msgspec

from support.authorities import Authority
from support.federations import Made
from tacit.core.entropy import SeededEntropy
from tacit.crypto.tls_anchor import TlsProof
from tacit.net.membership.identity import TLS_FOLDER, Credentials
from tacit.net.membership.roster import Deadlines

ISSUED, AUTHORITY, PINNED = TlsProof.ISSUED, TlsProof.AUTHORITY, TlsProof.PINNED


def certified(folder, protocol, parties, proofs, deadlines=None, listening=None, **options):
    """Returns a federation whose parties prove themselves in different ways, by name or all in one way.

    Parties with an authority have one each, in `made.authorities`, and a certificate of it on disk.
    """
    made = Made.of(folder, protocol, parties, **options)
    made.authorities = {}
    for name in made.everyone:
        proof = proofs.get(name, PINNED) if isinstance(proofs, dict) else proofs
        entropy, issuer, host = SeededEntropy("certified", str(folder), name), b"", ""
        if proof is AUTHORITY:
            made.authorities[name] = Authority(f"authority of {name}")
            issuer, host = made.authorities[name].der, f"{name}.example"
        mine = Credentials.generate(name, entropy, proof, issuer, host)
        made.credentials[name] = mine = replace(mine, tls_folder=folder / f"{name}{TLS_FOLDER}")
        if proof is AUTHORITY:
            made.authorities[name].issue(host).write(mine.tls_folder)
    cards = [
        made.credentials[card.name].card(card.address if listening is None or card.name in listening else "")
        for card in made.roster.parties
    ]
    deadlines = deadlines or Deadlines(phase=20.0, start=20.0, connect=5.0)
    made.roster = msgspec.structs.replace(made.roster, parties=tuple(cards), deadlines=deadlines)
    return made
