#!/usr/bin/env python3
"""Compares GGUF files that `convert` and `export` write with those of llama.cpp's own converters.

    gguf_out.py PROGRAM [NAME...]

Of every model of gguf_cases.py, and of a Llama with SentencePiece's tokens: `convert --format gguf` and
convert_hf_to_gguf.py (llama_sources.py), of which only the name of the pre-tokenizer is given, as it knows
those of published tokenizers alone. Keys with their types, tensors byte for byte; EXPECTED says where the
two differ on purpose. Of a wide Llama the quantised types: Q8_0 with the blocks of `gguf`, the errors of the
others with those of llama.cpp's quantisers, at most 1.01. Of three runs with [lora] `export --format
gguf-lora` and convert_lora_to_gguf.py of the same adapters.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import gguf
import numpy
import sentencepiece
import torch
import transformers

import llama_sources
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from export_runs import FAMILIES, Site
from gguf_cases import CASES, make_model, tokens_of
from gguf_models import SIZES

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

WITH_PIECES = ("gemma", "phi3", "llama_pieces", "jamba")  # cases whose tokenizer is SentencePiece's
MODELS = {**CASES, "llama_pieces": CASES["llama"]}
ALLOWED = 1.01
# What the two have on purpose, by the case and the line that tells the difference, and why.
EXPECTED = (
    (r".*", r"extra [\w-]+\.vocab_size", "for readers of models without a tokenizer"),
    (r".*", r"extra \w+\.attention\.(key|value)_length", "llama.cpp's own default, said"),
    (r"gemma2|neox", r"extra (gemma2|gptneox)\.rope\.", "the converter leaves out the rope, which llama.cpp reads"),
    (r"mistral|mixtral", r"extra llama\.attention\.sliding_window", "for `convert`; llama.cpp has no window of it"),
    (r"phi3", r"missing phi3\.attention\.sliding_window .*, 0\)", "no window"),
    (r"phi3|llama_pieces|jamba", r"extra tokenizer\.ggml\.(add_space_prefix|remove_extra_whitespaces)",
     "llama.cpp's own default, said"),
    (r"llama_yarn_own", r"(extra|missing) llama\.rope\.scaling\.(yarn_)?attn_factor",
     "llama.cpp reads no yarn_attn_factor, and multiplies by attn_factor"),
    (r"mamba2", r"differs tokenizer\.ggml\.(tokens|token_type)", "the converter adds tokens that the embedding lacks"),
    (r"neox", r"extra general\.file_type", "the converter leaves it out for this family"),
    (r"deepseek", r"extra deepseek2\.expert_gating_func", "config.json of transformers 5 has no scoring_func"),
    (r"deepseek3_joined", r"extra deepseek2\.attention\.q_lora_rank .*0\)", "llama.cpp asks for it"),
    (r"glm4_moe", r"(differs|missing) glm4moe\.(block_count|nextn_predict_layers)",
     "the model has no layer that predicts a further token, which the converter counts all the same"),
    (r"gpt2", r"differs gpt2\.feed_forward_length", "the converter writes four times the width, whatever n_inner is"),
)
IGNORED = {"general.size_label", "general.name"}
CONVERTER = """
import os, runpy, sys
folder = os.environ["FOLDER"]
sys.path[:0] = [folder, folder + "/gguf-py"]  # its own package, newer than PyPI's
import conversion.base
conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: os.environ["SPLITTING"]
if os.environ["RAW"]:
    conversion.base.AutoConfig = None  # it would drop the keys that the converter asks for: config.json as it is
sys.argv[0] = folder + "/" + os.environ["SCRIPT"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def converted(folder, script, *words, splitting="gpt-2", raw=False):
    """What is wrong with a conversion by llama.cpp; "": nothing."""
    done = subprocess.run([sys.executable, "-c", CONVERTER, *map(str, words)], capture_output=True, text=True,
                          env={**os.environ, "FOLDER": str(folder), "SCRIPT": script, "SPLITTING": splitting,
                               "RAW": "1" if raw else "", "NO_LOCAL_GGUF": "1"})
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1] if done.returncode else ""


def write_tokenizer(directory, vocab_size):
    """Letters of bytes and three merges (gguf_cases.py), as tokenizer.json."""
    tokens, types, merges = tokens_of(vocab_size)
    tokens[-1], types[-1] = "<|endoftext|>", 3  # transformers adds it to tokenizers of Qwen where it is missing
    tokens[-4:-1], types[-4:-1] = ["[gMASK]", "<|user|>", "<|observation|>"], [3, 3, 3]  # of GLM
    added = [dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False, normalized=False,
                  special=True) for i, kind in enumerate(types) if kind == 3]
    letters = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                     pre_tokenizer=letters, post_processor=None, decoder=letters,
                     model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                                end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False,
                                vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>", pad_token="<pad>")))
    (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")


def write_pieces(directory, name):
    text = directory / "text.txt"
    text.write_text("the tea at the sea\n" * 20)  # few letters beside the 256 bytes
    prefix = "phi3" in name or "llama" in name
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(directory / "tokenizer"), vocab_size=272, model_type="bpe",
        byte_fallback=True, pad_id=0, bos_id=1, eos_id=2, unk_id=3, hard_vocab_limit=False, minloglevel=2,
        add_dummy_prefix=prefix, remove_extra_whitespaces=False)
    text.unlink()
    (directory / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=False, bos_token="<s>",
        eos_token="</s>")))


def write_model(directory, name):
    make_model("llama" if name == "llama_pieces" else name, SIZES).save_pretrained(directory)
    if name.startswith(WITH_PIECES):
        write_pieces(directory, name)
    else:
        write_tokenizer(directory, SIZES["vocab_size"])
    # Keys of older transformers, which the converter still asks for.
    path = directory / "config.json"
    config = json.loads(path.read_text())
    if "n_positions" in config:
        config["n_ctx"] = config["n_positions"]
    if config["model_type"] == "gpt_neox":
        config["rotary_pct"] = config["rope_parameters"].get("partial_rotary_factor", 1.0)
        config["rotary_emb_base"] = config["rope_parameters"]["rope_theta"]
    path.write_text(json.dumps(config))


def read(path):
    reader = gguf.GGUFReader(path)
    keys = {key: ([kind.name for kind in field.types], field.contents()) for key, field in reader.fields.items()
            if not key.startswith("GGUF.")}
    return keys, {tensor.name: (tensor.tensor_type.name, [int(n) for n in tensor.shape], tensor.data)
                  for tensor in reader.tensors}


def differences(ours, theirs):
    """A line for each key or tensor of two files that is not the same."""
    (ours, our_tensors), (theirs, their_tensors) = read(ours), read(theirs)
    for key in sorted((ours.keys() | theirs.keys()) - IGNORED):
        if key not in ours:
            yield f"missing {key} {str(theirs[key])[:80]}"
        elif key not in theirs:
            yield f"extra {key} {str(ours[key])[:80]}"
        elif ours[key] != theirs[key]:
            yield f"differs {key} {str(ours[key])[:80]} | {str(theirs[key])[:80]}"
    for name in sorted(our_tensors.keys() | their_tensors.keys()):
        if name not in our_tensors or name not in their_tensors:
            yield f"tensor {name} {'missing' if name in their_tensors else 'extra'}"
            continue
        (kind, shape, data), (kind2, shape2, data2) = our_tensors[name], their_tensors[name]
        if (kind, shape) != (kind2, shape2):
            yield f"tensor {name} {kind} {shape} | {kind2} {shape2}"
        elif not numpy.array_equal(data.view(numpy.uint8), data2.view(numpy.uint8)):
            apart = numpy.abs(data.astype(numpy.float64) - data2.astype(numpy.float64)).max()
            # The converter divides, and computes rates of decay, in float32.
            if not name.endswith(("rope_freqs.weight", "ssm_a")) or apart > 1e-5:
                yield f"tensor {name} {apart:.1e} apart"


def judge(name, lines):
    """Those that are not expected; the others are counted."""
    found = [line for line in lines
             if not any(re.match(case, name) and re.match(what, line) for case, what, _ in EXPECTED)]
    print(f"{name:<16} {'same' if not found else 'DIFFERENT'}, {len(lines) - len(found)} differences as expected",
          flush=True)
    for line in found:
        print(f"    {line}", flush=True)
    return not found


def compare_model(program, folder, name, work):
    model = work / name
    write_model(model, name)
    splitting = "default" if name.startswith(WITH_PIECES) else "gpt-2"
    wrong = converted(folder, "convert_hf_to_gguf.py", model, "--outfile", work / "theirs.gguf", "--outtype", "f32",
                      splitting=splitting, raw=name.startswith("neox"))
    done = subprocess.run([program, "convert", model, "--format", "gguf", "--out", work / "ours"],
                          capture_output=True, text=True)
    if wrong or done.returncode:
        return judge(name, [f"convert: {done.stderr.strip()}" if done.returncode else f"llama.cpp: {wrong}"])
    return judge(name, list(differences(work / "ours/model-F32.gguf", work / "theirs.gguf")))


def distance(blocks, kind, values):
    found = gguf.quants.dequantize(blocks.reshape(1, -1), kind).reshape(-1).astype(numpy.float64)
    return numpy.sqrt(((found - values) ** 2).mean())


def compare_types(program, folder, work):
    """Every tensor of a wide model in the quantised types."""
    quantisers = llama_sources.Quantisers(folder)
    sizes = {**SIZES, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8}
    make_model("llama", sizes).save_pretrained(work / "wide")
    plain, wrong, worst = None, [], 0.0
    for dtype in ("fp32", "q8_0", "q4_k_m"):
        out = work / f"wide-{dtype}"
        subprocess.run([program, "convert", work / "wide", "--format", "gguf", "--dtype", dtype, "--no-tokenizer",
                        "--out", out], check=True, capture_output=True)
        tensors = read(next(out.glob("*.gguf")))[1]
        plain = plain or tensors
        for name, (kind, _, data) in tensors.items():
            values = plain[name][2].reshape(-1)
            if kind == "Q8_0":
                blocks = gguf.quants.quantize(values.reshape(1, -1), gguf.GGMLQuantizationType.Q8_0)
                if not numpy.array_equal(blocks.reshape(-1), data.reshape(-1)):
                    wrong.append(f"{name}: other blocks of Q8_0")
            elif kind != "F32":
                number = gguf.GGMLQuantizationType[kind]
                theirs = distance(quantisers.bytes_of(values, kind, data.size), number, values)
                ratio = distance(data, number, values) / theirs
                worst = max(worst, ratio)
                if ratio > ALLOWED:
                    wrong.append(f"{name}: {kind} errs {ratio:.3f} times as much")
    print(f"errors of Q4_K and Q6_K: at most {worst:.4f} of llama.cpp's", flush=True)
    return judge("types", wrong)


def compare_adapters(program, folder, work):
    site = Site(program, work)
    results = []
    for name in ("llama", "gpt_neox"):  # the converter turns those of GPT-2 as if they were weights
        torch.manual_seed(3)
        transformers.AutoModelForCausalLM.from_config(FAMILIES[name]).save_pretrained(work / f"{name}-base")
        site.train(f'from = "{name}-base"', f"run.name={name}", "lora.rank=3", "lora.alpha=6.0")
        site.call("export", f"runs/{name}", "--format", "peft", "--out", f"{name}-peft")
        site.call("export", f"runs/{name}", "--format", "gguf-lora", "--out", f"{name}-ours")
        wrong = converted(folder, "convert_lora_to_gguf.py", work / f"{name}-peft", "--base", work / f"{name}-base",
                          "--outfile", work / f"{name}.gguf")
        results.append(judge(f"adapter {name}", [f"llama.cpp: {wrong}"] if wrong else list(
            differences(work / f"{name}-ours/adapter.gguf", work / f"{name}.gguf"))))
    return results


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    folder = llama_sources.sources()
    if folder is None:
        print(f"llama-cpp-python {llama_sources.VERSION} is not to be had: no sources of llama.cpp")
        return 77
    results = []
    for name in sys.argv[2:] or [*MODELS, "types", "adapters"]:
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            if name == "types":
                results.append(compare_types(program, folder, work))
            elif name == "adapters":
                results += compare_adapters(program, folder, work)
            else:
                results.append(compare_model(program, folder, name, work))
    print(f"{len(results)} GGUF files and llama.cpp's: {results.count(False)} different")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
