#!/usr/bin/env python3
"""Compares what llama.cpp computes with GGUF files written here with what they were written from.

    gguf_llama.py PROGRAM [NAME...]

Keys and values in fp32, no flash attention. Of every model of gguf_cases.py (its name) `convert --format
gguf` in F32: logits of random tokens by llama.cpp and by transformers of the directory, to 1e-3 of the
largest. ids: of every tokenizer of texts/tokenizer_sweep.py that has a name in llama.cpp, the ids of 10,000
texts with those of `tokenize`. types: Q4_K_M of wide models with what llama_model_quantize makes of the
F32 file: the type of each tensor, and errors of at most 1.01 of its. smollm2: ids, logits and greedy text of
20 prompts of the published model, with those of the program. Each name in a process of its own, as
llama.cpp ends with the process where it finds a file impossible.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import gguf
import numpy
import torch
import transformers

import llama_library
import llama_sources

sys.path += [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("models", "texts")]
import tokenizer_sweep
from generation_check import NEW_TOKENS, PROMPTS, TIE, written
from gguf_cases import CASES, make_model
from gguf_models import SIZES
from gguf_out import distance, read, write_model

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

ROOT = pathlib.Path(__file__).resolve().parents[3]
NEAR = 1e-3
ALLOWED = 1.01
TOKENS = 100
TEXTS = 10000
SKIPPED, PARTS = 77, ("ids", "types", "smollm2")


def convert(program, directory, out, dtype="fp32", *more):
    done = subprocess.run([program, "convert", directory, "--format", "gguf", "--dtype", dtype, "--out", out, *more],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return next(out.glob("*.gguf"))


def apart(ours, theirs):
    """The largest difference, of the largest value."""
    return float(numpy.abs(ours - theirs).max() / numpy.abs(theirs).max())


def compare_model(program, name, work):
    write_model(work / "model", name)
    model = llama_library.Model(convert(program, work / "model", work / "out"))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(work / "model", dtype=torch.float32,
                                                               attn_implementation="eager").eval()
    draw = random.Random(name)
    ids = [draw.randrange(3, SIZES["vocab_size"]) for _ in range(TOKENS)]
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([ids])).logits[0].numpy()
    found = apart(model.logits(ids), expected)
    return found <= NEAR, f"{found:.1e}"


def directory_of(tokenizer, folder):
    """A directory of a tiny Llama that has the tokenizer, and its number of tokens."""
    path = pathlib.Path(tokenizer.path)
    files = list(path.iterdir()) if path.is_dir() else [path]
    for file in files:
        name = file.name if file.name.endswith((".json", ".txt")) else "tokenizer.model"
        if path.is_file() or file.name in ("tokenizer.json", "tokenizer.model"):
            (folder / name).write_bytes(file.read_bytes())
    if hasattr(tokenizer, "processor"):
        words = tokenizer.processor.get_piece_size()
    else:
        words = max(tokenizer.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    config = transformers.LlamaConfig(vocab_size=words, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                                      num_attention_heads=1, tie_word_embeddings=True)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def texts_of(tokenizer, name):
    draw = random.Random(name)
    lines = [line for text in tokenizer_sweep.source_code() for line in text.splitlines() if line]
    texts = [*draw.sample(lines, 3000), *tokenizer_sweep.mixed_text(draw, 2000), *PROMPTS]
    texts += [text for _, text in zip(range(1000), tokenizer_sweep.emoji(draw))]
    return texts + list(tokenizer_sweep.random_strings(draw, TEXTS - len(texts)))


def compare_words(program, name, work):
    """The ids of texts; a tokenizer that `convert` refuses by name is left out."""
    tokenizer = tokenizer_sweep.TOKENIZERS[name](work)
    (work / "model").mkdir()
    try:
        file = convert(program, directory_of(tokenizer, work / "model"), work / "out")
    except (RuntimeError, AttributeError) as error:
        return None, str(error)
    model = llama_library.Model(file, words_alone=True)
    texts = texts_of(tokenizer, name)
    words = [program, "tokenize", "--tokenizer", str(tokenizer.path), "--jsonl"]
    here = [row["ids"] for row in tokenizer_sweep.by_program(words, "text", texts)]
    different = [text for text, ids in zip(texts, here, strict=True) if model.ids(text) != ids]
    return not different, f"{len(texts)} texts, {len(different)} with other ids: {[*map(ascii, different[:3])]}"


WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
        "num_key_value_heads": 2}


def compare_types(program, name, work):
    """The types that llama.cpp gives a family's tensors, and the errors of their blocks."""
    make_model(name, {**SIZES, **WIDE}).save_pretrained(work / "model")
    plain = convert(program, work / "model", work / "plain", "fp32", "--no-tokenizer")
    ours = read(convert(program, work / "model", work / "ours", "q4_k_m", "--no-tokenizer"))[1]
    llama_library.quantise(plain, work / "theirs.gguf", "Q4_K_M")
    theirs, values = read(work / "theirs.gguf")[1], read(plain)[1]
    wrong, worst = [], 0.0
    for tensor, (kind, _, data) in theirs.items():
        if ours[tensor][0] != kind:
            wrong.append(f"{tensor} is {ours[tensor][0]}, llama.cpp's {kind}")
        elif kind not in ("F32", "F16", "BF16"):
            number = gguf.GGMLQuantizationType[kind]
            exact = values[tensor][2].reshape(-1)
            ratio = distance(ours[tensor][2], number, exact) / distance(data, number, exact)
            worst = max(worst, ratio)
            if ratio > ALLOWED:
                wrong.append(f"{tensor}: {kind} errs {ratio:.3f} times as much")
    kinds = sorted({kind for kind, _, _ in ours.values()})
    return not wrong, f"{', '.join(kinds)}: errors of at most {worst:.4f} of llama.cpp's {wrong[:4]}"


def compare_smollm2(program, work):
    directory = llama_sources.WORK / "smollm2/model"
    if not (directory / "config.json").exists():
        subprocess.run([ROOT / "scripts/smollm2.sh", directory], check=True)
    model = llama_library.Model(convert(program, directory, work / "out"), threads=2)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    far, ties, good = 0.0, 0, True
    for prompt, tokens in zip(PROMPTS, written(program, directory), strict=True):
        ids = tokenizer(prompt).input_ids
        with torch.no_grad():
            far = max(far, apart(model.logits(ids), theirs(input_ids=torch.tensor([ids])).logits[0].numpy()))
        found, gaps = model.greedy(ids, NEW_TOKENS)
        found = found[:found.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in found else found
        if found != tokens:
            at = next((i for i, (a, b) in enumerate(zip(found, tokens)) if a != b), min(len(found), len(tokens)))
            ties += gaps[at] <= TIE
            good = good and gaps[at] <= TIE
            print(f"{prompt!r}: differs at token {at}, the two likeliest are {gaps[at]:.1e} apart", flush=True)
    return good and far <= NEAR, f"logits {far:.1e}; {len(PROMPTS)} greedy texts, {ties} tied"


def compare(program, name):
    """Whether a part is the same (None: there is nothing to compare), and what was compared."""
    kind, _, of = name.partition(":")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        if kind == "ids":
            return compare_words(program, of, work)
        if kind == "types":
            return compare_types(program, of, work)
        return compare_smollm2(program, work) if kind == "smollm2" else compare_model(program, kind, work)


TYPED = ("llama", "llama_tied", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "phi3", "olmo2", "gpt2",
         "neox", "deepseek3", "glm4_moe", "gpt_oss", "mamba", "mamba2", "jamba")


def names_of(given):
    every = {"ids": [f"ids:{name}" for name in tokenizer_sweep.TOKENIZERS], "types": [f"types:{name}" for name in TYPED]}
    return [name for one in given or [*CASES, *PARTS] for name in every.get(one, [one])]


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    if sys.argv[2:3] == ["--one"]:
        same, what = compare(program, sys.argv[3])
        print(f"{what}")
        return {True: 0, False: 1, None: SKIPPED}[same]
    if llama_library.library() is None:
        print(f"llama-cpp-python {llama_sources.VERSION} is not to be had, or cmake, ninja or g++: no libllama")
        return SKIPPED
    codes = []
    for name in names_of(sys.argv[2:]):
        done = subprocess.run([sys.executable, __file__, program, "--one", name], capture_output=True, text=True)
        codes.append(done.returncode)
        told = (done.stdout.strip() or done.stderr.strip()).splitlines() or [f"exit code {done.returncode}"]
        if done.returncode not in (0, 1, SKIPPED):
            told = [f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['no words'])[-1]}"]
        word = {0: "same", SKIPPED: "left out"}.get(done.returncode, "DIFFERENT")
        print(*(f"    {line}" for line in told[:-1]), f"{name:<24} {word:<9} {told[-1]}", sep="\n" if told[:-1] else "",
              flush=True)
    different = sum(code not in (0, SKIPPED) for code in codes)
    print(f"{len(codes) - codes.count(SKIPPED)} models, tokenizers and quantised files in llama.cpp: "
          f"{different} different, {codes.count(SKIPPED)} tokenizers that it does not have")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
