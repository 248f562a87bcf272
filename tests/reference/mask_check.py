"""Compares the loss masks of `actortrain data prepare` with transformers' masks of the assistant's tokens,
for every chat template of an installed TRL that marks what the assistant says, or of other folders.

    python3 tests/reference/mask_check.py build/release/actortrain [FOLDER...]

Fifty made conversations each, by a tokenizer that is trained on them here. The ids have to be equal. The
masks have to be equal too but for what storage/README.md says: a token that ends a turn is trained though
the marks leave it out, and white space behind it is not. Needs PyPI's transformers, tokenizers, jinja2,
numpy and trl (without what it depends on). Prints what differs, and counts; exit code 1 if anything does.
"""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy
import tokenizers
from transformers import PreTrainedTokenizerFast

import chat_oracle
import chat_sweep

DOCUMENT = numpy.dtype([("first", "<u8"), ("pair", "<i8"), ("length", "<u4"), ("trained", "<u4"),
                        ("source", "<u4"), ("side", "<u4")])
WORDS = ["the", "answer", "is", "42", "Hello", "world", "\u00e9t\u00e9", "\u65e5\u672c", "\U0001f600", "don't", "x+y",
         "code:", "\n", "\n\n", "  ", "end.", "why?", "<b>", "a_b", "\t"]
SPECIAL = re.compile(r"<\|[^|<>\s]{1,40}\|>|<\uff5c[^\uff5c<>]{1,40}\uff5c>|</?[a-z_]{2,24}>|\[/?[A-Z_]{2,24}\]")


def text(chance):
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 30))).strip() or "nothing"


def conversations(count, system):
    chance = random.Random(11)
    made = []
    for number in range(count):
        turns = [{"role": "system", "content": text(chance)}] if system and number % 3 == 0 else []
        for _ in range(chance.randint(1, 4)):
            turns.append({"role": "user", "content": text(chance)})
            turns.append({"role": "assistant", "content": text(chance)})
        made.append(turns)
    return made


def tokenizer_of(source, folder):
    """A byte-level BPE in `folder` whose special tokens are those that the template names."""
    special = sorted(set(SPECIAL.findall(source)) | set(chat_oracle.TOKENS.values()))
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model.train_from_iterator(
        [turn["content"] for each in conversations(50, True) for turn in each] + [source], trainer)
    model.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(chat_oracle.TOKENS))
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), chat_template=source,
                                   **chat_oracle.TOKENS)


def wanted(tokenizer, messages):
    try:
        found = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True,
                                              return_assistant_tokens_mask=True)
    except Exception as error:
        return {"error": str(error)}
    return {"ids": list(found["input_ids"]), "mask": list(found["assistant_masks"])}


def by_program(program, folder, lines):
    (folder / "in.jsonl").write_text("".join(json.dumps({"messages": each}) + "\n" for each in lines))
    words = [program, "data", "prepare", "--input", folder / "in.jsonl", "--out", folder / "out",
             "--tokenizer", folder, "--row-length", "8192", "--packing", "none", "--val-fraction", "0",
             "--date", chat_oracle.DATE]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    meta = json.loads((folder / "out/meta.json").read_text())
    ids = numpy.fromfile(folder / "out/train.tokens", dtype="<u2" if meta["dtype"] == "uint16" else "<u4")
    mask = numpy.unpackbits(numpy.fromfile(folder / "out/train.mask", dtype="u1"), bitorder="little")
    documents = numpy.fromfile(folder / "out/train.documents", dtype=DOCUMENT)
    if len(documents) != len(lines):
        sys.exit(f"{len(documents)} documents of {len(lines)}: {done.stdout}")
    pieces = [slice(int(each["first"]), int(each["first"]) + int(each["length"])) for each in documents]
    return [(ids[piece].tolist(), mask[piece].tolist()) for piece in pieces], meta["report"]["masks"]


def difference(tokenizer, ids, theirs, ours):
    """What the masks differ in: the first place that has no reason, or how often each reason."""
    special = set(tokenizer.all_special_ids) | {
        number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    counts = {"ends": 0, "spaces": 0}
    for place, (wants, has) in enumerate(zip(theirs, ours)):
        if wants == has:
            continue
        if has and not wants and ids[place] in special and ours[place - 1]:
            counts["ends"] += 1
        elif wants and not has and tokenizer.decode([ids[place]]).strip() == "":
            counts["spaces"] += 1
        else:
            around = tokenizer.decode(ids[max(0, place - 5):place + 5])
            return f"token {place}, {around!r}: {wants} wanted, {has} found", counts
    return "", counts


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    total = {"templates": 0, "conversations": 0, "refused": 0, "equal": 0, "ends": 0, "spaces": 0,
             "different": 0}
    for file in chat_sweep.templates(sys.argv[2:]):
        source = file.read_text(encoding="utf-8")
        if not re.search(r"\{%-?\s*generation", source):
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            tokenizer = tokenizer_of(source, folder)
            made = [(each, wanted(tokenizer, each)) for each in conversations(50, True)]
            usable = [each for each in made if "error" not in each[1]]
            total["refused"] += len(made) - len(usable)
            if not usable:
                print(f"{file.name}: transformers refuses every conversation: {made[0][1]['error']}")
                continue
            total["templates"] += 1
            found, methods = by_program(program, folder, [each for each, _ in usable])
            print(f"{file.name}: {len(usable)} conversations, {methods}")
            for number, ((_, wants), (ids, mask)) in enumerate(zip(usable, found)):
                total["conversations"] += 1
                wrong, counts = "ids", {"ends": 0, "spaces": 0}
                if wants["ids"] == ids:
                    wrong, counts = difference(tokenizer, ids, wants["mask"], mask)
                for reason, count in counts.items():
                    total[reason] += count
                total["different" if wrong else "equal"] += 1
                if wrong:
                    print(f"  conversation {number}: {wrong}")
    print(", ".join(f"{count} {name}" for name, count in total.items()))
    sys.exit(1 if total["different"] else 0)


if __name__ == "__main__":
    main()
