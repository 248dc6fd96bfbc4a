"""Attack of colluding receivers on a recorded round of `cesar`: a comparison of their sums at each entry.

It shares no code with the audit. It decrypts what the colluding nodes received with their own keys, and derives sums
from their averages.
"""

import numpy as np

from tacit.auditing.engine.recipes import read_input
from tacit.core.entropy import SeededEntropy
from tacit.core.suite import Secret
from tacit.crypto.keys import Identity, Keys
from tacit.crypto.suite import RealSuite
from tacit.protocols.cesar import Selection
from tacit.protocols.shapes.neighbourhood import read_selection, unpack_mask


def recover_entries(outcome, coalition):
    """Returns the entries of every other party that a coalition recovers from a recorded round; NaN for the rest."""
    transcript = outcome.transcript
    terms, entries = transcript.agreement.terms, transcript.agreement.entries
    parties = list(terms.parties)
    members = [parties.index(party) for party in coalition]
    own = {i: read_input(transcript, parties[i]) for i in members}
    sums, factors = [], []
    for k in members:
        selected = _read_selections(transcript, parties[k], terms, entries)
        weights = np.array(
            [float(terms.weight(i, k)) if terms.graph.has_edge(i, k) else 0.0 for i in range(len(parties))]
        )
        shared = selected & (selected.sum(axis=0) > terms.settings.masking)
        parts = weights[:, None] * shared
        sums.append(
            outcome.average[parties[k]] - own[k] * (1 - parts.sum(axis=0)) - sum(parts[i] * own[i] for i in members)
        )
        parts[members] = 0
        factors.append(parts)
    return _solve_entries(parties, members, np.array(sums), np.array(factors))


def _read_selections(transcript, party, terms, entries):
    """Returns the selections that a party received from its neighbours, one row per party."""
    signing, channel = transcript.holdings[party].identity
    keys = Keys(Identity(party, Secret(signing), Secret(channel)), transcript.agreement.roster)
    suite = RealSuite(keys, SeededEntropy(), transcript.ring())
    found = np.zeros((len(terms.parties), entries), bool)
    for address, message in transcript.open_messages(party):
        if isinstance(message, Selection) and address.to == party:
            bits = read_selection(suite, terms, message.indices, entries)
            found[terms.parties.place(address.sender)] = unpack_mask(bits, entries)
    return found


def _solve_entries(parties, members, sums, factors):
    """Returns the entries that follow from sums with given factors, by receiver, party and entry."""
    found = {party: np.full(sums.shape[1], np.nan) for i, party in enumerate(parties) if i not in members}
    packed = np.packbits((factors != 0).reshape(-1, sums.shape[1]), axis=0)
    _, first, kind = np.unique(packed, axis=1, return_index=True, return_inverse=True)
    for number, entry in enumerate(first):
        system = factors[:, :, entry]
        for i in np.flatnonzero(system.any(axis=0)):
            unit = np.eye(len(parties))[i]
            combination = np.linalg.lstsq(system.T, unit, rcond=None)[0]
            if np.allclose(combination @ system, unit, atol=1e-9):
                here = np.flatnonzero(kind.ravel() == number)
                found[parties[i]][here] = combination @ sums[:, here]
    return found
