"""Single answers, wanted in words and unwanted in digits, and the small model that answers in either."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from small_model.make import assistant, make_chat_model, prepare_chats, questions, user  # noqa: E402

make_chat_model()
prepare_chats("labelled", [{"prompt": [user(question)], "completion": [assistant(in_words if i % 2 else in_digits)],
                            "label": i % 2 == 1} for i, (question, in_words, in_digits) in enumerate(questions(7, 1500))])
