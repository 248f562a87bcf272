"""Hymba (arXiv 2411.13676) in plain torch, for comparisons: transformers has no such model. Parameters have the
names and shapes of its authors' files.

A query sees the keys of learned tokens, and of the others itself and `sliding_window` before it; in layers of
`global_attn_idx` all before it. The scan walks row by row.
"""

import math
import types

import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


def map_of(inputs, outputs, bias=False):
    return nn.Linear(inputs, outputs, bias=bias)


class Sizes:
    """What a configuration says, with the widths that follow."""

    def __init__(self, config):
        of = config.get
        self.width, self.heads, self.kv_heads = config["hidden_size"], config["num_attention_heads"], \
            config["num_key_value_heads"]
        self.head = self.width // self.heads
        self.inner = of("mamba_expand", 2) * self.width
        self.value = self.inner // self.heads
        self.states, self.taps = of("mamba_d_state", 16), of("mamba_d_conv", 4)
        rank = of("mamba_dt_rank", "auto")
        self.rank = math.ceil(self.width / 16) if rank == "auto" else rank
        self.eps = of("rms_norm_eps", 1e-6)
        self.bias, self.conv_bias = of("mamba_proj_bias", False), of("mamba_conv_bias", True)
        self.prefix = of("num_memory_tokens", 0)
        self.window, self.all_seen = of("sliding_window"), of("global_attn_idx") or []
        self.theta = of("rope_theta", 10000.0)
        if of("rope_type") == "ntk":
            longer = 2.0 * config["max_position_embeddings"] / config["orig_max_position_embeddings"] - 1.0
            self.theta *= longer ** (self.head / (self.head - 2))
        self.source = {layer: group[0] for group in of("kv_reuse_group") or [] for layer in group[1:]}


def rotate(x, theta):
    """Of [batch, heads, rows, width], pairs by halves."""
    rows, width = x.shape[-2:]
    rates = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(rows, dtype=torch.float64), rates)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    low, high = x.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


class Heads(nn.Module):
    """Attention and a scan side by side. Called `mamba` in files."""

    def __init__(self, sizes, layer):
        super().__init__()
        self.sizes, self.layer = sizes, layer
        self.makes_keys = layer not in sizes.source
        s = sizes
        keys = s.kv_heads * (s.head + s.value) if self.makes_keys else 0
        self.in_proj = map_of(s.width, s.width + keys + 2 * s.inner, s.bias)
        self.conv1d = nn.Conv1d(s.inner, s.inner, s.taps, groups=s.inner, padding=s.taps - 1, bias=s.conv_bias)
        self.x_proj = nn.ModuleList([map_of(s.inner, s.rank + 2 * s.states)])
        self.dt_proj = nn.ModuleList([map_of(s.rank, s.inner, bias=True)])
        self.A_log = nn.ParameterList([nn.Parameter(torch.empty(s.inner, s.states))])
        self.D = nn.ParameterList([nn.Parameter(torch.empty(s.inner))])
        self.dt_layernorm, self.B_layernorm, self.C_layernorm = (
            Norm(width, s.eps) for width in (s.rank, s.states, s.states))
        self.pre_avg_layernorm1, self.pre_avg_layernorm2 = Norm(s.inner, s.eps), Norm(s.inner, s.eps)
        self.out_proj = map_of(s.inner, s.width, s.bias)

    def visible(self, rows):
        query, key = torch.arange(rows)[:, None], torch.arange(rows)[None]
        seen = key <= query
        if self.sizes.window is not None and self.layer not in self.sizes.all_seen:
            seen &= (query - key <= self.sizes.window) | (key < self.sizes.prefix)
        return seen

    def attend(self, query, keys, values):
        s = self.sizes
        batch, rows = query.shape[:2]
        query = rotate(query.view(batch, rows, s.heads, s.head).transpose(1, 2), s.theta)
        group = s.heads // s.kv_heads
        keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
        scores = query @ keys.transpose(-1, -2) / math.sqrt(s.head)
        scores = scores.masked_fill(~self.visible(rows), float("-inf"))
        return (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, rows, s.inner)

    def scan(self, u, gate):
        s = self.sizes
        rows = u.shape[1]
        u = functional.silu(self.conv1d(u.transpose(1, 2))[..., :rows].transpose(1, 2))
        step, b, c = self.x_proj[0](u).split([s.rank, s.states, s.states], dim=-1)
        step = functional.softplus(self.dt_proj[0](self.dt_layernorm(step)))
        b, c = self.B_layernorm(b), self.C_layernorm(c)
        rates = -self.A_log[0].exp()
        state, results = u.new_zeros(u.shape[0], s.inner, s.states), []
        for t in range(rows):
            state = (step[:, t, :, None] * rates).exp() * state + (step[:, t] * u[:, t])[..., None] * b[:, t, None]
            results.append((state * c[:, t, None]).sum(-1) + self.D[0] * u[:, t])
        return torch.stack(results, dim=1) * functional.silu(gate)

    def forward(self, x, made):
        s = self.sizes
        parts = self.in_proj(x).split([s.width, *([s.kv_heads * s.head, s.kv_heads * s.value] if self.makes_keys else []),
                                       s.inner, s.inner], dim=-1)
        if self.makes_keys:
            keys, values = (part.view(*part.shape[:2], s.kv_heads, -1).transpose(1, 2) for part in parts[1:3])
            made[self.layer] = rotate(keys, s.theta), values
        attended = self.attend(parts[0], *made[s.source.get(self.layer, self.layer)])
        scanned = self.scan(parts[-2], parts[-1])
        return self.out_proj((self.pre_avg_layernorm1(attended) + self.pre_avg_layernorm2(scanned)) / 2)


class Gated(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = map_of(width, hidden), map_of(width, hidden), map_of(hidden, width)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config, sizes, layer):
        super().__init__()
        self.mamba = Heads(sizes, layer)
        self.moe = nn.Module()
        self.moe.experts = nn.ModuleList([Gated(sizes.width, config["intermediate_size"])])
        self.input_layernorm, self.pre_moe_layernorm = Norm(sizes.width, sizes.eps), Norm(sizes.width, sizes.eps)

    def forward(self, x, made):
        x = x + self.mamba(self.input_layernorm(x), made)
        return x + self.moe.experts[0](self.pre_moe_layernorm(x))


class Hymba(nn.Module):
    def __init__(self, config):
        super().__init__()
        sizes = Sizes(config)
        self.config = types.SimpleNamespace(**config)
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config["vocab_size"], sizes.width)
        if sizes.prefix > 0:
            self.model.memory_tokens = nn.Parameter(torch.empty(sizes.prefix, sizes.width))
        self.model.layers = nn.ModuleList([Layer(config, sizes, i) for i in range(config["num_hidden_layers"])])
        self.model.final_layernorm = Norm(sizes.width, sizes.eps)
        self.prefix = sizes.prefix
        self.lm_head = None if config["tie_word_embeddings"] else map_of(sizes.width, config["vocab_size"])

    def forward(self, input_ids, use_cache=False):  # pylint: disable=unused-argument
        x = self.model.embed_tokens(input_ids)
        if self.prefix > 0:
            x = torch.cat([self.model.memory_tokens.expand(len(x), -1, -1), x], dim=1)
        made = {}
        for layer in self.model.layers:
            x = layer(x, made)
        x = self.model.final_layernorm(x[:, self.prefix:])
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return types.SimpleNamespace(logits=x @ head.weight.T)
