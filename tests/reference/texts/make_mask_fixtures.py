"""Writes fixtures/masks.json: templates that do to conversations what published ones do, with marks around what
the model says; conversations in which an answer's place can be mistaken; and the text and the marked pieces
that transformers makes of them. Needs PyPI's transformers and jinja2.
"""

import json
import pathlib

import chat_oracle
from mask_check import without_marks
from mask_conversations import made

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/masks.json"

TEMPLATES = {
    # A question of its own for what the model thinks; what was thought is not printed again.
    "asks_for_a_thought": """{{ bos_token }}{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|Assistant|>' }}{% generation %}{{ (m.content or '').split('</think>')[-1] }}
{%- for c in m.tool_calls or [] %}{{ '<|call|>' + c.function.name + (c.function.arguments | tojson) }}{% endfor %}
{{- '<|sentence_end|>' }}{% endgeneration %}
{%- else %}{{ '<|' + m.role + '|>' + m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|Assistant|><think>\\n' }}{% endif %}""",
    # Thoughts of the answers behind the last question, with an empty one where there is none.
    "keeps_last_thoughts": """{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}{% set content = m.content or '' %}{% set thought = m.reasoning_content or '' %}
{%- if '</think>' in content %}{% set thought = content.split('</think>')[0].split('<think>')[-1] | trim %}
{%- set content = content.split('</think>')[-1] | trim %}{% endif %}{% generation %}
{%- if loop.index0 > ns.last %}{{ '<think>\\n' + thought + '\\n</think>\\n\\n' }}{% endif %}{{ content }}
{%- for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n' + c.function.name + (c.function.arguments | tojson) }}
{{- '\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    # Trimmed contents, no question of its own, another end of the last turn.
    "trims": """{{ bos_token }}{%- for m in messages %}
{%- if m.role == 'assistant' %}{% generation %}{{ ' ' + (m.content | trim) + ('</s>' if loop.last else '<|end|>') }}
{%- endgeneration %}
{%- elif m.role == 'system' %}{{ '<<SYS>>' + (m.content | trim) + '<</SYS>>' }}
{%- else %}{{ '[INST] ' + (m.content | trim) + ' [/INST]' }}{% endif %}{% endfor %}""",
    # The end of the whole text behind that of the last turn.
    "ends_the_text": """{%- for m in messages %}{{ '<|' + m.role + '|>\\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|end|>\\n' }}
{%- if loop.last %}{{ '<|endoftext|>' }}{% endif %}{% endgeneration %}
{%- else %}{{ m.content + '<|end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}""",
}


def outcome(source, line):
    found = chat_oracle.rendered(source, line["messages"], {"tools": line.get("tools")}, False)
    return found if "error" not in found and "None" not in found["text"] else {"error": True}


def main():
    lines = made(words=6)
    templates = [{"name": name, "source": without_marks(source), "outcomes": [outcome(source, each) for each in lines]}
                 for name, source in TEMPLATES.items()]
    OUTPUT.write_text(json.dumps({"tokens": chat_oracle.TOKENS, "date": chat_oracle.DATE, "lines": lines,
                                  "templates": templates}, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
