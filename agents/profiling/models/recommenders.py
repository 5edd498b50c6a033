"""Recommenders: DLRM with the tables of Criteo's terabyte data set, and DSSM."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from agents.profiling.training_step import TrainingStep

# Categories per feature in the MLPerf setting (at most 40 million hashed rows each); 187,767,399 rows in all.
CRITEO_TABLES = (
    *(39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10),
    *(2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36),
)
NUM_DENSE = 13


def _dense_layers(*widths: int) -> list[nn.Module]:
    return [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]


class Dlrm(nn.Module):
    """DLRM (Naumov et al. 2019) as in MLPerf Training: 26 tables of width 128, pairwise dot products."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width, sparse=True) for rows in CRITEO_TABLES)
        self.bottom = nn.Sequential(*_dense_layers(NUM_DENSE, 512, 256, width))
        num_vectors = len(CRITEO_TABLES) + 1
        num_pairs = num_vectors * (num_vectors - 1) // 2
        self.top = nn.Sequential(*_dense_layers(width + num_pairs, 1024, 1024, 512, 256), nn.Linear(256, 1))
        rows, columns = torch.tril_indices(num_vectors, num_vectors, -1, device="cpu")
        self.pairs = (rows.tolist(), columns.tolist())

    def forward(self, dense: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """(B, 13) numbers and (B, 26) categories to (B,) scores."""
        bottom = self.bottom(dense)
        looked_up = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([bottom, *looked_up], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        scores: torch.Tensor = self.top(torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], dim=1))
        return scores.squeeze(1)


class Dssm(nn.Module):
    """DSSM (Huang et al. 2013): letter trigrams to 300, 300 and 128 units, for query and documents alike."""

    def __init__(self, trigrams: int = 30000) -> None:
        super().__init__()
        self.query = self._tower(trigrams)
        self.document = self._tower(trigrams)

    @staticmethod
    def _tower(trigrams: int) -> nn.Sequential:
        first = nn.EmbeddingBag(trigrams, 300, mode="sum", sparse=True)
        return nn.Sequential(first, nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 128), nn.Tanh())

    def forward(self, query: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        """(B, L) trigrams of queries and (B, 5, M) of one clicked and four other documents to (B, 5) scores."""
        towers = self.document(documents.flatten(0, 1)).unflatten(0, documents.shape[:2])
        return 10.0 * F.cosine_similarity(self.query(query)[:, None], towers, dim=-1)


def dlrm(batch_size: int = 8192) -> TrainingStep:
    """DLRM on Criteo's terabyte data set."""
    with torch.device("meta"):
        inputs = (
            torch.empty(batch_size, NUM_DENSE),
            torch.empty(batch_size, len(CRITEO_TABLES), dtype=torch.int64),
        )
        clicks = torch.empty(batch_size)
        return TrainingStep(Dlrm(), inputs, F.binary_cross_entropy_with_logits, clicks)


def dssm(batch_size: int = 1024) -> TrainingStep:
    """DSSM on queries of 15 and titles of 40 letter trigrams."""
    with torch.device("meta"):
        query = torch.empty(batch_size, 15, dtype=torch.int64)
        documents = torch.empty(batch_size, 5, 40, dtype=torch.int64)
        # The clicked document comes first.
        return TrainingStep(Dssm(), (query, documents), target=torch.empty(batch_size, dtype=torch.int64))
