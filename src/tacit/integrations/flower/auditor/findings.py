"""Typed findings on a Flower app: what its server learns, and where each value is from.

`render.py` makes the sentences. Decisions read these types alone.
"""

from dataclasses import dataclass
from enum import StrEnum


class AppCode(StrEnum):
    """Code of a finding on an app. The values are stable, also in JSON."""

    NOT_READ = "not_read"
    """Values could not be read, so that the other findings may not hold."""
    MODELS_SEEN = "models_seen"
    """The server sees every model that a node sends."""
    HIDDEN_BY_TACIT = "hidden_by_tacit"
    """With Tacit the server would see the average alone."""
    SUMS_SEEN = "sums_seen"
    """The server sees the sum of each round."""
    DIFFERENCES_EXPOSE = "differences_expose"
    """Differences of the sums of rounds expose nodes."""
    SUMS_EXPOSE_NOBODY = "sums_expose_nobody"
    DROPOUT_WOULD_EXPOSE = "dropout_would_expose"
    """One dropout between two rounds would expose a node; dropouts were not analysed."""
    COLLUSION = "collusion"
    """A number of nodes and the server recover the model of another node."""
    LOW_THRESHOLD = "low_threshold"
    """A malicious server gets both secrets of a node without colluding nodes."""
    GRAPH_CAN_SPLIT = "graph_can_split"
    """Dropouts can split the mask graph, and the round continues."""
    INITIAL_MODEL_REQUEST = "initial_model_request"
    """A workflow asks a node for its model before the first round, or may do so."""
    KEYS_NOT_SIGNED = "keys_not_signed"
    """The verdict holds for an honest-but-curious server only."""
    METRICS_SEEN = "metrics_seen"
    """The server sees the metrics of each node, which no mask hides."""
    FLOWER_NOISE_IGNORED = "flower_noise_ignored"
    """Flower's own differential privacy was not analysed."""
    RETURN_DELAYED = "return_delayed"
    """A node that drops out was taken to miss the next round too."""
    MESSAGES_CARRIED = "messages_carried"
    """The server carries sealed messages."""
    SAMPLING_AS_DROPOUTS = "sampling_as_dropouts"
    """Nodes that the strategy does not ask were analysed as dropouts."""
    NODES_NOT_ANALYSED = "nodes_not_analysed"
    """What nodes learn was not analysed, because the server alone exposes some of them."""
    OVERRIDES_IGNORED = "overrides_ignored"
    """The caller gave values that this kind of app does not have."""


class OriginCode(StrEnum):
    """Code of where a value is from, or of why it cannot be read. The values are stable, also in JSON."""

    LINE = "line"
    EXPRESSION = "expression"
    CONFIG = "config"
    PYPROJECT = "pyproject"
    ROSTER = "roster"
    CALLER = "caller"
    FLOWER_DEFAULT = "flower_default"
    ALL_SAMPLED = "all_sampled"
    NOT_IN_APP = "not_in_app"
    NOT_GIVEN = "not_given"
    MAY_BE_SET_LATER = "may_be_set_later"
    SET_LATER = "set_later"
    SEVERAL_STARTS = "several_starts"
    REPEATED_CALL = "repeated_call"
    CONTEXT_UNKNOWN = "context_unknown"
    MOD_NOT_FOUND = "mod_not_found"
    ROSTER_UNREADABLE = "roster_unreadable"
    ROSTER_NOT_USED = "roster_not_used"
    ROSTER_CREATED = "roster_created"
    ROSTER_UNKNOWN = "roster_unknown"
    CONFIG_CHANGED = "config_changed"
    OTHER_ROSTER = "other_roster"
    NAME_SET_IN_APP = "name_set_in_app"
    REFLECTION = "reflection"
    SERVER_UNKNOWN = "server_unknown"
    SERVER_HAS_STRATEGY = "server_has_strategy"
    SERVER_NOT_FOLLOWED = "server_not_followed"
    SERVER_USE_NOT_FOLLOWED = "server_use_not_followed"
    NO_START = "no_start"
    OTHER_DECORATOR = "other_decorator"
    BOUND_AGAIN = "bound_again"
    GRID_CALL = "grid_call"
    GRID_NOT_FOLLOWED = "grid_not_followed"
    GRID_GIVEN_AWAY = "grid_given_away"
    WORKFLOW_UNKNOWN = "workflow_unknown"
    NOT_SECAGG = "not_secagg"
    METRICS = "metrics"


@dataclass(frozen=True)
class ValueOrigin:
    """Where a value is from, or why it cannot be read."""

    code: OriginCode
    path: str = ""
    """File of the app; empty if the origin is not in its source."""
    line: int = 0
    name: str = ""
    """Name or expression that the code is about."""
    parts: tuple["ValueOrigin", ...] = ()
    """Origins that this one sums up."""


FLOWER_DEFAULT = ValueOrigin(OriginCode.FLOWER_DEFAULT)
