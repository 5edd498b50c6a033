"""Image classifiers: ResNet-50 and VGG-16."""

from __future__ import annotations

import torch
from torch import nn

from agents.profiling.training_step import TrainingStep

NUM_CLASSES = 1000
IMAGE_SIZE = 224


class Bottleneck(nn.Module):
    """Residual block 1x1, 3x3, 1x1 of He et al. 2016; the stride is in the 3x3 convolution, as is usual today."""

    EXPANSION = 4

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = channels * self.EXPANSION
        self.branch = nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels_out, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) to (B, C', H', W')."""
        return torch.relu_(self.branch(x).add_(self.shortcut(x)))


class ResNet50(nn.Module):
    """ResNet-50 (He et al. 2016): 25.557 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        channels_in = 64
        for stage, num_blocks in enumerate((3, 4, 6, 3)):
            channels = 64 * 2**stage
            for block in range(num_blocks):
                layers.append(Bottleneck(channels_in, channels, 2 if stage > 0 and block == 0 else 1))
                channels_in = channels * Bottleneck.EXPANSION
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(channels_in, NUM_CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) images to (B, 1000) scores."""
        scores: torch.Tensor = self.classifier(self.features(images))
        return scores


class Vgg16(nn.Module):
    """VGG-16, configuration D of Simonyan and Zisserman 2015: 138.358 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels_in = 3
        for num_layers, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
            for _ in range(num_layers):
                layers += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU(inplace=True)]
                channels_in = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, NUM_CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, 3, 224, 224) images to (B, 1000) scores."""
        scores: torch.Tensor = self.classifier(self.features(images))
        return scores


def _classification(model: type[nn.Module], batch_size: int) -> TrainingStep:
    with torch.device("meta"):
        images = torch.empty(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE)
        labels = torch.empty(batch_size, dtype=torch.int64)
        return TrainingStep(model(), images, target=labels)


def resnet50(batch_size: int = 64) -> TrainingStep:
    """ResNet-50 on ImageNet, 224 x 224 pixels."""
    return _classification(ResNet50, batch_size)


def vgg16(batch_size: int = 32) -> TrainingStep:
    """VGG-16 on ImageNet, 224 x 224 pixels."""
    return _classification(Vgg16, batch_size)
