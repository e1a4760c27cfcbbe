"""The federation core: who holds what, who takes part, what crosses, round after round."""

from fedbook.federation.checkpoint import CheckpointError
from fedbook.federation.cohort import Cohort, Everyone, FixedSize, Poisson
from fedbook.federation.exchange import Chain, Exchange, Local, Reply, Total, Uploads, drive, weighted_mean
from fedbook.federation.history import History, Record
from fedbook.federation.loop import BudgetSpent, Rounds, Turn, repeat, run
from fedbook.federation.population import Federation, Rows
from fedbook.federation.tree import tree_map
from fedbook.wire import Encoded, Wire

__all__ = [
    "BudgetSpent", "Chain", "CheckpointError", "Cohort", "Encoded", "Everyone", "Exchange", "Federation", "FixedSize",
    "History", "Local", "Poisson", "Record", "Reply", "Rounds", "Rows", "Total", "Turn", "Uploads", "Wire", "drive",
    "repeat", "run", "tree_map", "weighted_mean",
]  # fmt: skip
