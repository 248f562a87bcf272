// What a stranger's template may not do, and what the machine may not do to a template.

#include <chrono>
#include <thread>

#include "tests/data/chat/chat_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/script.hpp"

using namespace train;
using namespace train::data;
using namespace train::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* kLoop =
    "{% for i in range(99999) %}{% for j in range(99999) %}{{ '' }}{% endfor %}{% endfor %}";

/// A template that loops, raises or greets, as the first message says.
const std::string kMoody =
    std::string("{% if messages[0].content == 'loop' %}") + kLoop +
    "{% elif messages[0].content == 'raise' %}{{ raise_exception('no') }}{% endif %}hello";

/// A program that says `line` in the place of Python, and then does something else.
std::string stand_in(const std::filesystem::path& path, const std::string& line,
                     const std::string& then) {
  return write_script(path, "exec bash -c 'echo \"" + line + "\" >&$1; " + then + "' x \"$7\"")
      .string();
}

ChatSettings in_a_second() {
  ChatSettings settings;
  settings.time_limit = 1s;
  return settings;
}

}  // namespace

TEST_CASE("chat templates: mistakes are one line with the template's line", "[data][chat]") {
  CHECK(outcome_of("\n{{ raise_exception('roles\nmust\talternate') }}") ==
        "a.jinja: line 2: roles must alternate");
  CHECK(outcome_of("x\n\n{% if %}") ==
        "a.jinja: line 3: Expected an expression, got 'end of statement block'");
  CHECK(outcome_of("x\n{{ messages[0].name.first }}") ==
        "a.jinja: line 2: 'dict object' has no attribute 'name'");
  CHECK(outcome_of("{{ nothing() }}") == "a.jinja: line 1: 'nothing' is undefined");
  CHECK(outcome_of("{{ 1 // 0 }}").starts_with("a.jinja: line 1: ZeroDivisionError: "));
  CHECK(outcome_of("{% macro f(x) %}{{ f(x + 1) }}{% endmacro %}{{ f(1) }}") ==
        "a.jinja: line 1: it recurses too deep");
  CHECK(outcome_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}") ==
        "a.jinja: it recurses too deep");
  CHECK(outcome_of("{{ \"\\ud800\" }}") ==
        "a.jinja: it prints half of a pair of surrogates, which is no character");
  CHECK(outcome_of(std::string("{{ raise_exception('") + std::string(5000, 'x') + "') }}").size() <
        300);
}

TEST_CASE("chat templates: nothing outside of the conversation can be reached", "[data][chat]") {
  for (const char* source :
       {"{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}",
        "{{ messages.append(1) }}", "{{ messages[0].pop('role') }}", "{{ messages[0].clear() }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "{% set ns = namespace(_x=1) %}",
        "{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{{ open('/etc/passwd') }}",
        "{{ self._TemplateReference__context.environment }}",
        "{{ '{0.__class__.__mro__}'.format(1).x.y }}", "{{ (1 | attr('__class__')).mro() }}"}) {
    INFO(source);
    CHECK(outcome_of(source).starts_with("a.jinja: line 1: "));
  }
}

TEST_CASE("chat templates: what takes too long, too much or prints too much is stopped",
          "[data][chat]") {
  CHECK(outcome_of(kLoop, in_a_second()) == "a.jinja: it takes more than 1 s of processor time");
  CHECK(outcome_of("{{ 10 ** (10 ** 9) }}", in_a_second()) ==
        "a.jinja: it takes more than 1 s of processor time");
  CHECK(outcome_of("{% for i in range(99999) %}{% for j in range(99999) %}" +
                   std::string(1000, 'x') + "{% endfor %}{% endfor %}") ==
        "a.jinja: it prints more than 16777216 bytes");
  ChatSettings small;
  small.output_limit_bytes = 7;
  CHECK(outcome_of("\u00e9\u00e9\u00e9!", small) == "\u00e9\u00e9\u00e9!");
  CHECK(outcome_of("\u00e9\u00e9\u00e9\u00e9", small) == "a.jinja: it prints more than 7 bytes");
  small = {};
  small.memory_limit_bytes = std::size_t{128} << 20U;
  CHECK(outcome_of("{{ 'x' * 200000000 }}", small) ==
        "a.jinja: it takes more than 128 MiB of memory");
}

TEST_CASE("chat templates: one that fails leaves the others be", "[data][chat]") {
  auto moody = template_of(kMoody, in_a_second());
  std::vector<Conversation> conversations;
  for (const char* content : {"a", "raise", "b", "loop", "c", "loop", "raise", "d"}) {
    conversations.push_back(turns({{"user", content}}));
  }
  std::string outcomes;
  for (const auto& text : moody.render_all(conversations)) {
    outcomes += (text ? text->text : text.error().message) + "; ";
  }
  CHECK(outcomes ==
        "hello; a.jinja: line 1: no; hello; a.jinja: it takes more than 1 s of processor time; "
        "hello; a.jinja: it takes more than 1 s of processor time; a.jinja: line 1: no; hello; ");
}

TEST_CASE("chat templates: a process that died is started again", "[data][chat]") {
  auto greeting = template_of("hello {{ messages | length }}");
  // It ends with the thread that rendered first.
  std::thread([&] { CHECK(outcome_of(greeting, turns({{"user", "x"}})) == "hello 1"); }).join();
  for (int i = 0; i < 3; ++i) {
    CHECK(outcome_of(greeting, turns({{"user", "x"}, {"user", "y"}})) == "hello 2");
  }
}

TEST_CASE("chat templates: many more texts than a socket holds", "[data][chat]") {
  auto echo = template_of("{% for m in messages %}{{ m.content * 3 }}{% endfor %}");
  std::vector<Conversation> conversations;
  for (int i = 0; i < 200; ++i) {
    conversations.push_back(turns({{"user", std::string(20'000, 'a') + std::to_string(i)}}));
  }
  const auto texts = echo.render_all(conversations);
  REQUIRE(texts.size() == 200);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    REQUIRE(texts[i].ok());
    REQUIRE(texts[i]->text.size() == 3 * conversations[i].messages[0].content()->size());
    REQUIRE(texts[i]->text.ends_with(std::to_string(i)));
  }
}

TEST_CASE("chat templates: the environment changes nothing", "[data][chat][CT-2]") {
  const TempDirectory directory;
  write_bytes(directory / "jinja2.py", "raise SystemExit('not this one')\n");
  write_bytes(directory / "json.py", "raise SystemExit('not this one')\n");
  write_bytes(directory / "sitecustomize.py", "raise SystemExit('not this one')\n");
  const std::string source =
      "{{ strftime_now('%A %B %H:%M %s %Z') }} {{ '\u0131\u00e9' | upper }} {{ 1234.5 }} {{ "
      "bos_token }}";
  const std::string before = outcome_of(source);
  CHECK(before == "Friday July 00:00 1721952000  I\u00c9 1234.5 ");
  const EnvironmentVariable path("PYTHONPATH", directory.path().string());
  const EnvironmentVariable home("PYTHONHOME", directory.path().string());
  const EnvironmentVariable startup("PYTHONSTARTUP", (directory / "json.py").string());
  const EnvironmentVariable encoding("PYTHONIOENCODING", "utf-16");
  const EnvironmentVariable locale("LC_ALL", "tr_TR.UTF-8");
  const EnvironmentVariable zone("TZ", "America/New_York");
  CHECK(outcome_of(source) == before);
}

TEST_CASE("chat templates: without a python3 that has jinja2 a line says what to do",
          "[data][chat]") {
  const TempDirectory directory;
  const auto with = [&](const std::vector<std::string>& programs) {
    ChatSettings settings;
    settings.pythons = programs;
    return outcome_of("hello", settings);
  };
  const std::string advice =
      "; install the package python3-jinja2, or use a built-in template, as with --template chatml";
  CHECK(with({"no-such-python"}) ==
        "a.jinja: rendering it needs python3 with jinja2 (there is no no-such-python)" + advice);
  const std::string bare =
      stand_in(directory / "bare", R"({\"missing\": \"no such module\", \"cpu\": 0})", "exit 0");
  CHECK(with({bare}) ==
        "a.jinja: rendering it needs python3 with jinja2 (" + bare + ": no such module)" + advice);
  const std::string ends = (directory / "ends").string();
  write_script(ends, "echo 'it is broken' >&2; exit 3");
  CHECK(with({ends}) == "a.jinja: rendering it needs python3 with jinja2 (" + ends + ": " + ends +
                            " ended (exit code 3): it is broken)" + advice);
  // The first that has it is taken, and remembered.
  CHECK(with({"no-such-python", ends, "python3", "/usr/bin/python3"}) == "hello");
}

TEST_CASE("chat templates: the Python that is named comes first, and its jinja2 is found",
          "[data][chat]") {
  const TempDirectory directory;
  // A Python that finds no package by itself.
  const std::string bare = (directory / "bare").string();
  write_script(bare, "exec python3 -S \"$@\"");
  const EnvironmentVariable python("ACTORTRAIN_PYTHON", bare);
  const ChatSettings named;
  CHECK(named.pythons == std::vector<std::string>{bare, "python3", "/usr/bin/python3"});
  ChatSettings only;
  only.pythons = {bare};
  CHECK(outcome_of("hello", only).find("No module named 'jinja2'") != std::string::npos);
  std::filesystem::create_directory(directory / "jinja2");
  write_bytes(directory / "jinja2/__init__.py", "raise ImportError('of the folder')\n");
  const EnvironmentVariable folders("ACTORTRAIN_PYTHON_PATH", ":" + directory.path().string());
  CHECK(outcome_of("hello", only).find(bare + ": of the folder") != std::string::npos);
  // Python's own modules come before those of a folder.
  write_bytes(directory / "json.py", "raise SystemExit('not this one')\n");
  CHECK(outcome_of("hello", only).find(bare + ": of the folder") != std::string::npos);
}

TEST_CASE("chat templates: a process that ends in the middle is a failure", "[data][chat]") {
  const TempDirectory directory;
  const std::string dies =
      stand_in(directory / "dies", R"({\"pid\": $$, \"cpu\": 0})", "kill -9 $$");
  ChatSettings settings;
  settings.pythons = {dies};
  auto chat_template = template_of("hello", settings);
  const auto text = chat_template.render(turns({{"user", "x"}}));
  REQUIRE_FALSE(text.ok());
  CHECK(text.error().kind == ErrorKind::failure);
  CHECK(text.error().message == "a.jinja: " + dies + " ended (killed by SIGKILL)");
}
