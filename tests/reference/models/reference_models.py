"""The two architectures in plain PyTorch, written from their description alone.

Independent of the engine: attention with an explicit score matrix, rotary positions with complex
numbers, autograd for every gradient. Everything runs in float64.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass
class Shape:
    arch: str
    layers: int
    heads: int
    head_dim: int
    embedding_dim: int
    mlp_hidden: int
    vocab_size: int
    qk_norm: bool = True
    output_gate: bool = False
    residual_scale: float = 1.0
    z_loss_coeff: float = 1e-4
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_embeddings: bool = False


def parameter_shapes(s):
    """Name -> shape, in the order of the reference's modules."""
    n, width = s.embedding_dim, s.heads * s.head_dim
    shapes = {"transformer.wte.weight": (s.vocab_size, n)}
    for i in range(s.layers):
        block = {"ln_1": (n,)}
        if s.arch == "enoki":
            block["attn.c_attn"] = (3 * width, n)
            block["attn.c_proj"] = (n, width)
            norms = ("attn.q_layernorm", "attn.k_layernorm")
        else:
            block["attn.q_proj"] = ((2 if s.output_gate else 1) * width, n)
            block["attn.k_proj"] = (width, n)
            block["attn.v_proj"] = (width, n)
            block["attn.o_proj"] = (n, width)
            norms = ("attn.q_norm", "attn.k_norm")
        if s.qk_norm:
            block.update({norm: (s.head_dim,) for norm in norms})
        block["ln_2"] = (n,)
        if s.arch == "enoki":
            block["mlp.c_fc"] = (s.mlp_hidden, n)
            block["mlp.c_proj"] = (n, s.mlp_hidden)
        else:
            block["mlp.gate_proj"] = (s.mlp_hidden, n)
            block["mlp.up_proj"] = (s.mlp_hidden, n)
            block["mlp.down_proj"] = (n, s.mlp_hidden)
        for name, shape in block.items():
            shapes[f"transformer.h.{i}.{name}.weight"] = shape
    shapes["transformer.ln_f.weight"] = (n,)
    if not s.tie_embeddings:
        shapes["lm_head.weight"] = (s.vocab_size, n)
    return shapes


def norm(s, x, weight):
    if s.arch == "enoki":
        return F.layer_norm(x, weight.shape, weight, eps=s.norm_eps)
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + s.norm_eps) * weight


def rope(s, x):
    """x: [B, T, H, D]; pairs (2i, 2i+1) as complex numbers turned by position * theta^(-2i/D)."""
    time, dim = x.shape[1], x.shape[3]
    frequency = s.rope_theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(time, dtype=torch.float64)[:, None] * frequency
    turn = torch.polar(torch.ones_like(angle), angle)[None, :, None, :]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:3], dim // 2, 2))
    return torch.view_as_real(pairs * turn).reshape(x.shape)


def attention(s, p, prefix, x):
    batch, time, _ = x.shape
    heads = (batch, time, s.heads, s.head_dim)
    gate = None
    if s.arch == "enoki":
        q, k, v = (part.reshape(heads) for part in (x @ p[prefix + "c_attn.weight"].T).chunk(3, -1))
    else:
        q = x @ p[prefix + "q_proj.weight"].T
        if s.output_gate:
            q, gate = q.reshape(batch, time, s.heads, 2, s.head_dim).unbind(3)
        q = q.reshape(heads)
        k = (x @ p[prefix + "k_proj.weight"].T).reshape(heads)
        v = (x @ p[prefix + "v_proj.weight"].T).reshape(heads)
    if s.qk_norm:
        names = ("q_layernorm", "k_layernorm") if s.arch == "enoki" else ("q_norm", "k_norm")
        q = norm(s, q, p[prefix + names[0] + ".weight"])
        k = norm(s, k, p[prefix + names[1] + ".weight"])
    q, k = rope(s, q), rope(s, k)
    scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(s.head_dim)
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, float("-inf")).softmax(-1)
    out = torch.einsum("bhts,bshd->bthd", weights, v)
    if gate is not None:
        out = out * torch.sigmoid(gate)
    last = "c_proj.weight" if s.arch == "enoki" else "o_proj.weight"
    return out.reshape(batch, time, -1) @ p[prefix + last].T


def mlp(s, p, prefix, x):
    if s.arch == "enoki":
        return F.gelu(x @ p[prefix + "c_fc.weight"].T) @ p[prefix + "c_proj.weight"].T
    gate = x @ p[prefix + "gate_proj.weight"].T
    return (F.silu(gate) * (x @ p[prefix + "up_proj.weight"].T)) @ p[prefix + "down_proj.weight"].T


def logits(s, p, tokens):
    x = p["transformer.wte.weight"][tokens]
    for i in range(s.layers):
        prefix = f"transformer.h.{i}."
        x = x + s.residual_scale * attention(
            s, p, prefix + "attn.", norm(s, x, p[prefix + "ln_1.weight"])
        )
        x = x + s.residual_scale * mlp(
            s, p, prefix + "mlp.", norm(s, x, p[prefix + "ln_2.weight"])
        )
    head = p["transformer.wte.weight" if s.tie_embeddings else "lm_head.weight"]
    return norm(s, x, p["transformer.ln_f.weight"]) @ head.T


def loss(s, p, tokens, targets):
    """Sums over the positions with a target, divided by all: a target of -1 has no part in either."""
    z = logits(s, p, tokens).flatten(0, 1)
    ce = F.cross_entropy(z, targets.flatten().long(), ignore_index=-1, reduction="sum")
    lse = (torch.logsumexp(z, -1).pow(2) * (targets.flatten() >= 0)).sum()
    return (ce + s.z_loss_coeff * lse) / z.shape[0], ce / z.shape[0]
