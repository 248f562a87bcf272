"""Experts as files have them: transformers 5 has those of a layer in one tensor each in memory, and saves a
tensor for each matrix of each expert.
"""

MIXTRAL = ("w1", "w3", "w2")
OTHERS = ("gate_proj", "up_proj", "down_proj")


def stored(name, tensor, model_type):
    """Of a parameter's name and tensor in memory, those of files; the tensors are views."""
    if ".mlp." not in name or model_type not in ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe"):
        return [(name, tensor)]
    before, after = name.split(".mlp.")
    module = "block_sparse_moe" if model_type == "mixtral" else "mlp"
    gate, up, down = MIXTRAL if model_type == "mixtral" else OTHERS
    prefix = f"{before}.{module}.experts"
    if after == "experts.gate_up_proj":
        half = tensor.shape[1] // 2
        return [pair for i, both in enumerate(tensor) for pair in (
            (f"{prefix}.{i}.{gate}.weight", both[:half]), (f"{prefix}.{i}.{up}.weight", both[half:]))]
    if after == "experts.down_proj":
        return [(f"{prefix}.{i}.{down}.weight", one) for i, one in enumerate(tensor)]
    return [(f"{before}.{module}.{after}", tensor)]
