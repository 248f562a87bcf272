#!/usr/bin/env python3
"""Compares what llama.cpp computes with GGUF files written here with what they were written from.

    gguf_llama.py PROGRAM [NAME...]

Keys and values in fp32, no flash attention. Of every model of gguf_cases.py (its name) `convert --format
gguf` in F32: logits of random tokens by llama.cpp and by transformers of the directory, to 1e-3 of the
largest. configs: the same of every config.json of models/config_cases.py, and of heads, biases and embeddings
of other shapes: refused in one line, or the same. ids: of every tokenizer of texts/tokenizer_sweep.py that has
a name in llama.cpp, the ids of 10,000 texts with those of `tokenize`. types: Q4_K_M of wide models with what
llama_model_quantize makes of the F32 file: the type of each tensor, and errors of at most 1.01 of its.
smollm2: logits and greedy text of 20 prompts of the published model, with those of the program.

What the program says that llama.cpp does otherwise is left out: texts longer than a window that it does not
read, texts of a longrope that are shorter than its first context in a larger one, texts of tokens that it takes
for others, the epsilon of a FalconMamba's inner norms, bounds of GPT-OSS's yarn, letters that a tokenizer normalises.
The GELU of the reference is a table of float16, as llama.cpp's. Each case runs in a process of its own:
llama.cpp ends the process where it finds a file impossible.
"""

import dataclasses
import json
import multiprocessing
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import warnings

import gguf
import numpy
import torch
import transformers

import llama_library
import llama_sources

sys.path += [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("models", "texts")]
import config_cases
import tokenizer_sweep
from config_check import make_weights
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
SMALLEST_CONTEXT = 256  # of llama.cpp, in tokens
SKIPPED, PARTS = 77, ("configs", "ids", "types", "smollm2")
WORDS = {True: "same", False: "DIFFERENT", None: "left out"}


def truncated(config):
    """GPT-OSS's rope, which is a yarn where nothing says another, with rounded bounds."""
    return {"rope_parameters": {**transformers.GptOssConfig(**config).rope_parameters, "truncate": True}}


# Changes of a config.json after which the program's note about llama.cpp no longer applies.
NOTED = {"falcon_mamba": lambda config: {"mixer_rms_eps": config["layer_norm_epsilon"]}, "gpt_oss": truncated}
# Shapes that change the weights, too, of families that have the keys.
SHAPES = {
    "tied": {"tie_word_embeddings": True},
    "untied": {"tie_word_embeddings": False},
    "wide heads": {"head_dim": 24},
    "as many heads of keys": {"num_key_value_heads": 4},
    "biases of attention": {"attention_bias": True},
    "biases of queries": {"qkv_bias": True},
    "no biases of queries": {"qkv_bias": False},
    "no biases": {"attention_bias": False},
    "biases of MLPs": {"mlp_bias": True},
    "no norms of heads": {"use_qk_norm": False},
}


class Refused(RuntimeError):
    """The program's line."""


@dataclasses.dataclass(frozen=True)
class Converted:
    file: pathlib.Path
    length: int  # The tokens of a text that llama.cpp computes alike.
    longer: int  # Where factors for long texts begin, or 0.
    notes: str  # What else the program says.


def convert(program, directory, out, dtype="fp32", *more):
    done = subprocess.run([program, "convert", directory, "--format", "gguf", "--dtype", dtype, "--out", out, *more],
                          capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("warning ")]
        if done.returncode == 2 and len(lines) == 1:
            raise Refused(lines[0])
        raise RuntimeError(f"exit code {done.returncode}: {lines}")
    window = re.search(r"texts of more than (\d+) tokens", done.stderr)
    longer = re.search(r"\(num_ctx\) is larger than (\d+) tokens", done.stderr)
    tokens = max(TOKENS, int(longer[1]) + 1) if longer and int(longer[1]) < SMALLEST_CONTEXT else TOKENS
    return Converted(file=next(out.glob("*.gguf")), length=min(tokens, int(window[1])) if window else tokens,
                     longer=int(longer[1]) if longer else 0, notes=done.stderr)


def gelu_of_table(x):
    """GELU by hyperbolic tangents of values rounded to float16, rounded to float16, between -10 and 10."""
    near = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
    return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, near))


class TableGelu(torch.nn.Module):
    def forward(self, x):
        return gelu_of_table(x)


def logits_there(directory, ids):
    """transformers' in fp32; None: it does not read the directory."""
    try:
        model, told = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    except Exception:  # whatever it says, it does not read it
        return None
    if told["missing_keys"] or told["mismatched_keys"]:
        return None
    for module in model.eval().modules():
        for name, child in module.named_children():
            # That of GPT-NeoX is exact, and llama.cpp's a table of the other, too.
            if "GELU" in type(child).__name__:
                setattr(module, name, TableGelu())
    with torch.no_grad():
        try:
            return model(input_ids=torch.tensor([ids])).logits[0].numpy()
        except (TypeError, RuntimeError):  # a config.json that it reads, and cannot compute
            return None


def apart(ours, theirs):
    """The largest difference, of the largest value."""
    return float(numpy.abs(ours - theirs).max() / numpy.abs(theirs).max())


def with_later_context(config):
    """The same longrope, whose factors for short texts reach beyond TOKENS and llama.cpp's smallest context."""
    later = {"original_max_position_embeddings": SMALLEST_CONTEXT}
    changes = {key: {**config[key], **later} for key in ("rope_parameters", "rope_scaling")
               if "original_max_position_embeddings" in (config.get(key) or {})}
    outside = "original_max_position_embeddings" in config or not changes  # Phi-3 has both.
    return {**config, **changes, **(later if outside else {})}


def compare_logits(program, directory, work, *more):
    """Where a rope has factors for short and for long texts, both."""
    same, what, longer = compare_once(program, directory, work / "out", *more)
    if not longer or longer >= SMALLEST_CONTEXT or not same:
        return same, what
    path = directory / "config.json"
    path.write_text(json.dumps(with_later_context(json.loads(path.read_text()))))
    again, also, longer = compare_once(program, directory, work / "later", *more)
    if longer != SMALLEST_CONTEXT:
        raise RuntimeError(f"factors for long texts begin at {longer}")
    return again, max(what, also, key=float) if again else also


def compare_once(program, directory, out, *more):
    converted = convert(program, directory, out, "fp32", *more)
    length, longer = converted.length, converted.longer
    if length <= longer < SMALLEST_CONTEXT:  # A window is shorter than what factors for long texts are for.
        return True, "0.0", longer
    path = directory / "config.json"
    config = json.loads(path.read_text())
    change = NOTED.get(config["model_type"])
    if change:
        path.write_text(json.dumps({**config, **change(config)}))
    draw = random.Random(len(config))
    ids = [draw.randrange(3, config["vocab_size"]) for _ in range(length)]
    expected = logits_there(directory, ids)
    if expected is None:
        return None, "transformers does not read it", longer
    context = {"context": SMALLEST_CONTEXT} if longer >= SMALLEST_CONTEXT else {}
    found = apart(llama_library.Model(converted.file, **context).logits(ids), expected)
    return found <= NEAR, f"{found:.1e}", longer


def compare_model(program, name, work):
    write_model(work / "model", name)
    return compare_logits(program, work / "model", work)


def shaped_cases(family):
    """Models of the same family in other shapes: (name, their directory's maker)."""
    known = transformers.AutoConfig.for_model(family).to_dict()
    for name, change in SHAPES.items():
        if all(key in known or key in config_cases.FAMILIES[family] for key in change):
            try:
                transformers.AutoConfig.for_model(family, **{**config_cases.FAMILIES[family], **change})
            except Exception:  # sizes that do not fit each other
                continue
            yield name, change


def compare_configs(program, family, work):
    """Every config.json of a family: what is refused in a line is as good as what is the same."""
    make_weights(family, work / family)
    base, counts, worst, wrong = config_cases.FAMILIES[family], {True: 0, None: 0, "refused": 0}, 0.0, []

    def take(name, case):
        nonlocal worst
        same, what = answer_of(compare_logits, program, case, case.parent, "--no-tokenizer")
        if same is False and what.startswith("Refused: "):
            same = "refused"
        if same is False:
            wrong.append(f"{name}: {what}")
        else:
            counts[same] += 1
            worst = max(worst, float(what)) if same is True else worst

    for name, config in config_cases.cases(family):
        with tempfile.TemporaryDirectory(dir=work) as folder:
            case = pathlib.Path(folder) / "case"
            case.mkdir()
            (case / "config.json").write_text(json.dumps(config))
            (case / "model.safetensors").symlink_to(work / family / "model.safetensors")
            take(name, case)
    for name, change in shaped_cases(family):
        with tempfile.TemporaryDirectory(dir=work) as folder:
            config_cases.FAMILIES[family] = {**base, **change}
            make_weights(family, pathlib.Path(folder) / "case")
            take(name, pathlib.Path(folder) / "case")
    config_cases.FAMILIES[family] = base
    what = (f"{counts[True]} within {worst:.1e}, {counts['refused']} refused, "
            f"{counts[None]} that transformers cannot read")
    return not wrong, "\n    ".join([what, *wrong])


def directory_of(tokenizer, folder):
    """A directory of a tiny Llama that has the tokenizer."""
    path = pathlib.Path(tokenizer.path)
    if path.is_dir():
        shutil.copy(path / "tokenizer.json", folder)
    else:
        shutil.copy(path, folder / ("tekken.json" if path.suffix == ".json" else "tokenizer.model"))
    if hasattr(tokenizer, "processor"):
        words = tokenizer.processor.get_piece_size()
    elif hasattr(tokenizer.tokenizer, "n_words"):
        words = tokenizer.tokenizer.n_words
    else:
        words = max(tokenizer.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    config = transformers.LlamaConfig(vocab_size=words, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                                      num_attention_heads=1, tie_word_embeddings=True)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def texts_of(name):
    draw = random.Random(name)
    lines = [line for text in tokenizer_sweep.source_code() for line in text.splitlines() if line]
    texts = [*draw.sample(lines, 3000), *tokenizer_sweep.mixed_text(draw, 2000), *PROMPTS]
    texts += [text for _, text in zip(range(1000), tokenizer_sweep.emoji(draw))]
    texts += tokenizer_sweep.random_strings(draw, TEXTS - len(texts))
    # Letters that a tokenizer composes llama.cpp does not, as the program says.
    return [unicodedata.normalize("NFC", text) for text in texts]


def of_other_alphabets(text):
    """Whether a capital follows a small letter, one of them beyond ASCII, or there is a combining mark."""
    return any(a.islower() and b.isupper() and not (a + b).isascii() for a, b in zip(text, text[1:])) or any(
        unicodedata.category(letter).startswith("M") for letter in text)


def left_out(notes, tokenizer, text, ids):
    """Whether the program says that llama.cpp has other tokens for the text, or fails."""
    taken = re.findall(r'takes the ordinary token "([^"]+)"', notes)
    return (any(one in text for one in taken) or "U+2581" in notes and "\u2581" in text
            or "words of other alphabets may be" in notes and of_other_alphabets(text)
            or "fails at characters that have no token" in notes and not plain_pieces(tokenizer.processor, text, ids))


def plain_pieces(processor, text, ids):
    """Whether the pieces are the text's own characters, no rule has changed it, and merges make them all."""
    return processor.decode(ids) == text and not any(
        processor.is_unknown(one) or processor.is_control(one) for one in ids) and not any(one in text for one in ("<sep>", "ab"))


def compare_words(program, name, work):
    """The ids of texts; a tokenizer that `convert` refuses by name is left out."""
    tokenizer = tokenizer_sweep.TOKENIZERS[name](work)
    (work / "model").mkdir()
    try:
        converted = convert(program, directory_of(tokenizer, work / "model"), work / "out")
    except Refused as error:
        return None, str(error).rsplit(": ", 1)[-1]
    model = llama_library.Model(converted.file, words_alone=True)
    texts = texts_of(name)
    words = [program, "tokenize", "--tokenizer", str(tokenizer.path), "--jsonl"]
    here = [row["ids"] for row in tokenizer_sweep.by_program(words, "text", texts)]
    special = pathlib.Path(tokenizer.path).is_dir()  # tokenizer.json finds control tokens in texts
    pairs = [(text, ids) for text, ids in zip(texts, here, strict=True) if
             not left_out(converted.notes, tokenizer, text, ids)]
    different = [text for text, ids in pairs if model.ids(text, special) != ids]
    return not different, f"{len(pairs)} texts, {len(different)} with other ids {[*map(ascii, different[:3])]}"


WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
        "num_key_value_heads": 2}
# Of the families' own sizes, those that are rows of a matrix: multiples of 256, together or alone. As many
# experts as Mixtral's, for which attention has more bits.
WIDE_OWN = {"head_dim": 32, "query_pre_attn_scalar": 32, "moe_intermediate_size": 256,
            "shared_expert_intermediate_size": 256, "kv_lora_rank": 256, "q_lora_rank": 256, "qk_nope_head_dim": 256,
            "v_head_dim": 32, "num_local_experts": 8}
TYPED = ("llama", "llama_tied", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "phi3", "olmo2", "gpt2",
         "neox", "deepseek3", "glm4_moe", "gpt_oss", "mamba2")


def compare_types(program, name, work):
    """The types that llama.cpp gives a family's tensors, and the errors of their blocks."""
    architecture, kind, own = CASES[name]
    CASES[name] = architecture, kind, {key: WIDE_OWN.get(key, value) for key, value in own.items()}
    make_model(name, {**SIZES, **WIDE}).save_pretrained(work / "model")
    try:
        ours = read(convert(program, work / "model", work / "ours", "q4_k_m", "--no-tokenizer").file)[1]
    except Refused as error:
        return None, str(error)
    plain = convert(program, work / "model", work / "plain", "fp32", "--no-tokenizer").file
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
    return not wrong, f"{', '.join(kinds)}: errors of at most {worst:.4f} of llama.cpp's {wrong[:4] or ''}"


def compare_smollm2(program, work):
    directory = llama_sources.WORK / "smollm2/model"
    if not (directory / "config.json").exists():
        subprocess.run([ROOT / "scripts/smollm2.sh", directory], check=True)
    model = llama_library.Model(convert(program, directory, work / "out").file, threads=2)
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
        if kind in ("configs", "ids", "types"):
            return {"configs": compare_configs, "ids": compare_words, "types": compare_types}[kind](program, of, work)
        return compare_smollm2(program, work) if kind == "smollm2" else compare_model(program, kind, work)


def answer(pipe, work, *arguments):
    try:
        pipe.send(work(*arguments))
    except Exception as error:  # what either program refuses differs, too
        pipe.send((False, f"{type(error).__name__}: {str(error).splitlines()[-1]}"))


def answer_of(work, *arguments):
    """work(*arguments) in a process of its own."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=answer, args=(theirs, work, *arguments))
    process.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError:
        found = None
    process.join()
    return found or (False, f"llama.cpp has ended the process: {process.exitcode}")


def names_of(given):
    families = [family for family in config_cases.FAMILIES if family not in ("gpt2",)]
    every = {"configs": families, "ids": tokenizer_sweep.TOKENIZERS, "types": TYPED}
    return [f"{one}:{name}" if one in every else name for one in given or [*CASES, *PARTS]
            for name in every.get(one, [one])]


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    if llama_library.built_library() is None:
        print(f"llama-cpp-python {llama_sources.VERSION} is not to be had, or cmake, ninja or g++: no libllama")
        return SKIPPED
    results = []
    for name in names_of(sys.argv[2:]):
        same, what = answer_of(compare, program, name)
        results.append(same)
        print(f"{name:<24} {WORDS[same]:<9} {what}", flush=True)
    print(f"{len(results) - results.count(None)} models, tokenizers and quantised files in llama.cpp: "
          f"{results.count(False)} different, {results.count(None)} that it does not have")
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main())
