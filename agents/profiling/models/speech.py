"""Speech recognition after Deep Speech."""

from __future__ import annotations

import torch
from torch import nn

from agents.profiling.training_step import TrainingStep

NUM_FEATURES = 26
CONTEXT = 9
NUM_CHARACTERS = 29


class DeepSpeech(nn.Module):
    """Deep Speech (Hannun et al. 2014) with an LSTM layer in place of the bidirectional one: 47.2 million parameters.

    Three dense layers on each frame with its neighbours, one LSTM over time, two dense layers; 2048 units each.
    """

    def __init__(self, units: int = 2048) -> None:
        super().__init__()
        widths = (NUM_FEATURES * (2 * CONTEXT + 1), units, units, units)
        self.front = nn.Sequential(
            *(
                layer
                for i in range(3)
                for layer in (nn.Linear(widths[i], widths[i + 1]), nn.Hardtanh(0.0, 20.0), nn.Dropout(0.05))
            )
        )
        self.recurrent = nn.LSTM(units, units)
        self.back = nn.Sequential(
            nn.Linear(units, units), nn.Hardtanh(0.0, 20.0), nn.Dropout(0.05), nn.Linear(units, NUM_CHARACTERS)
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """(B, T, 494) frames to (B, T, 29) scores of characters."""
        hidden, _ = self.recurrent(self.front(frames).transpose(0, 1))
        scores: torch.Tensor = self.back(hidden).transpose(0, 1)
        return scores


def deep_speech(batch_size: int = 32, frames: int = 600) -> TrainingStep:
    """Deep Speech on utterances of 12 s in frames of 20 ms.

    The loss is a cross-entropy per frame in place of CTC, whose cost depends on the transcripts; with 29 characters
    either is small beside the layers.
    """
    with torch.device("meta"):
        features = torch.empty(batch_size, frames, NUM_FEATURES * (2 * CONTEXT + 1))
        characters = torch.empty(batch_size, frames, dtype=torch.int64)
        return TrainingStep(DeepSpeech(), features, target=characters)
