"""The published numbers of Hetero-SSFL, for the notebook of results.

Source: Makhija, Ho, Ghosh 2022, Tables 1 to 4: test accuracy in percent of a linear probe, ± as printed.
"""

from __future__ import annotations

import io

import pandas as pd

_TABLES = """
table,data,clients,method,accuracy,deviation
1,CIFAR-10,5,FedBYOL,78.1,1.1
1,CIFAR-10,5,FedSimSiam,76.7,1.5
1,CIFAR-10,5,FedU,79.6,0.5
1,CIFAR-10,5,FedEMA,81.2,1.6
1,CIFAR-10,5,Hetero-SSFL,90.29,0.3
1,CIFAR-10,5,FedAvg with labels,68.5,1.7
1,CIFAR-10,5,central BYOL,94.3,0.2
1,CIFAR-100,5,FedBYOL,58.1,0.3
1,CIFAR-100,5,FedSimSiam,53.2,0.16
1,CIFAR-100,5,FedU,58.9,0.12
1,CIFAR-100,5,FedEMA,61.8,0.31
1,CIFAR-100,5,Hetero-SSFL,67.7,0.21
1,CIFAR-100,5,FedAvg with labels,44.29,1.34
1,CIFAR-100,5,central BYOL,74.2,0.67
1,Tiny-ImageNet,5,FedBYOL,31.8,2.0
1,Tiny-ImageNet,5,FedSimSiam,29.1,1.2
1,Tiny-ImageNet,5,FedU,58.23,2.3
1,Tiny-ImageNet,5,FedEMA,58.2,3.1
1,Tiny-ImageNet,5,Hetero-SSFL,61.5,1.8
1,Tiny-ImageNet,5,FedAvg with labels,27.2,3.2
1,Tiny-ImageNet,5,central BYOL,78.7,1.3
2,CIFAR-10,5,FedBYOL,82.24,0.8
2,CIFAR-10,5,FedSimSiam,80.4,1.2
2,CIFAR-10,5,FedU,81.6,1.8
2,CIFAR-10,5,FedEMA,85.9,0.3
2,CIFAR-10,5,Hetero-SSFL,88.5,1.3
2,CIFAR-100,5,FedBYOL,23.8,0.14
2,CIFAR-100,5,FedSimSiam,22.19,1.8
2,CIFAR-100,5,FedU,20.4,0.91
2,CIFAR-100,5,FedEMA,25.7,0.4
2,CIFAR-100,5,Hetero-SSFL,34.8,0.7
3,CIFAR-100,5,FedU,58.9,0.12
3,CIFAR-100,20,FedU,48.29,1.8
3,CIFAR-100,100,FedU,41.1,2.3
3,CIFAR-100,5,FedEMA,61.8,0.31
3,CIFAR-100,20,FedEMA,52.5,0.8
3,CIFAR-100,100,FedEMA,42.0,2.7
3,CIFAR-100,5,Hetero-SSFL,67.7,0.21
3,CIFAR-100,20,Hetero-SSFL,57.5,0.9
3,CIFAR-100,100,Hetero-SSFL,43.3,1.9
"""
# the data set is not named; no deviations are printed
_TABLE_4 = """
architecture,local SSL,Hetero-SSFL
ResNet-18,71.9,85.4
ResNet-34,77.8,93.7
"""


def published(table: int) -> pd.DataFrame:
    """Table 1 (disjoint classes), 2 (equal classes) or 3 (clients): data, clients, method, accuracy, deviation."""
    rows = pd.read_csv(io.StringIO(_TABLES))
    return rows[rows["table"] == table].drop(columns="table").reset_index(drop=True)


def published_by_architecture() -> pd.DataFrame:
    """Table 4: mean accuracy of local SSL and Hetero-SSFL, a row each architecture."""
    return pd.read_csv(io.StringIO(_TABLE_4), index_col=0)
