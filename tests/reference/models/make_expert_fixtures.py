"""Tiny models of experts, computed by transformers in float64: as make_model_fixtures.py, whose formulas of
weights and tokens these are, with three differences. The embedding has a mean. Routers, which the fixture holds,
do not see the mean of what they read, but for their last row, which points away from it: the last expert is never
chosen. Tokens are shifted, by the least shift for which no choice of an expert is close in any step: single
precision chooses the same.

transformers computes in float64 throughout: its own casts to float32 are left out. With output_router_logits the
loss has router_aux_loss_coef times the balancing loss, which is listed on its own. In step_cases it has
switch_of_batch() instead, STEP_COEFF times.
Writes fixtures/experts.json; needs torch and transformers.
"""

import contextlib
import copy
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file

import expert_names
from make_model_fixtures import ADAMW, STEPS, make_optimizer, summary, tokens, weight

LENGTHS = {False: 37, True: 9}  # Of sigmoid routers, whose scores are closer: fewer rows, none of them close.
EMBEDDING_MEAN = 0.14
ROUTER_GAIN = 3.0
AWAY = -8.0  # The last expert's logit of the mean.
# Of the logits of the last expert that is chosen and of the first that is not: in the first step, and later.
LEAST_MARGINS = (1e-2, 1e-3)
SIZES = {"vocab_size": 160, "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "pad_token_id": None,
         "eos_token_id": None}
MIXTRAL = {**SIZES, "model_type": "mixtral", "head_dim": 16, "intermediate_size": 40, "num_hidden_layers": 3,
           "num_local_experts": 6, "num_experts_per_tok": 2, "rope_theta": 500.0}
OLMOE = {**SIZES, "model_type": "olmoe", "intermediate_size": 40, "num_hidden_layers": 2, "num_experts": 6,
         "num_experts_per_tok": 3, "norm_topk_prob": False}
QWEN = {**SIZES, "intermediate_size": 40, "moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2}
QWEN2 = {**QWEN, "model_type": "qwen2_moe", "num_hidden_layers": 4, "shared_expert_intermediate_size": 20,
         "decoder_sparse_step": 2, "norm_topk_prob": False}
QWEN3 = {**QWEN, "model_type": "qwen3_moe", "num_hidden_layers": 3, "head_dim": 16, "mlp_only_layers": [0],
         "norm_topk_prob": True}
LATENT = {**{key: value for key, value in SIZES.items() if key != "num_key_value_heads"}, "model_type": "deepseek_v3",
          "num_key_value_heads": 4, "intermediate_size": 40, "moe_intermediate_size": 24, "num_hidden_layers": 3,
          "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "n_shared_experts": 2,
          "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12, "first_k_dense_replace": 1,
          "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-4}
YARN = {"rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                            "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 0.8}}
GLM = {**SIZES, "model_type": "glm4_moe", "head_dim": 16, "intermediate_size": 40, "moe_intermediate_size": 24,
       "num_hidden_layers": 3, "n_routed_experts": 6, "num_experts_per_tok": 2, "use_qk_norm": True,
       "attention_bias": True, "routed_scaling_factor": 1.5, "num_nextn_predict_layers": 0,
       "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
OSS = {**SIZES, "model_type": "gpt_oss", "head_dim": 16, "intermediate_size": 40, "num_hidden_layers": 2,
       "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 7, "swiglu_limit": 1.2,
       "rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                           "truncate": False, "original_max_position_embeddings": 32}}
SIGMOIDS = ("deepseek_v3", "glm4_moe")
NEGATIVE = "_negative"  # Ends the names of cases whose correction bias makes all scores negative.
BALANCED = {"output_router_logits": True, "router_aux_loss_coef": 1.0}
CASES = {
    "mixtral": MIXTRAL, "mixtral_balanced": {**MIXTRAL, **BALANCED},
    "mixtral_window": {**MIXTRAL, "sliding_window": 9, "num_experts_per_tok": 3},
    "olmoe": OLMOE, "olmoe_balanced": {**OLMOE, **BALANCED},
    "olmoe_normalised": {**OLMOE, "norm_topk_prob": True, "num_experts_per_tok": 1},
    "olmoe_clipped": {**OLMOE, "clip_qkv": 0.5},
    "qwen2_moe": QWEN2, "qwen2_moe_balanced": {**QWEN2, **BALANCED},
    "qwen2_moe_dense": {**QWEN2, "mlp_only_layers": [1], "qkv_bias": False, "norm_topk_prob": True},
    "qwen3_moe": QWEN3, "qwen3_moe_balanced": {**QWEN3, **BALANCED},
    "deepseek_v3": {**LATENT, **YARN, "q_lora_rank": 24},
    "deepseek_v3_plain": {**LATENT, "q_lora_rank": None, "attention_bias": True, "norm_topk_prob": False,
                          "rope_interleave": False},
    "deepseek_v3_negative": {**LATENT, "q_lora_rank": 24, "n_group": 2, "topk_group": 1},
    "glm4_moe": GLM, "glm4_moe_plain": {**GLM, "use_qk_norm": False, "attention_bias": False, "n_shared_experts": 2},
    "gpt_oss": OSS,
    "qwen3_moe_plain": {**QWEN3, "norm_topk_prob": False, "attention_bias": True, "tie_word_embeddings": True},
}
STEP_CASES = {"olmoe": OLMOE, "qwen3_moe": QWEN3}
STEP_COEFF = 1.0


@contextlib.contextmanager
def all_in_double():
    """Casts of float64 to float32 do nothing."""
    to, as_float, as_type = torch.Tensor.to, torch.Tensor.float, torch.Tensor.type
    softmax = torch.nn.functional.softmax

    def wide(tensor):
        return tensor.dtype == torch.float64

    def new_to(tensor, *args, **kwargs):
        if wide(tensor) and (torch.float32 in args or kwargs.get("dtype") == torch.float32):
            return tensor
        return to(tensor, *args, **kwargs)

    def new_softmax(tensor, dim=None, _stacklevel=3, dtype=None):
        return softmax(tensor, dim=dim, dtype=None if wide(tensor) else dtype)

    torch.Tensor.to = new_to
    torch.Tensor.float = lambda tensor: tensor if wide(tensor) else as_float(tensor)
    torch.Tensor.type = lambda tensor, kind=None: (
        tensor if wide(tensor) and kind == torch.float32 else as_type(tensor, kind))
    torch.nn.functional.softmax = new_softmax
    try:
        yield
    finally:
        torch.Tensor.to, torch.Tensor.float, torch.Tensor.type = to, as_float, as_type
        torch.nn.functional.softmax = softmax


def expert_weight(name, shape):
    values = weight(name, shape, 1.0)
    if name.endswith("embed_tokens.weight"):
        values += EMBEDDING_MEAN
    return values


def routers_of(model):
    """Number of the layer and module of each router."""
    for number, layer in enumerate(model.model.layers):
        router = getattr(layer.mlp, "router", getattr(layer.mlp, "gate", None))
        if router is not None:
            yield number, router


def set_routers(model, ids):
    """Sets the routers one after the other, each from the mean of what it reads; returns them by name in files."""
    routers = {}
    for number, router in routers_of(model):
        read = []
        with router.register_forward_pre_hook(lambda _, inputs, read=read: read.append(inputs[0])), torch.no_grad():
            model(input_ids=ids, use_cache=False)
        mean = read[0].reshape(-1, read[0].shape[-1]).mean(0)
        rows = ROUTER_GAIN * router.weight.detach()
        rows -= torch.outer(rows @ mean, mean) / mean.square().sum()
        rows[-1] = AWAY * mean / mean.square().sum()
        rows = rows.float().double()
        router.weight.data = rows
        module = "router" if model.config.model_type == "gpt_oss" else "gate"
        memory = f"model.layers.{number}.mlp.{module}.weight"
        (name, _), = expert_names.stored(memory, rows, model.config.model_type)
        routers[name] = [float(f"{value:.9g}") for value in rows.reshape(-1).tolist()]
        if hasattr(router, "e_score_correction_bias"):
            name = f"model.layers.{number}.mlp.gate.e_score_correction_bias"
            routers[name] = [float(f"{value:.9g}") for value in router.e_score_correction_bias.tolist()]
    return routers


def parts_of(model, pick=lambda parameter: parameter):
    """Name in files and tensor of each parameter, or of what `pick` gives of it."""
    kind = model.config.model_type
    return [part for name, parameter in model.named_parameters()
            for part in expert_names.stored(name, pick(parameter).detach(), kind)]


def check_names(model):
    """The names and shapes are those that transformers saves."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = load_file(pathlib.Path(folder) / "model.safetensors")
    parts = dict(parts_of(model))
    if model.config.model_type == "gpt_oss":  # Its files have the experts as memory has.
        parts = dict(model.named_parameters())
    buffers = {name for name in saved if name.endswith("e_score_correction_bias")}
    saved = {name: tensor for name, tensor in saved.items() if name not in buffers}
    assert saved.keys() == parts.keys(), saved.keys() ^ parts.keys()
    assert all(torch.equal(saved[name], part) for name, part in parts.items())


def make_model(config, negative=False):
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**copy.deepcopy(config)), attn_implementation="eager")
    model.set_experts_implementation("eager")
    model.eval()
    for name, part in parts_of(model):
        part.copy_(expert_weight(name, tuple(part.shape)))
    for number, router in routers_of(model):
        if hasattr(router, "e_score_correction_bias"):
            bias = weight(f"model.layers.{number}.mlp.gate.e_score_correction_bias", (config["n_routed_experts"],), 1.0)
            router.e_score_correction_bias.copy_(0.3 * bias - 1.3 if negative else 0.75 * bias)
    return model.double()


def choice_scores(model, logits, number):
    """What the router of a layer chooses by, and the closest choice of a group."""
    config, router = model.config, dict(routers_of(model))[number]
    if config.model_type not in SIGMOIDS:
        return logits, float("inf")
    scores = logits.sigmoid() + router.e_score_correction_bias
    grouped = scores.unflatten(-1, (config.n_group, -1))
    groups = grouped.topk(2, dim=-1).values.sum(-1).sort(dim=-1, descending=True)
    kept = config.topk_group
    closest = (groups.values[:, kept - 1] - groups.values[:, kept]).min().item() if kept < config.n_group else float("inf")
    lost = torch.ones_like(grouped, dtype=torch.bool).scatter(1, groups.indices[:, :kept, None].expand(-1, -1, grouped.shape[-1]), False)
    return grouped.masked_fill(lost, float("-inf")).flatten(-2), closest


def check_choices(all_logits, slots):
    """The closest choice, and the experts that no row of some layer chooses, and of none."""
    closest, unused = float("inf"), []
    for logits in all_logits:
        ordered = logits.sort(dim=-1, descending=True).values
        assert ordered[:, slots - 1].isfinite().all()
        closest = min(closest, (ordered[:, slots - 1] - ordered[:, slots]).min().item())
        chosen = logits.topk(slots, dim=-1).indices.unique().tolist()
        unused.append(set(range(logits.shape[-1])) - set(chosen))
    return closest, set.union(*unused), set.intersection(*unused)


def switch_of_batch(all_logits, slots):
    """Mean over layers of E sum_e f_e P_e (Fedus et al. 2021), f and P of all rows of the batch, f a constant."""
    values = []
    for logits in all_logits:
        rows, experts = logits.shape
        counts = torch.bincount(logits.topk(slots, dim=-1).indices.reshape(-1), minlength=experts)
        values.append(experts * (counts / (slots * rows) * logits.softmax(-1).mean(0)).sum())
    return torch.stack(values).mean()


def run(model, config, shift, ids, step_coeff=0.0):
    """What comes out; None: a choice is close, or more experts than the last are never chosen."""
    optimizer = make_optimizer(model)
    coeff = config.get("router_aux_loss_coef", 0.0) if config.get("output_router_logits") else 0.0
    out = {"config": config, "length": ids.shape[1] - 1, "shift": shift,
           "parameters": sum(p.numel() for p in model.parameters()), "losses": [], "balance": [], "norms": []}
    softmax = config["model_type"] not in SIGMOIDS
    for step in range(STEPS):
        optimizer.zero_grad()
        scores, closest_groups, all_logits = [], [], []
        with contextlib.ExitStack() as hooks:
            for number, router in routers_of(model):
                def keep(_, inputs, outputs, number=number):
                    all_logits.append(outputs[0].reshape(-1, outputs[0].shape[-1]))
                    found, closest = choice_scores(model, outputs[0].detach().reshape(-1, outputs[0].shape[-1]), number)
                    scores.append(found)
                    closest_groups.append(closest)
                hooks.enter_context(router.register_forward_hook(keep))
            found = model(input_ids=ids[:, :-1], use_cache=False, **({"output_router_logits": True} if softmax else {}))
        closest, somewhere, everywhere = check_choices(scores, config["num_experts_per_tok"])
        last = scores[0].shape[-1] - 1
        if min(closest, *closest_groups) < LEAST_MARGINS[min(step, 1)]:
            return None
        if softmax and (everywhere != {last} or len(somewhere) > 2):
            return None
        aux = found.aux_loss if softmax else torch.zeros((), dtype=torch.float64)
        if step_coeff:
            coeff, aux = step_coeff, switch_of_batch(all_logits, config["num_experts_per_tok"])
        loss = torch.nn.functional.cross_entropy(found.logits.flatten(0, 1), ids[:, 1:].reshape(-1))
        (loss + coeff * aux).backward()
        if step == 0:
            out["logits"] = summary("logits", found.logits)
            out["gradients"] = {name: summary(name, part) for name, part in parts_of(model, lambda p: p.grad)}
        out["losses"].append(loss.item())
        out["balance"].append(aux.item())
        out["norms"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["grad_clip"]).item())
        optimizer.step()
    out["weights"] = {name: summary(name, part) for name, part in parts_of(model)}
    return out


def case_of(config, negative=False, step_coeff=0.0):
    check_names(make_model(config))
    with all_in_double():
        model = make_model(config, negative)
        ids = tokens(LENGTHS[config["model_type"] in SIGMOIDS], config["vocab_size"])
        routers = set_routers(model, ids[:, :-1])
        for shift in range(config["vocab_size"]):
            shifted = (ids + shift) % config["vocab_size"]
            case = run(copy.deepcopy(model), config, shift, shifted, step_coeff)
            if case is not None:
                return {**case, "routers": routers}
    raise RuntimeError("every shift has a close choice")


def main():
    transformers.utils.logging.disable_progress_bar()
    head = {"sequences": 2, "adamw": ADAMW, "steps": STEPS, "transformers": transformers.__version__}

    def lines_of(cases):
        for name, case in cases:
            print(name, case["shift"], case["losses"], case["balance"], case["norms"], flush=True)
            yield f'  "{name}": {json.dumps(case, separators=(",", ":"))}'

    lines = lines_of((name, case_of(config, name.endswith(NEGATIVE))) for name, config in CASES.items())
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines)
    lines = lines_of((name, case_of(config, step_coeff=STEP_COEFF)) for name, config in STEP_CASES.items())
    text += f'\n}}, "step_coeff": {STEP_COEFF}, "step_cases": {{\n' + ",\n".join(lines) + "\n}}\n"
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "experts.json"
    path.write_text(text)


if __name__ == "__main__":
    main()
