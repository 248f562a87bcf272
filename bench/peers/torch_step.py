"""The models of the step bench in plain PyTorch, as a server that stays warm between measurements.

Usage: torch_step.py JSON, where JSON describes model, batch, mode ("eager" or "compiled") and
device: fp32 on "cpu"; on "cuda" bf16 by autocast, with PyTorch's flash attention.
Writes one line of JSON when it is ready, and for each line "steps K" it reads, one with the seconds
of K training steps. Ends at the end of its input.
"""

import contextlib
import importlib
import json
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def rotate_complex(x, angles):
    """Pairs (2i, 2i + 1) as complex numbers: the fastest way that eager mode has."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def rotate_real(x, angles):
    """The same for the compiler, which makes one loop of it but leaves complex numbers alone."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, spec, norm):
        super().__init__()
        self.heads, self.head_dim = spec["heads"], spec["head_dim"]
        self.gated = spec["output_gate"]
        self.rotate = rotate_real if spec["mode"] == "compiled" else rotate_complex
        width, inputs = self.heads * self.head_dim, spec["embedding_dim"]
        self.fused = spec["arch"] == "enoki"
        if self.fused:
            self.c_attn = nn.Linear(inputs, 3 * width, bias=False)
        else:
            self.q_proj = nn.Linear(inputs, width * (2 if self.gated else 1), bias=False)
            self.k_proj = nn.Linear(inputs, width, bias=False)
            self.v_proj = nn.Linear(inputs, width, bias=False)
        self.out_proj = nn.Linear(width, inputs, bias=False)
        qk_norm = spec["qk_norm"]
        self.q_norm = norm(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = norm(self.head_dim) if qk_norm else nn.Identity()

    def forward(self, x, angles):
        by_head = (self.heads, -1)
        if self.fused:
            q, k, v = (part.unflatten(-1, by_head) for part in self.c_attn(x).chunk(3, -1))
        else:
            q, k, v = (p(x).unflatten(-1, by_head) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.gated:
            q, gate = q.chunk(2, -1)
        q = self.rotate(self.q_norm(q), angles)
        k = self.rotate(self.k_norm(k), angles)
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        ).transpose(1, 2)
        if self.gated:
            out = out * gate.sigmoid()
        return self.out_proj(out.flatten(-2))


class Gelu(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.c_fc = nn.Linear(inputs, hidden, bias=False)
        self.out_proj = nn.Linear(hidden, inputs, bias=False)

    def forward(self, x):
        return self.out_proj(F.gelu(self.c_fc(x)))


class SwiGlu(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(inputs, hidden, bias=False)
        self.up_proj = nn.Linear(inputs, hidden, bias=False)
        self.out_proj = nn.Linear(hidden, inputs, bias=False)

    def forward(self, x):
        return self.out_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, spec, norm):
        super().__init__()
        width, mlp = spec["embedding_dim"], Gelu if spec["arch"] == "enoki" else SwiGlu
        self.ln_1, self.ln_2 = norm(width), norm(width)
        self.attention = Attention(spec, norm)
        self.mlp = mlp(width, spec["mlp_hidden"])

    def forward(self, x, angles):
        x = x + self.attention(self.ln_1(x), angles)
        return x + self.mlp(self.ln_2(x))


class Model(nn.Module):
    def __init__(self, spec):
        super().__init__()
        width, eps = spec["embedding_dim"], spec["norm_eps"]
        if spec["arch"] == "enoki":
            norm = lambda size: nn.LayerNorm(size, eps=eps, bias=False)
        else:
            norm = lambda size: nn.RMSNorm(size, eps=eps)
        self.embedding = nn.Embedding(spec["vocab_size"], width)
        self.blocks = nn.ModuleList(Block(spec, norm) for _ in range(spec["layers"]))
        self.ln_f = norm(width)
        self.head = nn.Linear(width, spec["vocab_size"], bias=False)
        if spec["tie_embeddings"]:
            self.head.weight = self.embedding.weight
        half = torch.arange(0, spec["head_dim"], 2) / spec["head_dim"]
        angles = torch.outer(torch.arange(spec["seq_len"]).float(), spec["rope_theta"] ** -half)
        self.register_buffer("angles", angles[:, None, :], persistent=False)
        self.apply_scaled_init(spec["layers"])

    def apply_scaled_init(self, layers):
        """Normal with deviation 1 / sqrt(inputs), less by sqrt(2 layers) where a branch ends."""
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                branches = 2 * layers if "out_proj" in name else 1
                nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[1] * branches))

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.angles)
        return self.loss_of_stream(x, targets)

    def loss_of_stream(self, x, targets):
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Published(nn.Module):
    """A published model as transformers has it, with fresh weights."""

    def __init__(self, spec):
        super().__init__()
        import transformers

        # {"__float__": "Infinity"} is what JSON lacks, as transformers writes it.
        text = json.dumps({k: v for k, v in spec["config"].items() if k not in ("dtype", "torch_dtype")})
        settings = json.loads(text, object_hook=lambda d: float(d["__float__"]) if "__float__" in d else d)
        config = transformers.AutoConfig.for_model(**settings)
        # 1 / sqrt(inputs), as ours: the first losses are compared.
        config.initializer_range = config.hidden_size**-0.5
        self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        # Layers of experts: transformers' own choice is grouped_mm, the other is eager.
        if experts := os.environ.get("ACTORTRAIN_EXPERTS"):
            self.model.set_experts_implementation(experts)

    def forward(self, tokens, targets):
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# The compiler takes minutes for more of them in one piece; they are compiled one by one, once.
MOST_LAYERS_AT_ONCE = 24


class Trainer:
    def __init__(self, spec):
        torch.manual_seed(1)
        self.spec = spec
        self.device = torch.device(spec["device"])
        self.on_cpu = self.device.type == "cpu"
        with self.device:
            self.model = Published(spec) if spec["config"] else Model(spec)
        self.loss_of = self.model
        if os.environ.get("ATEN_CPU_CAPABILITY") == "avx2":
            # The compiler asks the processor, not the variable.
            importlib.import_module("torch._inductor.config").cpp.simdlen = 256
        at_once = spec["config"] or spec["layers"] <= MOST_LAYERS_AT_ONCE
        if spec["mode"] == "compiled" and at_once:
            self.loss_of = torch.compile(self.model, dynamic=False)
        elif spec["mode"] == "compiled":
            for block in self.model.blocks:
                block.compile(dynamic=False)
            self.model.loss_of_stream = torch.compile(self.model.loss_of_stream, dynamic=False)
        decayed = [w for n, w in self.model.named_parameters() if w.dim() == 2 and "embed" not in n]
        others = [w for n, w in self.model.named_parameters() if w.dim() != 2 or "embed" in n]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        options = {"lr": spec["lr"], "betas": (0.9, 0.95), "eps": 1e-8}
        try:
            self.optimizer = torch.optim.AdamW(groups, fused=True, **options)
        except RuntimeError:  # this PyTorch has no fused one for the CPU
            self.optimizer = torch.optim.AdamW(groups, foreach=True, **options)
        size = os.path.getsize(spec["tokens"]) // 2
        self.tokens = torch.from_file(spec["tokens"], size=size, dtype=torch.uint16)
        self.at = 0
        self.split = True  # one microbatch at a time, else the whole batch at once

    def parts(self):
        """Tokens and targets of the microbatches of a step."""
        lanes, rows, length = (self.spec[k] for k in ("lanes", "micro_batch", "seq_len"))
        sequences = lanes * rows
        if self.at + sequences * length + 1 > len(self.tokens):
            self.at = 0
        piece = self.tokens[self.at : self.at + sequences * length + 1].long()
        self.at += sequences * length
        x, y = piece[:-1].view(sequences, length), piece[1:].view(sequences, length)
        x, y = x.to(self.device), y.to(self.device)
        return list(zip(x.split(rows), y.split(rows))) if self.split else [(x, y)]

    def bf16(self):
        """What the pass forward runs in: on a device bf16, attention by the flash kernels."""
        both = contextlib.ExitStack()
        if not self.on_cpu:
            both.enter_context(torch.autocast(self.device.type, dtype=torch.bfloat16))
            both.enter_context(sdpa_kernel(SDPBackend.FLASH_ATTENTION))
        return both

    def step(self):
        parts = self.parts()
        total = 0.0
        for tokens, targets in parts:
            with self.bf16():
                loss = self.loss_of(tokens, targets) / len(parts)
            loss.backward()
            total += loss.item() if self.on_cpu else loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(total)  # of a device: waits for it

    def time_steps(self, count):
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - begin)
        return seconds

    def choose_way(self):
        """Keeps the faster of both ways to run a batch of several microbatches."""
        times = {}
        for self.split in (True, False):
            self.step()
            times[self.split] = min(self.time_steps(2))
        self.split = min(times, key=times.get)


def gemm_flops(device):
    """FLOP/s of this PyTorch's own matrix product: most of what decides its speed."""
    if device == "cpu":
        x, weight = torch.randn(1024, 768), torch.randn(3072, 768)
    else:
        x, weight = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in "xw")
    seconds = []
    for _ in range(12):
        begin = time.perf_counter()
        F.linear(x, weight)
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return 2.0 * weight.numel() * len(x) / sorted(seconds)[len(seconds) // 2]


def peak_bytes(device):
    if device != "cpu":
        return torch.cuda.max_memory_reserved()
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def answer(values):
    print(json.dumps(values), flush=True)


def main():
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(spec["threads"])
    trainer = Trainer(spec)
    first_loss = trainer.step()
    if spec["choose_way"]:
        trainer.choose_way()
        trainer.step()
    answer({
        "torch": torch.__version__,
        "parameters": sum(weight.numel() for weight in trainer.model.parameters()),
        "first_loss": first_loss,
        "split": trainer.split,
        "gemm_flops": gemm_flops(spec["device"]),
    })
    for line in sys.stdin:
        seconds = trainer.time_steps(int(line.split()[1]))
        answer({"seconds": seconds, "peak_bytes": peak_bytes(spec["device"])})


if __name__ == "__main__":
    main()
