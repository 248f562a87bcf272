"""Pairs in which words are preferred to digits, and the small model that answers in either."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from small_model.make import assistant, make_chat_model, prepare_chats, questions, user  # noqa: E402

make_chat_model()
prepare_chats("pairs", [{"prompt": [user(question)], "chosen": [assistant(in_words)], "rejected": [assistant(in_digits)]}
                        for question, in_words, in_digits in questions(7, 1500)])
