"""Models as people write them in torch, small enough for a test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class WhisperSizes:
    """Whisper base; `rows` is the encoder's output length."""

    width: int = 512
    heads: int = 8
    layers: int = 6
    mels: int = 80
    rows: int = 1500
    cross_layers: int = 6


def half(value: float) -> float:
    return float(torch.tensor(value).half())


class WhisperBlock(nn.Module):
    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        # These two numbers are constants of the program: a package with fp16 constants holds them rounded.
        self.scale, epsilon = half((width // heads) ** -0.25), half(1e-5)
        self.attn_norm, self.mlp_norm = nn.LayerNorm(width, epsilon), nn.LayerNorm(width, epsilon)
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x: Tensor) -> Tensor:
        batch, rows, _ = x.shape
        q, k, v = (
            f(x).view(batch, rows, self.heads, -1).permute(0, 2, 1, 3) for f in (self.query, self.key, self.value)
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:  # as the published encoder does it: a share of the scale on either side
            mixed = functional.softmax((q * self.scale) @ (k * self.scale).transpose(-1, -2), dim=-1) @ v
        return self.out(mixed.permute(0, 2, 1, 3).flatten(start_dim=2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class WhisperCross(nn.Module):
    """mel [1, mels, 2 * rows] -> cross K and V [cross_layers, rows, width]: encoder and the decoder's projections."""

    def __init__(self, sizes: WhisperSizes, fused: bool = True) -> None:
        super().__init__()
        d = sizes.width
        self.conv1 = nn.Conv1d(sizes.mels, d, 3, padding=1)
        self.conv2 = nn.Conv1d(d, d, 3, stride=2, padding=1)
        self.register_buffer("positions", torch.zeros(sizes.rows, d))
        self.blocks = nn.ModuleList(WhisperBlock(d, sizes.heads, fused) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(d, half(1e-5))
        self.cross_key = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(sizes.cross_layers))
        self.cross_value = nn.ModuleList(nn.Linear(d, d) for _ in range(sizes.cross_layers))

    def forward(self, mel: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.gelu(self.conv1(mel))
        x = functional.gelu(self.conv2(x)).permute(0, 2, 1) + self.positions
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return torch.cat([f(x) for f in self.cross_key]), torch.cat([f(x) for f in self.cross_value])


@dataclass(frozen=True)
class LlamaSizes:
    vocabulary: int = 96
    width: int = 64
    layers: int = 3
    heads: int = 8
    kv_heads: int = 2
    inner: int = 160

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotary(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """cos and sin [rows, head_dim] for half-split rotation."""
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = positions.to(torch.float32)[:, None] * frequencies[None]
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, s: LlamaSizes) -> None:
        super().__init__()
        self.s = s
        self.attn_norm, self.mlp_norm = RMSNorm(s.width), RMSNorm(s.width)
        self.query = nn.Linear(s.width, s.heads * s.head_dim, bias=False)
        self.key = nn.Linear(s.width, s.kv_heads * s.head_dim, bias=False)
        self.value = nn.Linear(s.width, s.kv_heads * s.head_dim, bias=False)
        self.out = nn.Linear(s.heads * s.head_dim, s.width, bias=False)
        self.gate, self.up = (nn.Linear(s.width, s.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(s.inner, s.width, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, d = x.shape[1], self.s.head_dim
        normed = self.attn_norm(x)
        q = self.query(normed).view(1, rows, self.s.heads, d).transpose(1, 2)
        k = self.key(normed).view(1, rows, self.s.kv_heads, d).transpose(1, 2)
        v = self.value(normed).view(1, rows, self.s.kv_heads, d).transpose(1, 2)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def finish(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        times = self.s.heads // self.s.kv_heads
        mixed = functional.scaled_dot_product_attention(
            q, k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1), attn_mask=mask
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(1, x.shape[1], self.s.heads * self.s.head_dim))
        normed = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class LlamaPrefill(nn.Module):
    """tokens [1, rows] -> the cache after prefill, padded to `capacity` rows: key_cache and value_cache
    [layers, kv_heads, capacity, head_dim], or one pair [1, kv_heads, capacity, head_dim] per layer; logits last."""

    def __init__(self, sizes: LlamaSizes, capacity: int, per_layer: bool, logits: bool) -> None:
        super().__init__()
        self.s, self.capacity, self.per_layer = sizes, capacity, per_layer
        self.embed = nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(LlamaLayer(sizes) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False) if logits else None

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        rows = tokens.shape[1]
        x = self.embed(tokens)
        cos, sin = rotary(torch.arange(rows), self.s.head_dim)
        mask = torch.full((rows, rows), -1e4).triu(1)
        keys, values = [], []
        for layer in self.layers:
            q, k, v = layer.project(x, cos, sin)
            x = layer.finish(x, q, k, v, mask)
            keys.append(functional.pad(k, (0, 0, 0, self.capacity - rows)))
            values.append(functional.pad(v, (0, 0, 0, self.capacity - rows)))
        found = (*keys, *values) if self.per_layer else (torch.cat(keys), torch.cat(values))
        return found if self.head is None else (*found, self.head(self.norm(x)))


class StatefulDecoder(nn.Module):
    """token [1, 1], mask [1, 1, 1, end] -> logits [1, 1, vocabulary]: end - 1 rows stand in the cache already, the
    token's own becomes row end - 1. The caches are buffers, which become states."""

    def __init__(self, sizes: LlamaSizes, capacity: int) -> None:
        super().__init__()
        self.s = sizes
        self.embed = nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(LlamaLayer(sizes) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        shape = (sizes.layers, 1, sizes.kv_heads, capacity, sizes.head_dim)
        self.register_buffer("key_cache", torch.zeros(shape))
        self.register_buffer("value_cache", torch.zeros(shape))
        cos, sin = rotary(torch.arange(capacity), sizes.head_dim)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, token: Tensor, mask: Tensor) -> Tensor:
        end = mask.shape[-1]
        begin = end - token.shape[-1]
        x = self.embed(token)
        cos, sin = self.cos[begin:end], self.sin[begin:end]
        for index, layer in enumerate(self.layers):
            q, k, v = layer.project(x, cos, sin)
            self.key_cache[index, :, :, begin:end] = k
            self.value_cache[index, :, :, begin:end] = v
            x = layer.finish(x, q, self.key_cache[index, :, :, :end], self.value_cache[index, :, :, :end], mask)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, stride: int = 1) -> None:
        super().__init__()
        out = 4 * inner
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.side = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.side(x))


class ResNet(nn.Module):
    """The residual network's stem, four stages and classifier, narrow."""

    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        stages, channels = [], width
        for stage in range(4):
            inner = width << stage
            stages += [Bottleneck(channels, inner, 1 if stage == 0 else 2), Bottleneck(4 * inner, inner)]
            channels = 4 * inner
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.stages(self.stem(image)), 1).flatten(1))


class ConvSilu(nn.Sequential):
    def __init__(self, channels: int, out: int, size: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False),
            nn.BatchNorm2d(out, eps=1e-3),
            nn.SiLU(),
        )


class Detector(nn.Module):
    """A one-stage detector in small: grouped convolution, spatial pyramid pooling, a top-down path with upsampling, two
    scales of boxes, objectness and classes."""

    def __init__(self, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        w = width
        self.one = nn.Sequential(ConvSilu(3, w, 3, 2), ConvSilu(w, 2 * w, 3, 2))
        self.two = nn.Sequential(ConvSilu(2 * w, 4 * w, 3, 2), ConvSilu(4 * w, 4 * w, 3, groups=4))
        self.squeeze, self.spread = ConvSilu(4 * w, 2 * w), ConvSilu(8 * w, 4 * w)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.merge = ConvSilu(6 * w, 4 * w, 3)
        self.grow = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2)
        self.heads = nn.ModuleList(nn.Conv2d(c, 3 * (5 + classes), 1) for c in (4 * w, 4 * w))

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        fine = self.one(image)
        coarse = self.two(fine)
        pooled = [self.squeeze(coarse)]
        for _ in range(3):
            pooled.append(self.pool(pooled[-1]))
        coarse = self.spread(torch.cat(pooled, 1))
        up = functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        merged = self.merge(torch.cat([up, fine], 1)) + functional.pad(
            self.grow(coarse), (0, 0, 0, 0, 0, up.shape[1] // 2)
        )
        found = []
        for head, x in zip(self.heads, (merged, coarse), strict=True):
            y = head(x)
            batch, _, rows, columns = y.shape
            y = y.view(batch, 3, -1, rows * columns).permute(0, 1, 3, 2)
            found.append(torch.cat([y[..., :4].sigmoid() * 2 - 0.5, y[..., 4:].sigmoid()], -1).flatten(1, 2))
        return tuple(found)


def settle(module: nn.Module, seed: int = 0) -> nn.Module:
    """Seeded weights that keep activations in size, batch norms with statistics of their own; evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.ndim > 1:
                spread = 1 / math.sqrt(value[0].numel()) if "embed" not in name else 1.0
                value.copy_(torch.randn(value.shape, generator=generator) * spread)
            elif name.endswith("bias"):
                value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
            else:  # gains
                value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
        for name, value in module.named_buffers():
            if name.endswith("running_mean"):
                value.copy_(torch.randn(value.shape, generator=generator) * 0.2)
            elif name.endswith("running_var"):
                value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
            elif name == "positions":
                value.copy_(torch.randn(value.shape, generator=generator) * 0.3)
    return module.eval()
