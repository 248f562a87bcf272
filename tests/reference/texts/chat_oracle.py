"""What transformers makes of conversations, with a clock that stands still. Needs PyPI's
transformers and jinja2.
"""

import datetime

from transformers.utils import chat_template_utils

DATE = "2024-07-26"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class StoppedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DATE)


chat_template_utils.datetime = StoppedClock


def rendered(source, messages, keywords, add_generation_prompt, tokens=TOKENS):
    """{"text", "spans"} or {"error"}, of apply_chat_template with a tokenizer of these tokens."""
    keywords = {**tokens, **keywords}
    marked = "generation" in source
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            [messages], chat_template=source, add_generation_prompt=add_generation_prompt,
            return_assistant_tokens_mask=marked, **keywords)
    except Exception as error:
        return {"error": str(error)}
    return {"text": texts[0], "spans": [list(span) for span in spans[0]] if spans else []}
