"""Conversations in which an answer's place can be mistaken, for mask_check.py and make_mask_fixtures.py: lines of
a data set, {"messages": ..., "tools": ...}."""

import random

from chat_conversations import WEATHER, call, result, say

WORDS = ["the", "answer", "is", "42", "Hello", "world", "\u00e9t\u00e9", "\u65e5\u672c", "\U0001f600", "don't", "x+y",
         "code:", "\n", "\n\n", "  ", "end.", "why?", "<b>", "a_b", "\t"]
# Each occurs in a header, in what asks for an answer, or in a question below.
SHORT = ["A", "B", "yes", "s", "is", "1", "t", "user", "assistant", "model", "sis", "end", "think", "\u30a2"]


def text(chance):
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 30))).strip() or "nothing"


def of_words(count, chance):
    """Of one to four turns, every third with a system message."""
    for number in range(count):
        turns = say(("s", text(chance))) if number % 3 == 0 else []
        for _ in range(chance.randint(1, 4)):
            turns += say(("u", text(chance)), ("a", text(chance)))
        yield {"messages": turns}


def of_short_answers(chance):
    for number, answer in enumerate(SHORT):
        yield {"messages": say(("u", "A or B? yes, 1 is this assistant's."), ("a", answer))}
        turns = say(("s", f"Say {answer}.")) if number % 2 == 0 else []
        for turn in range(2 + number % 3):
            turns += say(("u", f"{answer} or {turn}?"), ("a", chance.choice(SHORT) if turn else answer))
        yield {"messages": turns}


def thinking(content, thought, inline):
    if inline:
        return {"role": "assistant", "content": f"<think>\n{thought}\n</think>\n\n{content}"}
    return {"role": "assistant", "reasoning_content": thought, "content": content}


def of_thoughts():
    for inline in (False, True):
        for turns in (1, 2, 3):
            messages = []
            for turn in range(turns):
                messages += say(("u", f"And {turn}?")) + [thinking(f"first {turn}", f"hmm {turn}", inline)]
            yield {"messages": messages}
        yield {"messages": say(("u", "yes?"), ("a", "yes"), ("u", "no?")) + [thinking("no", "yes", inline)]}
        yield {"messages": say(("u", "yes?")) + [thinking("yes", "no", inline)] + say(("u", "1?"), ("a", "1"))}


def of_calls():
    asked = say(("u", "Weather in Oslo?"))
    for content in (None, "", "I look."):
        called = [call(("get_weather", {"city": "Oslo"}), content=content), result("{\"celsius\": 1}")]
        yield {"messages": asked + called + say(("a", "1")), "tools": [WEATHER]}
        yield {"messages": asked + called + say(("a", "1"), ("u", "And Rome?"), ("a", "is 1")), "tools": [WEATHER]}
        thought = dict(called[0], reasoning_content="A call.")
        yield {"messages": asked + [thought, called[1]] + say(("a", "1"), ("u", "Is it?"), ("a", "yes")),
               "tools": [WEATHER]}
    both = call(("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome", "days": [1]}), content=None)
    yield {"messages": asked + [both, result("1"), result("2", id="call00001")] + say(("a", "1 and 2")),
           "tools": [WEATHER]}


def of_special_tokens():
    """Answers whose texts have tokens that end turns."""
    for token in ("<|return|>", "<|im_end|>", "<|end|>", "<|eot_id|>", "</s>", "<|endoftext|>"):
        for answer in (f"It ends with {token}", f"{token}", f"In {token} between", f"It ends with {token}\n"):
            yield {"messages": say(("u", f"What is {token}?"), ("a", answer))}
            yield {"messages": say(("u", "Which?"), ("a", answer), ("u", "And?"), ("a", "yes"))}


def of_answers_in_a_row():
    for count in (2, 3):
        row = say(*[("a", f"part {number}") for number in range(count)])
        yield {"messages": say(("u", "yes?")) + row}
        yield {"messages": say(("u", "1?")) + row + say(("u", "2?"), ("a", "is"))}
        yield {"messages": say(("u", "1?"), ("a", "is"), ("u", "2?")) + row}
    yield {"messages": say(("u", "yes?"), ("a", "yes"), ("a", "yes"))}


def made(words=30):
    chance = random.Random(11)
    lines = [*of_words(words, chance), *of_short_answers(chance), *of_thoughts(), *of_calls()]
    lines += [{"messages": say(("s", ""), ("u", ""), ("a", "empty"))}]
    return lines + [*of_special_tokens(), *of_answers_in_a_row()]
