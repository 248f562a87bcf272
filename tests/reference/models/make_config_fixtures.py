"""What transformers makes of config.json: the keys of its configuration classes with their defaults, and of
the cases of config_cases.py the frequencies of every layer, its window, and the number of parameters.

Writes fixtures/configs.json; needs torch and transformers.
"""

import copy
import dataclasses
import json
import logging
import pathlib
import tempfile
import warnings

import torch
import transformers

import config_cases

LENGTH = 160  # Beyond longrope's first context.
FIXED = {"return_dict", "dtype", "transformers_version", "architectures"}  # Of the class, not of a model.
# Gemma 3 4B as published, its keys left at their defaults; its vision half and its tokens shortened.
GEMMA3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106], "initializer_range": 0.02,
    "image_token_index": 262144, "mm_tokens_per_image": 256, "model_type": "gemma3", "torch_dtype": "bfloat16",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                    "sliding_window": 1024},
    "transformers_version": "4.50.0.dev0", "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}


def config_of(raw):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(raw))
        return transformers.AutoConfig.from_pretrained(folder)


def rotary_of(model):
    return next((m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding")), None)


def frequencies(rotary, kind):
    """[frequencies, factor] of a kind of layer, or of all."""
    prefix = "" if kind is None else f"{kind}_"
    x, positions = torch.zeros(1, LENGTH, 4), torch.arange(LENGTH)[None]
    rotary(x, positions, **({} if kind is None else {"layer_type": kind}))
    values = getattr(rotary, f"{prefix}inv_freq")
    factor = getattr(rotary, f"{prefix}attention_scaling", None) or rotary.attention_scaling
    return [[float(f"{v:.7g}") for v in values.tolist()], float(f"{float(factor):.7g}")]


def windows_of(config):
    layers = config.num_hidden_layers
    window = getattr(config, "sliding_window", None) or 0
    if config.model_type in ("mistral", "phi3", "mixtral", "qwen3_moe"):
        return [window] * layers
    if config.model_type in ("ministral", "qwen2", "qwen3", "qwen2_moe", "gemma2", "gemma3_text", "olmo3",
                             "gpt_oss"):
        return [window if kind == "sliding_attention" else 0 for kind in config.layer_types]
    return [0] * layers


def summary(raw, small=True):
    """What the program has to make of it, or the error."""
    config = config_of(copy.deepcopy(raw)).get_text_config()
    with torch.device("cpu" if small else "meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    if small:
        with torch.no_grad():
            model(input_ids=torch.arange(LENGTH)[None] % config.vocab_size)
    found = {"parameters": sum(p.numel() for p in model.parameters()), "windows": windows_of(config)}
    rotary = rotary_of(model)
    if rotary is not None:
        rotary = type(rotary)(config)
        kinds = ["full_attention", "sliding_attention"] if isinstance(rotary.rope_type, dict) else [None]
        found["ropes"] = [frequencies(rotary, k) if k is None or k in rotary.rope_type else None for k in kinds]
    return found


def case(raw, base, refused, small=True):
    """The case as what it changes of `base`."""
    entry = {"set": {key: value for key, value in raw.items() if key not in base or base[key] != value},
             "drop": [key for key in base if key not in raw], "refused": refused}
    try:
        entry["wanted"] = summary(raw, small)
    except Exception as error:  # pylint: disable=broad-except; whatever it says, it does not read it
        entry["error"] = type(error).__name__
    return entry


def lines_of(family, base, cases):
    inner = ",\n".join(f'  {json.dumps(name)}: {json.dumps(each, separators=(",", ":"))}'
                       for name, each in cases.items())
    return f' {json.dumps(family)}: {{"base": {json.dumps(base)}, "cases": {{\n{inner}\n }}}}'


def fields(family):
    config, defaults = transformers.AutoConfig.for_model(family), {}
    # As the class says them, before anything is derived from them.
    for field in dataclasses.fields(config):
        if field.name not in FIXED:
            plain = isinstance(field.default, (int, float, str, bool))
            defaults[field.name] = field.default if plain else None
    return defaults


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    transformers.logging.set_verbosity_error()
    made = {}
    for family in config_cases.FAMILIES:
        configs = dict(config_cases.cases(family))
        base = configs["as it is"]
        made[family] = (base, {name: case(config, base, config_cases.is_refused(family, name))
                               for name, config in configs.items()})
    made["gemma3"] = (GEMMA3_4B, {"gemma 3 4b": case(GEMMA3_4B, GEMMA3_4B, False, small=False)})
    head = {"transformers": transformers.__version__, "length": LENGTH,
            "fields": {family: fields(family) for family in config_cases.FAMILIES}}
    text = json.dumps(head)[:-1] + ', "families": {\n'
    text += ",\n".join(lines_of(family, *each) for family, each in made.items()) + "\n}}\n"
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "configs.json"
    path.write_text(text)
    all_cases = [each for _, cases in made.values() for each in cases.values()]
    errors = sum("error" in each for each in all_cases)
    print(f"{len(all_cases)} configurations of {len(config_cases.FAMILIES)} families, {errors} that transformers refuses")


if __name__ == "__main__":
    main()
