"""Compares where tuned models stop, and what they are asked, here and in transformers.

    python3 tests/reference/models/turn_ends_check.py PROGRAM

A tiny model with a chat template of its own learns a few answers by heart, from data that other templates
render: two built-in ones and a file, none of whose turns end with the model's eos_token. Then `actortrain
generate --chat` of the run, and transformers' generate() of its export behind apply_chat_template(), have to
render the same question, and to end with the answer that was taught, not behind it. Needs PyPI's torch,
transformers and tokenizers. Prints what differs, and counts; exit code 1 if anything does.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers

ANSWERS = {"One?": "the river", "Two?": "a quiet child", "Three?": "the old miller, and more", "Four?": "no"}
OWN_TEMPLATE = "{% for m in messages %}{{ '[' + m.role + '] ' + m.content + eos_token }}{% endfor %}"
FILE_TEMPLATE = """{%- for m in messages %}{{ '<|turn|>' + m.role + ':' + m.content + '<|turn_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|turn|>assistant:' }}{% endif %}"""
TEMPLATES = {"chatml": "<|im_end|>", "gemma": "<end_of_turn>", "turns.jinja": "<|turn_end|>"}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<|turn|>",
           "<|turn_end|>"]
TOKENS_MOST = 24
RUN_FILE = """
[run]
name = "{name}"
steps = 120
sample_tokens = 0
[model]
from = "base"
[data]
dir = "{name}-rows"
sequence_length = 64
[objective]
name = "sft"
[batch]
lanes = 2
micro_batch = 2
[optimizer]
lr = 3e-3
weight_decay = 0.0
[schedule]
warmup_steps = 5
[eval]
interval_steps = 0
[checkpoint]
interval_steps = 120
[runtime]
threads = 1
"""


def make_base(folder):
    """A model with random weights, and its tokenizer, which ends texts with <|endoftext|>."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    model.train_from_iterator([*ANSWERS, *ANSWERS.values()], tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<|endoftext|>",
                                                     chat_template=OWN_TEMPLATE)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(3)
    transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id)).save_pretrained(folder)


class Site:
    """A directory in which the program runs."""

    def __init__(self, program, folder):
        self.program, self.path = program, pathlib.Path(folder)
        make_base(self.path / "base")
        (self.path / "turns.jinja").write_text(FILE_TEMPLATE)
        (self.path / "taught.jsonl").write_text("".join(
            json.dumps({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})
            + "\n" for question, answer in ANSWERS.items() for _ in range(20)))

    def call(self, *words):
        done = subprocess.run([str(self.program), *words], cwd=self.path, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"actortrain {' '.join(words)}: {done.stderr}")
        return done.stdout

    def tuned(self, name, chat_template):
        self.call("data", "prepare", "--input", "taught.jsonl", "--tokenizer", "base", "--template", chat_template,
                  "--row-length", "64", "--val-fraction", "0", "--out", f"{name}-rows")
        (self.path / f"{name}.toml").write_text(RUN_FILE.format(name=name))
        self.call("run", f"{name}.toml")
        self.call("export", f"runs/{name}", "--format", "hf", "--out", f"{name}-export")
        return self.path / f"{name}-export"


def differences(site, name, chat_template, end):
    export = site.tuned(name, chat_template)
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    model = transformers.AutoModelForCausalLM.from_pretrained(export).eval()
    render = ["--template", chat_template]
    for question, answer in ANSWERS.items():
        messages = [{"role": "user", "content": question}]
        asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        wanted = subprocess.run([str(site.program), "render", *render, "--add-generation-prompt"], cwd=site.path,
                                input=json.dumps(messages), capture_output=True, text=True, check=True).stdout
        if asked != wanted:
            yield f"{question}: the export asks {asked!r}, and the data {wanted!r}"
        found = site.call("generate", f"runs/{name}", "--chat", "--prompt", question, "--temperature", "0",
                          "--tokens", str(TOKENS_MOST)).rstrip("\n")
        if found != answer:
            yield f"{question}: generate --chat says {found!r}, not {answer!r}"
        ids = tokenizer(asked, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            out = model.generate(ids, max_new_tokens=TOKENS_MOST, do_sample=False, pad_token_id=0)[0, ids.shape[1]:]
        said = tokenizer.decode(out)
        if said != answer + end:
            yield f"{question}: transformers says {said!r}, not {answer + end!r}"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        site = Site(program, folder)
        for chat_template, end in TEMPLATES.items():
            name = chat_template.split(".")[0]
            wrong = list(differences(site, name, chat_template, end))
            for each in wrong:
                print(f"{chat_template}: {each}")
            different += bool(wrong)
    print(f"{len(TEMPLATES)} templates, {len(ANSWERS)} questions each, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
