"""Writes fixtures/choices.json: a tiny Llama in float64 PyTorch answers questions of every layout.

Log-likelihoods by the definition: log-softmax of the logits at the positions before the continuation's
tokens. acc, acc_norm and acc_bytes by numpy.argmax, as lm-eval's process_results has it. Tokens are bytes.
Needs torch and transformers.
"""

import json
import math
import pathlib
import re

import numpy
import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT = 96  # tokens that the model sees
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
}
WORDS = ["rain", "stone", "a river", "grün", "seven", "light", "noise", "the old mill", "ash", "日本"]


def questions():
    random = numpy.random.RandomState(3)
    pick = lambda count: [WORDS[i] for i in random.choice(len(WORDS), count, replace=False)]
    mmlu, arc, hellaswag = [], [], []
    for i in range(9):
        choices = pick(4)
        mmlu.append({"question": f" What is {WORDS[i]} number {i * 37}? ", "subject": "odd_things",
                     "choices": choices, "answer": int(random.randint(4))})
        if i % 3 == 0:
            del mmlu[-1]["subject"]
            mmlu[-1]["answer"] = "ABCD"[mmlu[-1]["answer"]]
    for i in range(7):
        count = 3 + i % 3
        labels = [str(k + 1) for k in range(count)] if i % 2 else list("ABCDE"[:count])
        arc.append({"id": f"q{i}", "question": f"Which of these is like {WORDS[i]}?",
                    "choices": {"text": pick(count), "label": labels},
                    "answerKey": labels[int(random.randint(count))]})
    for i in range(8):
        endings = [f"{'[step] ' if k == i % 4 else ''}takes {word} and goes {'far ' * (k + i % 2)}away."
                   for k, word in enumerate(pick(4))]
        hellaswag.append({"ind": i, "activity_label": "Walking home", "ctx_a": f"[header] A man sees {WORDS[i]} [title] He waits.",
                          "ctx_b": "then HE" if i % 2 else "", "endings": endings, "label": str(int(random.randint(4)))})
    return {"mmlu.jsonl": mmlu, "arc.jsonl": arc, "hellaswag.jsonl": hellaswag}


def plain(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub("\\[.*?\\]", "", text).replace("  ", " ")


def prompt(name, line):
    """Context, continuations, what lengths are of, index of the answer."""
    if name == "mmlu.jsonl":
        letters = "ABCD"
        about = line.get("subject", "").replace("_", " ")
        context = f"The following are multiple choice questions (with answers) about {about}.\n\n" if about else ""
        context += line["question"].strip() + "\n"
        context += "".join(f"{a}. {b}\n" for a, b in zip(letters, line["choices"])) + "Answer:"
        answer = line["answer"]
        return context, letters, letters.index(answer) if isinstance(answer, str) else answer
    if name == "arc.jsonl":
        return f"Question: {line['question']}\nAnswer:", line["choices"]["text"], line["choices"]["label"].index(line["answerKey"])
    context = plain(line["activity_label"] + ": " + line["ctx_a"] + " " + line["ctx_b"].capitalize())
    return context, [plain(ending) for ending in line["endings"]], int(line["label"])


def log_likelihood(model, context, continuation):
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, continuation = context[:-spaces], context[-spaces:] + continuation
    whole = list((context + continuation).encode())
    count = len(whole) - len(context.encode())
    read = whole[-(CONTEXT + 1):]
    with torch.no_grad():
        logits = model(torch.tensor([read[:-1]])).logits[0].log_softmax(-1)
    targets = read[-count:]
    rows = logits[-count:]
    return sum(float(rows[k, token]) for k, token in enumerate(targets)), count


def main():
    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).double().eval()
    weights = {}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name == "lm_head.weight":
                continue
            base = 1.0 if "norm" in name else 0.0
            value = base + (torch.randn(tensor.shape) * (0.2 if base else 0.4)).mul(64).round().div(64)
            tensor.copy_(value)
            weights[name] = {"shape": list(tensor.shape), "sixty_fourths": (value * 64).round().int().flatten().tolist()}
    model.tie_weights()
    fixture = {"config": CONFIG, "context": CONTEXT, "weights": weights, "files": {}, "expected": {}}
    every = []
    for name, lines in questions().items():
        fixture["files"][name] = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        rows = []
        for line in lines:
            context, choices, answer = prompt(name, line)
            scored = [log_likelihood(model, context, " " + choice) for choice in choices]
            lls = numpy.array([value for value, _ in scored])
            others = [value for k, value in enumerate(lls) if k != answer]
            rows.append({
                "log_likelihoods": lls.tolist(),
                "acc": float(numpy.argmax(lls) == answer),
                "acc_norm": float(numpy.argmax(lls / numpy.array([float(len(c)) for c in choices])) == answer),
                "acc_bytes": float(numpy.argmax(lls / numpy.array([float(len(c.encode())) for c in choices])) == answer),
                "margin": lls[answer] - max(others),
                "correct_prob": math.exp(lls[answer]) / sum(math.exp(value) for value in lls),
                "log_likelihood": lls[answer], "tokens": scored[answer][1]})
        every += rows
        fixture["expected"][name] = {"questions": [row["log_likelihoods"] for row in rows], **means(rows)}
    fixture["expected"]["all"] = means(every)
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "choices.json"
    path.write_text(json.dumps(fixture, ensure_ascii=False) + "\n")
    print(path, path.stat().st_size, fixture["expected"]["all"])


def means(rows):
    of = lambda key: sum(row[key] for row in rows) / len(rows)
    return {**{key: of(key) for key in ("acc", "acc_norm", "acc_bytes", "margin", "correct_prob")},
            "perplexity": math.exp(-sum(row["log_likelihood"] for row in rows) / sum(row["tokens"] for row in rows))}


if __name__ == "__main__":
    main()
