"""Writes fixtures/gguf_models.json: small GGUF files of every family with each kind of rope, windows and
scales, by the `gguf` package, and what transformers' models have that they were made of: frequencies,
factors, windows, scales, and of one model a family every tensor's digest. And the keys of published files of
Gemma 3, with what is published of these models. Needs torch, transformers and gguf.
"""

import json
import pathlib
import sys
import tempfile

import gguf
import numpy
import transformers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
import expert_names
from gguf_cases import CASES, make_model, write_file

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
SIZES = dict(vocab_size=10, hidden_size=48, intermediate_size=8, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256)
SMALL = {**SIZES, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
WHOLE = ("mamba", "falcon_mamba", "mamba2", "jamba", "jamba_dense", "deepseek3", "deepseek3_joined", "glm4_moe", "glm4_moe_whole", "gpt_oss", "gpt_oss_mxfp4", "mixtral", "mixtral_apart", "olmoe", "qwen2_moe", "qwen3_moe", "llama_biases", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "olmo2", "gpt2", "neox")

# What the published files say, and the config.json of the models: (layers, width, MLP, heads, of keys, width of
# a head, query_pre_attn_scalar).
GEMMA3 = {"4b": (34, 2560, 10240, 8, 4, 256, 256), "12b": (48, 3840, 15360, 16, 8, 256, 256),
          "27b": (62, 5376, 21504, 32, 16, 128, 168)}


def ropes_of(model):
    """By kind of layer, "" where all are alike: frequencies, and the factor of cosine and sine."""
    found = {}
    for name, module in model.named_modules():
        if not name.endswith("rotary_emb"):
            continue
        for key, values in module.named_buffers():
            if key.endswith("inv_freq") and "original" not in key:
                kind = key.removesuffix("inv_freq")
                found[kind.removesuffix("_")] = dict(
                    frequencies=values.tolist(), factor=getattr(module, f"{kind}attention_scaling"))
    return found


def layers_of(model):
    """Of each layer: its kind, its window (0: none), its scale."""
    config = model.config
    if not hasattr(config, "num_attention_heads"):
        return [dict(scan=True)] * config.num_hidden_layers
    types = getattr(config, "layer_types", None) or [""] * config.num_hidden_layers
    window = getattr(config, "sliding_window", None) or 0
    kinds = sorted(ropes_of(model))
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    scale = (getattr(config, "query_pre_attn_scalar", None) or width) ** -0.5
    if config.model_type == "deepseek_v3":
        scale = model.model.layers[0].self_attn.scaling
    if config.model_type.startswith("qwen"):
        window = 0
    return [dict(rope=kind if kind in kinds else "", scale=scale,
                 window=0 if kind == "full_attention" else window) for kind in types]


def digest(name, values, architecture):
    """FNV-1a of 64 bits, of the elements in single precision. Files have the gains of Gemma's norms with their one."""
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        values = (values + numpy.float32(1)) - numpy.float32(1)
    if name.endswith("A_log"):  # files have rates
        values = numpy.log(numpy.exp(values).astype(numpy.float64)).astype(numpy.float32)
    found = 0xCBF29CE484222325
    for byte in numpy.ascontiguousarray(values, dtype="<f4").tobytes():
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return f"{found:016x}"


def case_of(name):
    model = make_model(name, SMALL if name in WHOLE else SIZES)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "model.gguf"
        write_file(path, name, model, with_layers=name in WHOLE)
        case = dict(name=name, file=path.read_bytes().hex(), ropes=ropes_of(model), layers=layers_of(model),
                    tied=model.config.tie_word_embeddings, kind=model.config.model_type,
                    caps=[getattr(model.config, f"{of}_logit_softcapping", None) or 0.0 for of in ("attn", "final")])
    if name in WHOLE:
        case["weights"] = {stored: digest(stored, part.numpy(), CASES[name][0]) for key, values in model.state_dict().items()
                           for stored, part in expert_names.stored(key, values, model.config.model_type)}
        if "gpt_neox.embed_in.weight" in case["weights"]:  # in memory the head has another name than in files
            case["weights"]["embed_out.weight"] = case["weights"].pop("lm_head.weight")
        if case["tied"]:
            for head in ("lm_head.weight", "embed_out.weight"):
                case["weights"].pop(head, None)
    return case


def published(size):
    """Its keys, with an embedding of no size: what else the file has are tensors."""
    layers, width, hidden, heads, kv_heads, head_dim, scalar = GEMMA3[size]
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "model.gguf"
        writer = gguf.GGUFWriter(str(path), "gemma3")
        writer.add_context_length(131072)
        writer.add_embedding_length(width)
        writer.add_block_count(layers)
        writer.add_feed_forward_length(hidden)
        writer.add_head_count(heads)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        writer.add_rope_freq_base(1000000.0)
        writer.add_sliding_window(1024)
        writer.add_head_count_kv(kv_heads)
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(8.0)
        writer.add_tensor("token_embd.weight", numpy.zeros((4, 4), dtype=numpy.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        file = path.read_bytes().hex()
    config = transformers.Gemma3TextConfig(
        vocab_size=4, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=head_dim, query_pre_attn_scalar=scalar, sliding_window=1024,
        max_position_embeddings=131072,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    text = config.to_dict()
    text["dtype"] = "bfloat16"
    return dict(name=size, file=file, config=text)


def main():
    fixture = dict(cases=[case_of(name) for name in CASES], gemma3=[published(size) for size in GEMMA3])
    (FIXTURES / "gguf_models.json").write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
