"""Secure aggregation with a server, sampling, signatures and dropouts (paper 003, Section 3).

| round of the paper | who | sends | to |
| --- | --- | --- | --- |
| AdvertiseKeys | user u ∈ everyone | `AdvertiseKeys`: c_u^PK, s_u^PK, the lineage of u's model, signature | server |
| | server | `KeyList`: U2 and its keys | users of U2 |
| | | or, if too few have adopted the last sum, `LastSum`: that sum again | everyone |
| ShareKeys | user u ∈ U2 | `ShareKeys`: sealed shares of s_u^SK and b_u | server |
| | server | `SealedShares`: U3 and the shares for this user | users of U3 |
| MaskedInput | user u ∈ U3 | `MaskedInput`: y_u, and a tag over U2 and U3 for each neighbour | server |
| | server | `Chosen`: U5 ⊆ U4, and the tags of U5's users | users of U4 |
| ConsistencyCheck | user u ∈ U4 | `Consent`: signature over U2, U3 and U5 | server |
| | server | `Consents`: as many signatures of U6's users as a user requires | users of U6 |
| Unmasking | user u ∈ U6 | `Unmask`: a share of b_v for v ∈ U5, of s_v^SK for v ∈ U3 \\ U5 | server |
| | server | `Sum` | everyone |

**Who learns what.** The server and everyone on the roster learn the sum over U5 of the weighted vectors, the sum of
the weights, and the members of U5. The server also learns who dropped out, and when. It learns no sum of fewer users,
and no two sums with an honest user in common. That holds even if it is malicious and colludes with up to
2·threshold − holders − 1 users. In a complete graph, all users that may be asked are holders; for a sparse graph see
`designs.circle.secure_degree`. Nobody checks that the announced sum is the right one. But parties that mask together
have adopted the same sums since their first round (`core.lineage`), also across changes of the roster, restarts and
failed rounds.

**Faults.** Users may drop out at every step. The round ends with the average over U5 if at least `threshold` holders of
each user's shares stay to the end. Otherwise it aborts and nothing is unmasked. A party that missed the last sum is
behind: it is left out of one round, adopts the sum of that round, and takes part again. If too few other parties are
left, the parties that are behind are sent the last sum, and the round ends without an average for the others.

**Deviations.**
- The text of Unmasking mixes up U4, U5, U6, and u, v. The order here is that of Bonawitz et al. 2017, on which the
  paper builds.
- Signatures also cover session, round and name, so an advertisement or consent is valid in one round only.
- *The paper signs U5 alone, and does not bind the U2 and U3 that the server sent to users.* Here the keys of seals and
  masks depend on U2. A masked input carries its sender's tag over U2 and U3 for each neighbour. No user gives a share
  of b_v unless v's tag is for the same sets that the user received. Otherwise the server could make a user mask only
  with users that then "drop out".
- In a complete graph, `threshold` users must consent. In a sparse graph two thirds of U2 must, because the server could
  send other sets to the holders along a stretch of the circle. A user verifies a random sample of the consents, which
  the server cannot predict.
- At least `fewest` users, and more than half of all, must be asked and summed.
- Users sign the lineage of their model with their keys, and mask only with users of equal lineage. Otherwise a server
  that gives parties different models learns one party's update from the next sum. If contributions are changes to a
  model (`norm`), a party that missed one cannot catch up from the next, and raises an error.
- A sum is refused if its contributors cannot have produced its weight and entries.
- A user also sends a commitment to b_u, so a wrong share of it causes an abort and not a wrong sum.
- Weights are inside the masked vector. So the result is the weighted average, and no single weight is revealed.
- `neighbours=k`: users share masks and secrets only with neighbours in the graph of Bell et al. 2020, which every user
  computes from U2. A user refuses a U5 over which that graph could be disconnected (see `Circle.weakest`).
- `participation`: U2 and U5 may follow a policy of paper 002. A user refuses a U2 or U5 that its policy does not allow.
  Before it sends anything, it also refuses a U2 in which its batch differs from that of earlier rounds. Batches stay
  whole: if a member of a batch is missing, no member is in U5.
- The paper hides names behind pseudonyms to make the server sample at random. A server could still try many samples
  and pick one; use a policy.

**From the paper to the code.**

| paper | here |
| --- | --- |
| 003, Section 3: user u; server | `client`; `server` |
| m users; E, E₀; threshold Th | `parties`; `sampled`, `oversampled`; `threshold` |
| d_u^SK, d_u^PK; pseudo-identity | the identity keys of the roster; `sign`, `verify` |
| (c_u^SK, c_u^PK), (s_u^SK, s_u^PK); AdvertiseKeys | `c`, `s`; `AdvertiseKeys`, `KeyList` |
| U1, U2 ⊆ U1; SIG.ver of the list | `select_asked`; `check_asked`, `check_keys` |
| b_u; SS.share; e_{u,v} = AE.enc(KA.agree(c_u^SK, c_v^PK), …) | `b`; `share_secrets`; `ShareKeys`, `SealedShares` |
| MaskedInputCollection: p_{u,v}, Δ_{u,v}, p_u, y_u | `mask`, `pairwise`; `y` in `MaskedInput` |
| U3, U4, U5 ⊆ U4 | `SealedShares.members`; the senders of `MaskedInput`; `select_u5`, `Chosen` |
| ConsistencyCheck: σ'_u over U5 | `check_chosen`, `check_views`; `Consent` over U2, U3 and U5 |
| Unmasking: U6; AE.dec; shares of s_v^SK and b_v | `check_consents`, `open_shares`; `Unmask` |
| U7; SS.recon; O = Σ x_u | `Recovery`; `Sum` |
| 003, Algorithm 1, lines 7 and 8: S_t of E users, θ | `participation`, `sampled`; the average from which all continue |
| 002: selection policies; B, K, T | `Batches`, `Partition`, `Random`, `Family`; `family`, `per_round`, `privacy` |
| 002: selection by least frequency; F; C(T) | `Participation.ask`; `fairness_gap`; `Batches.expected_cardinality` |
"""

from tacit.core.protocol import Choice, Protocol
from tacit.protocols.secagg.aggregator import select_u5, server
from tacit.protocols.secagg.messages import (
    AdvertiseKeys,
    Chosen,
    Consent,
    Consents,
    KeyList,
    LastSum,
    MaskedInput,
    SealedShares,
    ShareKeys,
    Sum,
    Unmask,
)
from tacit.protocols.secagg.proposals import CLAIMS, propose
from tacit.protocols.secagg.settings import SecAggSettings, SecAggState
from tacit.protocols.secagg.user import client
from tacit.protocols.shapes import star

SECAGG = Protocol(
    name="secagg",
    summary="secure aggregation: the server learns the sum and nothing else",
    settings=SecAggSettings,
    messages=(
        AdvertiseKeys,
        KeyList,
        LastSum,
        ShareKeys,
        SealedShares,
        MaskedInput,
        Chosen,
        Consent,
        Consents,
        Unmask,
        Sum,
    ),
    party=client,
    server=server,
    state=SecAggState,
    version=2,
    choice=Choice(AdvertiseKeys, MaskedInput, star.select_asked, select_u5, Sum),
    claims=CLAIMS,
    common_result=True,
    propose=propose,
    attacks=("lies",),
)
