"""Compares log-probabilities of models whose directories are not as their config.json says with those that
transformers computes from the same directory: a head beside the embedding that it is tied to, the same or another,
a matrix under the head's name alone, weights saved without the head, an index and files at odds, tensors of other
parts. Each again behind `convert`, by both. Hymba, which transformers lacks, is hymba_transformers.py's.

    python3 tests/reference/models/directory_check.py build/release/actortrain [FAMILY...]
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from hymba_transformers import HymbaConfig

TOLERANCE = 2e-4
TEXT = "the river and the stone house"
SIZES = dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
WITHOUT_GROUPS = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
SCANS = {key: value for key, value in SIZES.items()
         if key in ("vocab_size", "hidden_size", "num_hidden_layers", "pad_token_id", "bos_token_id", "eos_token_id")}
FAMILIES = {
    "llama": transformers.LlamaConfig(**SIZES), "mistral": transformers.MistralConfig(**SIZES),
    "qwen2": transformers.Qwen2Config(**SIZES), "qwen3": transformers.Qwen3Config(head_dim=8, **SIZES),
    "gemma2": transformers.Gemma2Config(head_dim=8, **SIZES),
    "gemma3": transformers.Gemma3TextConfig(head_dim=8, **SIZES), "phi3": transformers.Phi3Config(**SIZES),
    "olmo2": transformers.Olmo2Config(**SIZES), "olmo3": transformers.Olmo3Config(**SIZES),
    "mixtral": transformers.MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **SIZES),
    "olmoe": transformers.OlmoeConfig(num_experts=4, num_experts_per_tok=2, **SIZES),
    "qwen2_moe": transformers.Qwen2MoeConfig(shared_expert_intermediate_size=20, **EXPERTS, **SIZES),
    "qwen3_moe": transformers.Qwen3MoeConfig(head_dim=8, **EXPERTS, **SIZES),
    "deepseek_v3": transformers.DeepseekV3Config(
        n_routed_experts=8, moe_intermediate_size=24, n_group=4, topk_group=2, num_experts_per_tok=3, q_lora_rank=12,
        kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, first_k_dense_replace=1,
        num_nextn_predict_layers=0, num_key_value_heads=4, **WITHOUT_GROUPS),
    "glm4_moe": transformers.Glm4MoeConfig(
        head_dim=8, n_routed_experts=4, moe_intermediate_size=24, num_experts_per_tok=2, use_qk_norm=True,
        attention_bias=True, first_k_dense_replace=1, num_nextn_predict_layers=0, **SIZES),
    "gpt_oss": transformers.GptOssConfig(head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=7,
                                         **SIZES),
    "gpt_neox": transformers.GPTNeoXConfig(**WITHOUT_GROUPS),
    "gpt2": transformers.GPT2Config(vocab_size=256, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0.0,
                                    resid_pdrop=0.0, embd_pdrop=0.0),
    "mamba": transformers.MambaConfig(state_size=8, **SCANS), "falcon_mamba": transformers.FalconMambaConfig(**SCANS),
    "mamba2": transformers.Mamba2Config(num_heads=8, head_dim=8, n_groups=2, state_size=8, **SCANS),
    "jamba": transformers.JambaConfig(num_experts=4, attn_layer_period=2, attn_layer_offset=1, mamba_d_state=8, **SIZES),
    "hymba": HymbaConfig(mamba_d_state=8, mamba_dt_rank=3, num_memory_tokens=3, sliding_window=5, global_attn_idx=[],
                         kv_reuse_group=[[0, 1]], rms_norm_eps=1e-6, rope_theta=1e4, **SIZES),
}
HEADS = ("lm_head.weight", "embed_out.weight")
EMBEDDINGS = ("embed_tokens.weight", "embed_in.weight", "wte.weight", "embeddings.weight")
PREFIXES = ("model.", "gpt_neox.", "transformer.", "backbone.")


def save_model(config, folder):
    """Untied, with a head that is far from the embedding, and a tokenizer of bytes."""
    torch.manual_seed(0)
    config.tie_word_embeddings = False
    config.initializer_range = 0.2
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("classifier_dropout", None)  # of another head
    (folder / "config.json").write_text(json.dumps(settings))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def variants(family, tensors):
    """Of each its name, what changes in config.json (None: the key goes), its tensors, and what an index adds."""
    head = next(name for name in tensors if name in HEADS)
    embedding = next(name for name in tensors if name.endswith(EMBEDDINGS))
    same = {**tensors, head: tensors[embedding].clone()}
    without = {name: value for name, value in tensors.items() if name != head}
    alone = {name: value for name, value in tensors.items() if name != embedding}
    prefix = next(part for part in PREFIXES if embedding.startswith(part))
    tied = {"tie_word_embeddings": True}
    yield "another head, tied", tied, tensors, None
    if family != "hymba":  # has no default
        yield "another head, no key", {"tie_word_embeddings": None}, tensors, None
    yield "another head, untied", {}, tensors, None
    yield "the same head, tied", tied, same, None
    yield "the same head, untied", {}, same, None
    yield "no head, tied", tied, without, None
    yield "the head alone, tied", tied, alone, None
    yield "saved without the head", tied, {name.removeprefix(prefix): value for name, value in without.items()}, None
    yield "tensors of other parts", {}, {**tensors, "mtp.fc.weight": torch.ones(3)}, None
    yield "an index with names that are not there", tied, without, [head, "mtp.fc.weight"]
    yield "an index without names that are there", {}, tensors, []


def stacked(folder):
    """The tensors that transformers has in memory, where it has the experts of a layer in one each; else None."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tensors = {name: value.clone().contiguous() for name, value in model.state_dict().items()}
    return tensors if any(name.endswith("experts.gate_up_proj") for name in tensors) else None


def write(base, folder, changes, tensors, listed):
    shutil.copytree(base, folder)
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    (folder / "model.safetensors").unlink()
    if listed is None:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    places = {}
    for number, part in enumerate((names[:5], names[5:]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        places.update({name: file for name in (part if listed else part[1:])})
    places.update({name: "model-00001-of-00002.safetensors" for name in listed})
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def theirs(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT).ids
    with torch.no_grad():
        return float(model(torch.tensor([ids])).logits[0, -1].log_softmax(-1).max())


def ours(program, folder):
    run = subprocess.run([program, "generate", folder, "--prompt", TEXT, "--tokens", "1", "--temperature", "0",
                          "--logprobs"], capture_output=True, text=True)
    return float(run.stdout.split()[1]) if run.returncode == 0 else run.stderr.strip()


def far(a, b):
    return isinstance(a, str) or isinstance(b, str) or abs(a - b) > TOLERANCE


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    transformers.logging.set_verbosity_error()
    compared = different = 0
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for family in sys.argv[2:] or FAMILIES:
            config = FAMILIES[family]
            base = root / family
            save_model(config, base)
            tensors = load_file(base / "model.safetensors")
            cases = list(variants(family, tensors))
            if (in_memory := stacked(base)) is not None:
                cases.append(("experts of a layer in one tensor", {}, in_memory, None))
            for number, (what, changes, kept, listed) in enumerate(cases):
                folder, again = root / f"{family}-{number}", root / f"{family}-{number}-again"
                write(base, folder, changes, kept, listed)
                subprocess.run([program, "convert", folder, "--out", again], capture_output=True)
                found = [theirs(folder), ours(program, folder),
                         theirs(again) if again.exists() else "not converted", ours(program, again)]
                compared += 1
                if any(far(found[0], other) for other in found[1:]):
                    different += 1
                    print(f"{family}, {what}: transformers {found[0]}, here {found[1]}, converted {found[2]} and {found[3]}")
                shutil.rmtree(folder)
                shutil.rmtree(again, ignore_errors=True)
    print(f"{compared} directories of {len(FAMILIES)} families, before and behind convert, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
