"""Conversations in which numbers are read in words, and the small model that has never seen one."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from small_model.make import CHATS, assistant, make_base, prepare_chats, questions, user  # noqa: E402

make_base()
prepare_chats("words", [{"messages": [user(question), assistant(in_words)]} for question, in_words, _ in questions(5, CHATS)])
