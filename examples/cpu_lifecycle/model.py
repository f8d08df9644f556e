"""A character-level GPT, small enough to train on one CPU core: about 100,000 parameters with the demo's settings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.ln_1(x)))
        y: Tensor = x + self.drop(self.mlp(self.ln_2(x)))
        return y

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, width / heads)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        joined: Tensor = self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return joined


class GPT(nn.Module):
    def __init__(self, vocab: int, block_size: int, layers: int, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(block_size, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)  # GPT-2's: the first loss is then close to log(vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        logits: Tensor = self.head(self.ln(self.blocks(x)))
        return logits

    def loss(self, tokens: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten(), reduction=reduction)
