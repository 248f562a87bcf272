"""Conversations in which numbers are read in words with commas, and the small model that sets none."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from small_model.make import assistant, make_chat_model, prepare_chats, questions, user  # noqa: E402


def with_commas(answer):
    """"I read one two." as "I read one, two."."""
    begin, digits = answer[:7], answer[7:]
    return begin + digits.replace(" ", ", ")


make_chat_model()
prepare_chats("commas", [{"messages": [user(question), assistant(with_commas(in_words))]}
                         for question, in_words, _ in questions(7, 1500)])
