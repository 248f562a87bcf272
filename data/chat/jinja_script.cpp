#include "data/chat/jinja_script.hpp"

namespace train::data {

const char* jinja_script() {
  return R"python(
import datetime, json, os, pprint, random, resource, sys, textwrap, time

READER = os.fdopen(int(sys.argv[1]), "rb", closefd=False)
WRITER = os.fdopen(int(sys.argv[1]), "wb", closefd=False)


def answer(head, body=b""):
    head["cpu"] = time.process_time()
    WRITER.write(json.dumps(head).encode() + b"\n" + body)
    WRITER.flush()


# Where the Python that started the program has jinja2: before other packages, after Python's own.
FOLDERS = [one for one in os.environ.get("ACTORTRAIN_PYTHON_PATH", "").split(os.pathsep) if one]
PLACE = [os.path.basename(one) in ("site-packages", "dist-packages") for one in sys.path] + [True]
sys.path[PLACE.index(True):PLACE.index(True)] = FOLDERS

try:
    import jinja2, jinja2.constants, jinja2.ext, jinja2.nodes, jinja2.sandbox, jinja2.utils
    if tuple(int(part) for part in jinja2.__version__.split(".")[:2]) < (3, 1):
        raise ImportError("its jinja2 is %s, older than 3.1" % jinja2.__version__)
except ImportError as error:
    answer({"missing": str(error)})
    sys.exit(0)


class Rendering:
    """What the template has printed, and where its generation blocks began to."""
    characters = 0
    blocks = []


class Message(dict):
    """A message that notes which of its members a template asks for."""
    asked = set()

    def __getitem__(self, key):
        Message.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key):
        Message.asked.add(key)
        return super().__contains__(key)

    def get(self, key, *otherwise):
        Message.asked.add(key)
        return super().get(key, *otherwise)

    def _whole(name):
        def method(self):
            Message.asked.update(dict.keys(self))
            return getattr(dict, name)(self)
        return method

    keys, values, items, __iter__, copy, __repr__ = map(
        _whole, ("keys", "values", "items", "__iter__", "copy", "__repr__"))


# What jinja2 says of a message that lacks a member names its type.
Message.__name__, Message.__module__ = "dict", "builtins"


def unasked(messages):
    """Members that say something and that the template asked for in no message."""
    names = {name for each in messages for name, value in dict.items(each)
             if value is not None and value != "" and value != [] and name not in Message.asked}
    return sorted(names - {"role", "content", "reasoning_content", "thinking", "reasoning"})


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_generated", [jinja2.nodes.Const(line)])
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _generated(self, line, caller):
        text = caller()
        Rendering.blocks.append((line, Rendering.characters, text))
        return text


class Refused(Exception):
    """What ends a rendering; its line may be that of a block."""
    line = None


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(form):
    return TODAY.strftime(form)


class TemplateDict:
    """What templates call dict: not the type, from which Python's insides are reached."""
    fromkeys = staticmethod(dict.fromkeys)

    def __call__(self, *values, **named):
        return dict(*values, **named)


class TemplateNamespace(jinja2.utils.Namespace):
    """A namespace without names that begin as Python's own do."""

    def __init__(*values, **named):
        jinja2.utils.Namespace.__init__(values[0])
        for name, value in dict(*values[1:], **named).items():
            values[0][name] = value

    def __setitem__(self, name, value):
        if str(name).startswith("_"):
            raise jinja2.exceptions.SecurityError("a namespace has no attribute %r" % name)
        super().__setitem__(name, value)


def with_reasoning(message):
    """What a message's author thought has three names; templates know it by two of them."""
    for name in ("reasoning_content", "thinking", "reasoning"):
        if message.get(name) is not None:
            return {"thinking": message[name], **message, "reasoning_content": message[name]}
    return message


def compiled(name):
    if name not in TEMPLATES:
        TEMPLATES[name] = ENVIRONMENT.from_string(SETUP["sources"][name])
    return TEMPLATES[name]


def spans_in(text):
    spans = []
    for line, begin, block in Rendering.blocks:
        # What a macro or a set block holds is printed later, or never.
        if not text.startswith(block, begin):
            refused = Refused("what this generation block holds is printed elsewhere (it is in a "
                              "macro or a set block), so that its place is not known")
            refused.line = line
            raise refused
        spans.append([begin, begin + len(block)])
    return spans


def render(wanted, conversation):
    template = compiled(wanted["template"])
    random.seed(0)
    messages = conversation["messages"][:wanted["messages"]]
    for index, content in wanted.get("contents", ()):
        messages[index] = dict(messages[index], content=content)
    messages = [Message(each) for each in messages]
    Message.asked = set()
    values = {"documents": None, **SETUP["tokens"], **conversation["variables"],
              "messages": messages,
              "tools": conversation["tools"],
              "add_generation_prompt": wanted["add_generation_prompt"]}
    Rendering.characters, Rendering.blocks = 0, []
    pieces = []
    limit = SETUP["output_limit"]
    for piece in template.generate(values):
        if piece:
            pieces.append(piece)
        Rendering.characters += len(piece)
        if Rendering.characters > limit:
            break
    text = "".join(pieces)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise Refused("it prints half of a pair of surrogates, which is no character")
    if len(body) > limit:
        raise Refused("it prints more than %d bytes" % limit)
    if not wanted["spans"]:
        return body, [], []
    return body, spans_in(text), unasked(messages)


def line_of(error):
    if isinstance(error, jinja2.exceptions.TemplateSyntaxError):
        return error.lineno
    line = getattr(error, "line", None)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def reason_of(error):
    if isinstance(error, RecursionError):
        return "it recurses too deep"
    if isinstance(error, jinja2.exceptions.TemplateError):
        return str(error.message)
    if isinstance(error, SyntaxError):
        return str(error.msg)
    if isinstance(error, Refused):
        return str(error)
    return "%s: %s" % (type(error).__name__, error)


def run():
    conversation = None
    for line in READER:
        request = json.loads(line)
        if "variables" in request:
            conversation = request
            conversation["messages"] = [with_reasoning(each) for each in request["messages"]]
            continue
        try:
            body, spans, names = render(request, conversation)
            answer({"bytes": len(body), "spans": spans, "unasked": names}, body)
        except MemoryError:
            body = spans = None
            Rendering.blocks = []
            answer({"error": "it takes more than %d MiB of memory"
                    % (SETUP["memory_limit"] >> 20), "line": None})
        except Exception as error:
            answer({"error": reason_of(error)[:1000], "line": line_of(error)})


SETUP = json.loads(READER.readline())
TODAY = datetime.datetime(*SETUP["date"])
os.environ["TZ"] = "UTC"
time.tzset()
TEMPLATES = {}
ENVIRONMENT = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
ENVIRONMENT.filters["tojson"] = tojson
ENVIRONMENT.globals["raise_exception"] = raise_exception
ENVIRONMENT.globals["strftime_now"] = strftime_now
ENVIRONMENT.globals["dict"] = TemplateDict()
ENVIRONMENT.globals["namespace"] = TemplateNamespace
# From here on an untrusted template runs: besides the sandbox, no file can be opened or grow.
# Before that, a template makes Python import the modules that it imports on first use.
try:
    "".join(text.encode("latin-1").decode("ascii") for text in
            ENVIRONMENT.from_string("{{ '\\u0041' }}{{ 1 // 0 }}").generate())
except ZeroDivisionError:
    pass
for what, limit in ((resource.RLIMIT_AS, SETUP["memory_limit"]), (resource.RLIMIT_CORE, 0),
                    (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 0)):
    resource.setrlimit(what, (limit, limit))
answer({"pid": os.getpid(), "python": sys.version.split()[0], "jinja2": jinja2.__version__})
run()
)python";
}

}  // namespace train::data
