// The table of messages is made from the comments of the code: actors/messages/README.md.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

constexpr const char* kReadme = "actors/messages/README.md";

struct Message {
  std::size_t line = 0;  // index
  std::string name;
  std::string comment;  // one line
  std::vector<std::string> fields;
  bool crosses = false;  // processes
};

// The lines of a comment above `line` that begin with `mark` and a space, joined by spaces.
std::string comment_above(const SourceFile& file, std::size_t line, const std::string& mark) {
  std::size_t first = line;
  while (first > 0 && file.lines[first - 1].starts_with(mark + " ")) {
    --first;
  }
  std::string text;
  for (; first < line; ++first) {
    text += (text.empty() ? "" : " ") + file.lines[first].substr(mark.size() + 1);
  }
  return text;
}

std::vector<std::string> fields_below(const SourceFile& file, std::size_t line) {
  static const std::regex kField("^  [A-Za-z_:0-9<>]+ ([a-z_0-9]+)( = [^;]*)?;.*");
  std::vector<std::string> fields;
  for (std::size_t i = line + 1; i < file.lines.size() && file.lines[i] != "};"; ++i) {
    std::smatch match;
    if (std::regex_match(file.lines[i], match, kField)) {
      fields.push_back(fmt::format("`{}`", match[1].str()));
    }
  }
  return fields;
}

// The fields of a struct of run/ that is a message, too.
std::vector<std::string> fields_in_run(const SourceTree& tree, const std::string& name) {
  for (const SourceFile& file : tree) {
    const auto line = std::find(file.lines.begin(), file.lines.end(), "struct " + name + " {");
    if (file.path.starts_with("run/") && line != file.lines.end()) {
      return fields_below(file, static_cast<std::size_t>(line - file.lines.begin()));
    }
  }
  return {};
}

std::vector<Message> messages_of(const SourceFile& file, const SourceTree& tree) {
  static const std::regex kStruct("^(?:using run::([A-Za-z]+);|struct ([A-Za-z]+) \\{(\\};)?)$");
  std::vector<Message> messages;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    std::smatch match;
    if (std::regex_match(file.lines[i], match, kStruct)) {
      const std::string name = match[1].str() + match[2].str();
      messages.push_back(
          {i, name, comment_above(file, i, "///"),
           match[1].matched   ? fields_in_run(tree, name)
           : match[3].matched ? std::vector<std::string>{}
                              : fields_below(file, i),
           !file.contains(fmt::format("TRAIN_LOCAL_MESSAGE(train::actors::{})", name))});
    }
  }
  return messages;
}

bool declares_messages(const SourceFile& file) {
  return file.path.starts_with("actors/messages/") && file.path.ends_with("_messages.hpp");
}

// "Rank -> batch: Read the tokens." or, of a struct that only messages hold, "Part of X: A wait."
bool says_from_whom(const std::string& comment) {
  static const std::regex kRoute("^([A-Z][^:]* -> [^:]+|Part of [A-Za-z]+): [A-Z].*\\.$");
  return std::regex_match(comment, kRoute);
}

Findings check_messages(const SourceTree& tree) {
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!declares_messages(file)) {
      continue;
    }
    for (const Message& message : messages_of(file, tree)) {
      if (!says_from_whom(message.comment)) {
        findings.push_back(
            finding(file, message.line,
                    fmt::format("{}: its comment must be \"/// From -> to: When it is sent.\"",
                                message.name)));
      }
    }
  }
  return findings;
}

std::string row(const Message& message) {
  const std::size_t colon = message.comment.find(": ");
  std::string route = message.comment.substr(0, colon);
  for (std::size_t at = route.find("->"); at != std::string::npos; at = route.find("->")) {
    route.replace(at, 2, "→");
  }
  const std::string when =
      colon == std::string::npos ? std::string() : message.comment.substr(colon + 2);
  return fmt::format(
      "| `{}` | {} | {} | {} | {} |\n", message.name, route, when,
      message.fields.empty() ? "–" : fmt::format("{}", fmt::join(message.fields, ", ")),
      message.crosses ? "yes" : "–");
}

std::string render(const SourceTree& tree) {
  std::string text =
      "# Messages\n\n"
      "`./dev docs` writes this file from the comments in `actors/messages/*_messages.hpp`; a test "
      "keeps it equal to\nthem. \"Crosses processes\": the message may be "
      "sent "
      "to another process; the others stay\nin one. No field is a float: `FloatBits` carries the "
      "bit pattern of a double.\n";
  for (const SourceFile& file : tree) {
    if (!declares_messages(file)) {
      continue;
    }
    const auto space = std::find(file.lines.begin(), file.lines.end(), "namespace train::actors {");
    const auto line = static_cast<std::size_t>(space - file.lines.begin());
    text += fmt::format(
        "\n## {}\n\n{}\n\n| message | from → to | when and what | fields | crosses processes |\n"
        "|---|---|---|---|---|\n",
        file.name(), comment_above(file, line, "//"));
    for (const Message& message : messages_of(file, tree)) {
      text += row(message);
    }
  }
  return text;
}

std::string committed() {
  std::ifstream file(fmt::format("{}/{}", ACTORTRAIN_SOURCE_DIR, kReadme));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("messages: every message says from whom it comes, to whom and when", "[tidy][messages]") {
  const Findings findings = check_messages(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("messages: the README's table is the code's", "[tidy][messages]") {
  const std::string rendered = render(repository());
  CHECK(rendered.find("`Command`") != std::string::npos);
  const bool same = committed() == rendered;
  INFO(kReadme << " is not what the comments say; renew it with ./dev docs");
  CHECK(same);
}

TEST_CASE("messages: the README is written anew", "[.write]") {
  std::ofstream file(fmt::format("{}/{}", ACTORTRAIN_SOURCE_DIR, kReadme));
  file << render(repository());
  REQUIRE(file.flush());
}

TEST_CASE("messages: a comment without sender and receiver is found", "[tidy][messages]") {
  const auto judge = [](const std::string& text) {
    return check_messages({make_file("actors/messages/a_messages.hpp", text)}).size();
  };
  CHECK(judge("/// Rank -> batch: Read.\nstruct A {};\n") == 0);
  CHECK(judge("/// Part of A: A wait.\nstruct B {\n") == 0);
  CHECK(judge("using run::A;\n") == 1);
  CHECK(judge("/// Rank -> batch, and back: Read\nstruct A {};\n") == 1);
  CHECK(judge("/// From every rank.\nstruct A {};\n") == 1);
  CHECK(judge("struct A {};\n") == 1);
  CHECK(judge("/// Rank -> batch: Read.\nstruct A {};\nstruct B {};\n") == 1);
}

TEST_CASE("messages: a table is made of comments and fields", "[tidy][messages]") {
  const SourceFile file = make_file("actors/messages/a_messages.hpp",
                                    "// What ranks say.\n"
                                    "namespace train::actors {\n"
                                    "/// Rank -> batch -> rank: Read\n"
                                    "/// it: now.\n"
                                    "struct Read {\n"
                                    "  std::int64_t step = 0;  ///< Finished.\n"
                                    "  std::vector<std::string> names;\n"
                                    "};\n"
                                    "/// Batch -> rank: Done.\n"
                                    "struct ReadDone {};\n"
                                    "/// Rank -> batch: Read again.\n"
                                    "using run::Again;\n"
                                    "TRAIN_LOCAL_MESSAGE(train::actors::Read)\n");
  const std::string text =
      render({file, make_file("actors/messages/float_bits.hpp", "struct F {"),
              make_file("run/again.hpp", "struct Again {\n  bool all = false;\n};\n")});
  CHECK(
      text.ends_with("\n## a_messages.hpp\n\nWhat ranks say.\n\n"
                     "| message | from → to | when and what | fields | crosses processes |\n"
                     "|---|---|---|---|---|\n"
                     "| `Read` | Rank → batch → rank | Read it: now. | `step`, `names` | – |\n"
                     "| `ReadDone` | Batch → rank | Done. | – | yes |\n"
                     "| `Again` | Rank → batch | Read again. | `all` | yes |\n"));
}

}  // namespace
}  // namespace train::tidy
