"""Conversations of every shape that chat templates tell apart, for the scripts beside this one."""

WEATHER = {"type": "function",
           "function": {"name": "get_weather", "description": "Say how the weather is \u2013 today.",
                        "parameters": {"type": "object",
                                       "properties": {
                                           "city": {"type": "string", "description": "Where"},
                                           "units": {"type": "string", "enum": ["metric", "imperial"]},
                                           "days": {"type": "array",
                                                    "items": {"type": "integer", "minimum": 0}}},
                                       "required": ["city"]}}}
SEARCH = {"type": "function",
          "function": {"name": "search", "description": "Look for \"words\" & <tags>.",
                       "parameters": {"type": "object",
                                      "properties": {
                                          "query": {"type": "string"},
                                          "filters": {"type": "object", "properties": {
                                              "after": {"type": "string"},
                                              "exact": {"type": "boolean", "default": True}}}},
                                      "required": ["query", "filters"]}}}


def say(*turns):
    """Turns by the first letter of their role."""
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool", "d": "developer"}
    return [{"role": roles[role], "content": content} for role, content in turns]


def call(*calls, content=""):
    return {"role": "assistant", "content": content,
            "tool_calls": [{"id": f"call{i:05}", "type": "function",
                            "function": {"name": name, "arguments": arguments}}
                           for i, (name, arguments) in enumerate(calls)]}


def result(content, name="get_weather", id="call00000"):
    return {"role": "tool", "name": name, "tool_call_id": id, "content": content}


ASKED = say(("u", "How warm is it in K\u00f6ln?"))
CALLED = ASKED + [call(("get_weather", {"city": "K\u00f6ln", "days": [0, 1], "units": "metric"})),
                  result("{\"celsius\": 21.5}")]

# What apply_chat_template is given: the messages, and keywords.
CONVERSATIONS = [
    (say(("u", "Hello.")), {}),
    (say(("u", "  Spaces around.\n\n"), ("a", "\n Me too. ")), {}),
    (say(("s", "Be brief."), ("u", "Name a colour.")), {}),
    (say(("s", "Be brief."), ("u", "Name a colour."), ("a", "Blue.")), {}),
    (say(("s", " Be\nvery brief. "), ("u", "One?"), ("a", "1"), ("u", "Two?"), ("a", "2"), ("u", "Three?")),
     {}),
    (say(("u", "One?"), ("a", "1"), ("u", "Two?"), ("a", "2")), {}),
    (say(("u", "Gr\u00fc\u00dfe, \u4e16\u754c \U0001f600 <b>&amp;</b> \"quoted\" 'single' {{ x }} {% y %}"),
         ("a", "\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439! <|im_end|>")), {}),
    (say(("u", "What is 2+2?"), ("a", "<think>\nTwo and two.\n</think>\n\n4")), {}),
    (say(("u", "What is 2+2?"), ("a", "<think>\nTwo and two.\n</think>\n\n4"), ("u", "And 3+3?"),
         ("a", "<think>Three twice.</think>6")), {}),
    (say(("s", ""), ("u", ""), ("a", "")), {}),
    (ASKED, {"tools": [WEATHER]}),
    (CALLED, {"tools": [WEATHER]}),
    (CALLED + say(("a", "21.5 degrees.")), {"tools": [WEATHER, SEARCH]}),
    (say(("s", "Use tools.")) + ASKED + [
        call(("get_weather", {"city": "Bonn"}),
             ("search", {"query": "wind", "filters": {"exact": False, "after": None, "n": 1e-7}}),
             content="Let me look."),
        result("[1, 2]"), result("none", "search", "call00001")] + say(("a", "Calm."), ("u", "Thanks!")),
     {"tools": [WEATHER, SEARCH]}),
    (say(("u", "One?"), ("a", "1")) + [dict(say(("u", "Two?"))[0], name="Ada", weight=0.5, tags=["x", 2])],
     {"documents": [{"title": "Numbers", "text": "One, two."}]}),
    ([{"role": "user", "content": [{"type": "text", "text": " First. "}, {"type": "text", "text": "Second."}]},
      {"role": "assistant", "content": [{"type": "text", "text": "Parts."}]}], {}),
    ([{"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
      {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}], {}),
    (say(("d", "Answer in French."), ("u", "Good day.")) +
     [{"role": "assistant", "content": "Bonjour.", "reasoning_content": "He greets.\nI greet."}],
     {"enable_thinking": False}),
    (say(("u", "Go on."), ("u", "Twice."), ("a", "Yes."), ("a", "Yes.")), {"enable_thinking": True}),
    (say(("u", "Hello."), ("a", "x" * 40 + "\n" + "y\t" * 10)) + [{"role": "user", "content": None}], {}),
]
