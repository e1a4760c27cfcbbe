"""Partitions: which client holds which samples, as a table of row numbers.

======================  ==========================================================  ==================
word                    what differs between clients                                complete, disjoint
======================  ==========================================================  ==================
``iid``                 nothing but chance                                          yes
``shards``              labels: a few runs of the label-sorted data each            yes
``classes``             labels: exactly S classes each, the (N, S) split            yes
``dirichlet``           labels: proportions of each class from Dir(alpha)           yes
``quantity``            sizes only: proportions from Dir(alpha)                     yes
``natural``             the writer, the hospital, ...                               yes, or a subset
``vertical``            the features: everybody holds a part of every sample        yes, of M*N rows
======================  ==========================================================  ==================

Tables live on the CPU, where draws are made. Each takes ``8 * K * n_max`` bytes, whatever the samples
weigh: 1,000 clients of 60 samples take 0.5 MB, but one client of 50,000 among 1,000 costs 400 MB.
"""

from fedbook.partition.horizontal import classes, dirichlet, iid, natural, quantity, shards
from fedbook.partition.split import split_clients
from fedbook.partition.table import Partition
from fedbook.partition.vertical import parties, quadrants, stack_parties, views
from fedbook.partition.words import PARTITIONS, by_name, options_of

__all__ = [
    "PARTITIONS",
    "Partition",
    "by_name",
    "classes",
    "dirichlet",
    "iid",
    "natural",
    "options_of",
    "parties",
    "quadrants",
    "quantity",
    "shards",
    "split_clients",
    "stack_parties",
    "views",
]
