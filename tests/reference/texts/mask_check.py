"""Compares the loss masks of `actortrain data prepare` with transformers' masks of the assistant's tokens,
for every chat template of an installed TRL that marks what the assistant says, or of other folders.

    python3 tests/reference/texts/mask_check.py build/release/actortrain [FOLDER...]

Each template is given three times: as it is, without its marks, so that the answers' places have to be found,
and so with --train-on last. What transformers makes of the marks is the oracle of all. Conversations of one to
four turns with answers of one letter, answers that occur in headers and earlier turns, thoughts in both forms,
calls of tools, empty and null contents, by a tokenizer that is trained on them here. The ids have to be equal.
The masks have to be equal, too, but for what data/README.md says: a token that ends a turn is trained though
the marks leave it out, white space behind it is not, and without marks what asks for an answer is not. Of a
character of several tokens at a mark's end transformers marks the first one. A conversation that is dropped has to
have its cause. Needs PyPI's transformers, tokenizers, jinja2, numpy and trl
(without what it depends on). Prints what differs, and counts; exit code 1 if anything does.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import tokenizers
from transformers import PreTrainedTokenizerFast

import chat_oracle
import chat_sweep
from mask_conversations import made

DOCUMENT = numpy.dtype([("first", "<u8"), ("pair", "<i8"), ("length", "<u4"), ("trained", "<u4"),
                        ("source", "<u4"), ("side", "<u4")])
SPECIAL = re.compile(r"<\|[^|<>\s]{1,40}\|?>|<[a-z_]{1,24}\|>|<\uff5c[^\uff5c<>]{1,40}\uff5c>|</?[a-z_]{2,24}>|\[/?[A-Z_]{2,24}\]")
BEGIN = re.compile(r"\{%(-?)\s*generation\s*(-?)%\}")
END = re.compile(r"\{%(-?)\s*endgeneration\s*(-?)%\}")


def without_marks(source):
    """The same text without marks: blocks that are always printed, with the same white space."""
    return END.sub(r"{%\1 endif \2%}", BEGIN.sub(r"{%\1 if true \2%}", source))


def tokenizer_of(source, folder, texts):
    """A byte-level BPE in `folder` whose special tokens are those that the template names."""
    special = sorted(set(SPECIAL.findall(source)) | set(chat_oracle.TOKENS.values()))
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model.train_from_iterator(texts + [source], trainer)
    model.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(chat_oracle.TOKENS))
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), chat_template=source,
                                   **chat_oracle.TOKENS)


def rendered(tokenizer, line, **more):
    return tokenizer.apply_chat_template(line["messages"], tools=line.get("tools"), **more)


def wanted(tokenizer, line):
    """The ids, and the mask; or why there are none. Jinja prints null as the text None, which nobody wants, or
    refuses it: then null stands for an empty content."""
    masked = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    empty = dict(line, messages=[dict(each, content="") if each["content"] is None else each
                                 for each in line["messages"]])
    try:
        try:
            nones = rendered(tokenizer, line, tokenize=False).count("None")
        except Exception:
            nones = -1
        if nones and (nones < 0 or rendered(tokenizer, empty, tokenize=False).count("None") < nones):
            line = empty
        found = rendered(tokenizer, line, **masked)
        # What the template does not write is not trained.
        text = re.sub(r"\s", "", rendered(tokenizer, line, tokenize=False))
        for each in line["messages"]:
            if re.sub(r"\s", "", (each["content"] or "").strip().split("\n")[-1]) not in text:
                return {"error": "it leaves out a content"}
    except Exception as error:
        return {"error": str(error)}
    return {"ids": list(found["input_ids"]), "mask": list(found["assistant_masks"])}


def questions(tokenizer, line):
    """What the template ends with before each answer."""
    ends = []
    for number, message in enumerate(line["messages"]):
        if message["role"] == "assistant":
            for content in (None, ""):
                earlier = [each if each["content"] else dict(each, content=content)
                           for each in line["messages"][:number]]
                try:
                    ends.append(rendered(tokenizer, dict(line, messages=earlier), tokenize=False,
                                         add_generation_prompt=True))
                except Exception:
                    continue
    return ends


def by_program(program, folder, lines, more=()):
    """Ids and mask of each line that was not dropped, and why others were."""
    (folder / "in.jsonl").write_text("".join(json.dumps(dict(each, number=str(i))) + "\n"
                                             for i, each in enumerate(lines)))
    words = [program, "data", "prepare", "--input", folder / "in.jsonl", "--out", folder / "out",
             "--tokenizer", folder, "--row-length", "16384", "--packing", "none", "--val-fraction", "0",
             "--date", chat_oracle.DATE, "--source-key", "number", "--max-dropped", "1", "--force", *more]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        return {}, {"all": done.stderr.strip()}, {}
    meta = json.loads((folder / "out/meta.json").read_text())
    ids = numpy.fromfile(folder / "out/train.tokens", dtype="<u2" if meta["dtype"] == "uint16" else "<u4")
    mask = numpy.unpackbits(numpy.fromfile(folder / "out/train.mask", dtype="u1"), bitorder="little")
    found = {}
    for each in numpy.fromfile(folder / "out/train.documents", dtype=DOCUMENT):
        piece = slice(int(each["first"]), int(each["first"]) + int(each["length"]))
        found[int(meta["sources"][each["source"]])] = (ids[piece].tolist(), mask[piece].tolist())
    return found, meta["report"]["dropped_by_reason"], meta["report"]["masks"]


def last_run(mask):
    """The mask without all but its last run."""
    end = len(mask) - mask[::-1].index(1)
    begin = end
    while begin and mask[begin - 1]:
        begin -= 1
    return [int(begin <= place < end) for place in range(len(mask))]


def difference(tokenizer, ids, theirs, ours, asks):
    """What the masks differ in: the first place that has no reason, or how often each reason."""
    special = set(tokenizer.all_special_ids) | {
        number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    counts = collections.Counter()
    asked, ended = "", False
    for place, (wants, has) in enumerate(zip(theirs, ours)):
        text = tokenizer.decode([ids[place]])
        # What asks for an answer stands before it, or between it and the end of another one.
        if wants and not has and (place == 0 or not theirs[place - 1] or asked or ended):
            asked += text
        elif wants == has:
            asked = ""
        ended = ids[place] in special if has else ended and text.strip() == ""
        if wants == has:
            continue
        if has and not wants and ids[place] in special and ours[place - 1]:
            counts["ends"] += 1
        elif has and not wants and "\ufffd" in text:
            counts["pieces"] += 1
        elif wants and not has and text.strip() == "":
            counts["spaces"] += 1
        elif asked.strip() and any(asked.strip() in end[-len(asked) - 40:] for end in asks):
            counts["asked"] += 1
        else:
            around = tokenizer.decode(ids[max(0, place - 5):place + 5])
            return f"token {place}, {around!r}: {wants} wanted, {has} found", counts
    return "", counts


class Comparison:
    """Of one template with one way to prepare."""

    def __init__(self, name, tokenizer, lines, total):
        self.name, self.tokenizer, self.lines, self.total = name, tokenizer, lines, total

    def run(self, found, dropped, last):
        for number, (line, wants) in enumerate(self.lines):
            if "error" in wants or not any(wants["mask"]):
                self.total["refused"] += 1
                continue
            self.total["conversations"] += 1
            if number not in found:
                self.total["dropped"] += 1
                continue
            ids, mask = found[number]
            wrong, counts = "ids", {}
            if wants["ids"] == ids:
                theirs = last_run(wants["mask"]) if last else wants["mask"]
                wrong, counts = difference(self.tokenizer, ids, theirs, mask, questions(self.tokenizer, line))
            self.total.update(counts)
            self.total["different" if wrong else "equal"] += 1
            if wrong:
                print(f"  {self.name}, conversation {number}: {wrong}: {json.dumps(line)[:300]}")
        for reason, each in dropped.items():
            print(f"  {self.name}, dropped: {reason}: {each}")


def compare(program, file, total):
    source = file.read_text(encoding="utf-8")
    conversations = made()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts = [str(turn["content"]) for each in conversations for turn in each["messages"]]
        tokenizer = tokenizer_of(source, folder, texts)
        lines = [(each, wanted(tokenizer, each)) for each in conversations]
        total["templates"] += 1
        for kind, text, more in (("marked", source, ()), ("without marks", without_marks(source), ()),
                                 ("last", without_marks(source), ("--train-on", "last"))):
            (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
            last = bool(more)
            kept = [(line, wants) for line, wants in lines
                    if not last or (line["messages"][-1]["role"] == "assistant"
                                    and line["messages"][-2]["role"] != "assistant")]
            found, dropped, methods = by_program(program, folder, [line for line, _ in kept], more)
            print(f"{file.name}, {kind}: {len(kept)} conversations, {methods}")
            Comparison(f"{file.name}, {kind}", tokenizer, kept, total).run(found, dropped, last)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    total = collections.Counter({name: 0 for name in (
        "templates", "conversations", "refused", "equal", "dropped", "ends", "spaces", "asked", "pieces",
        "different")})
    for file in chat_sweep.templates(sys.argv[2:]):
        if BEGIN.search(file.read_text(encoding="utf-8")):
            compare(program, file, total)
    print(", ".join(f"{count} {name}" for name, count in total.items()))
    sys.exit(1 if total["different"] else 0)


if __name__ == "__main__":
    main()
