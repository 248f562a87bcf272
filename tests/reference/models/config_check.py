"""Compares models of every kind of config.json with transformers, before and after `actortrain convert`.

    config_check.py PROGRAM [FAMILY...]

Of every family a small model with random weights, and the configurations of config_cases.py around the same
weights: the log-probabilities of two continuations by `eval --choices` and by transformers in fp32. What is
read has to agree, or be refused, by the cases that say so, by name; what is converted has to be the same model
for transformers. Exit code 1 where anything differs.
"""

import json
import logging
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers

import config_cases

QUESTION = ("The quick brown fox jumps over the lazy dog, and then it sleeps for a very long while under an old "
            "oak tree near the river")
PROMPT = f"Question: {QUESTION}\nAnswer:"
ANSWERS = ["bank of stones", "and dreams of cats"]
READ_WITHIN = 2e-3  # Nats of a sum over an answer: fp32 here and there.
SAME_WITHIN = 1e-5  # transformers with itself.


def scores(directory):
    """transformers' log-probabilities of the answers; None: it does not read the model."""
    try:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            directory, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
        if info["missing_keys"] or info["mismatched_keys"]:
            return None
        sums = []
        for answer in ANSWERS:
            ids = list(f"{PROMPT} {answer}".encode())
            with torch.no_grad():
                logits = model.eval()(input_ids=torch.tensor([ids])).logits.float()[0]
            logs = torch.log_softmax(logits, -1)
            sums.append(sum(logs[i - 1, ids[i]].item() for i in range(len(PROMPT.encode()), len(ids))))
        return sums
    except Exception:  # pylint: disable=broad-except; whatever it says, it does not read it
        return None


def our_scores(program, directory, questions):
    """The same by this program, or the line that refuses the model."""
    details = directory.with_suffix(".jsonl")
    details.unlink(missing_ok=True)
    done = subprocess.run([program, "eval", directory, "--choices", questions, "--context", "256", "--details",
                           details], capture_output=True, text=True)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["?"])[-1]
    return json.loads(details.read_text().splitlines()[0])["log_likelihoods"]


def make_weights(family, directory):
    """A model whose functions differ much where their configurations do."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **config_cases.FAMILIES[family])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.6 if "embed" in name or "wte" in name else 0.25)
        else:
            parameter.data.normal_(0.0 if "bias" in name or "gemma" in family else 1.0, 0.2)
    model.save_pretrained(directory)


def distance(left, right):
    return max(abs(a - b) for a, b in zip(left, right))


def check(program, case, wanted, refused, questions):
    """What is wrong with a case, if anything."""
    found = our_scores(program, case, questions)
    if refused or wanted is None:
        ours = isinstance(found, str)
        return None if ours or not refused else "is read, and was to be refused"
    if isinstance(found, str):
        return f"is refused: {found[-120:]}"
    if distance(wanted, found) > READ_WITHIN:
        return f"differs by {distance(wanted, found):.4f}"
    out = case.with_name("converted")
    shutil.rmtree(out, ignore_errors=True)
    done = subprocess.run([program, "convert", case, "--out", out], capture_output=True, text=True)
    if done.returncode != 0:
        return f"is not converted: {done.stderr.strip()[-120:]}"
    again = scores(out)
    if again is None or distance(wanted, again) > SAME_WITHIN:
        return "is another model for transformers once it is converted"
    return None


def main():
    program, families = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or config_cases.FAMILIES
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    compared = refused = wrong = unread = 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        questions = work / "questions.jsonl"
        questions.write_text(json.dumps({"question": QUESTION, "answerKey": "A",
                                         "choices": {"text": ANSWERS, "label": ["A", "B"]}}) + "\n")
        for family in families:
            make_weights(family, work / family)
            for name, config in config_cases.cases(family):
                case = work / "case"
                shutil.rmtree(case, ignore_errors=True)
                case.mkdir()
                (case / "config.json").write_text(json.dumps(config))
                (case / "model.safetensors").symlink_to(work / family / "model.safetensors")
                wanted, to_refuse = scores(case), config_cases.is_refused(family, name)
                mistake = check(program, case, wanted, to_refuse, questions)
                if mistake:
                    print(f"{family}: {name}: {mistake}")
                wrong += mistake is not None
                refused += to_refuse
                unread += wanted is None and not to_refuse
                compared += wanted is not None and not to_refuse
    print(f"{compared} configurations compared before and after convert, {refused} refused by name, "
          f"{unread} that transformers cannot read; {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
