"""Experts as files have them: transformers 5 has those of a layer in one tensor each in memory, and saves a
tensor for each matrix of each expert.
"""

MIXTRAL = ("w1", "w3", "w2")
OTHERS = ("gate_proj", "up_proj", "down_proj")


def by_expert(name, tensor):
    """GPT-OSS has all experts in one tensor, in files too; here each matrix by itself, outputs by inputs."""
    before, after = name.split(".experts.")
    kind = "bias" if after.endswith("_bias") else "weight"
    turns = ("gate_proj", "up_proj") if after.startswith("gate_up") else ("down_proj",)
    pairs = []
    for i, one in enumerate(tensor):
        for at, matrix in enumerate(turns):
            part = one[..., at::len(turns)]
            pairs.append((f"{before}.experts.{i}.{matrix}.{kind}", part.T if kind == "weight" else part))
    return pairs


def stored(name, tensor, model_type):
    """Of a parameter's name and tensor in memory, those of files; the tensors are views."""
    if model_type == "gpt_oss" and ".experts." in name:
        return by_expert(name, tensor)
    families = ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "deepseek_v3", "glm4_moe")
    if model_type == "jamba" and ".feed_forward.experts." in name:
        return [(key.replace(".mlp.", ".feed_forward."), part) for key, part in
                stored(name.replace(".feed_forward.", ".mlp."), tensor, "olmoe")]
    if ".mlp." not in name or model_type not in families:
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
