// What a file may look like: lengths, header guards, words that must not stay.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <string>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

constexpr std::size_t kLongestLine = 100;  // columns
constexpr std::size_t kLongestFunction = 70;
constexpr std::size_t kLargestFolder = 30;  // files

// Columns of UTF-8 text: every byte but the continuations.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xc0) != 0x80;
  }));
}

Findings check_lengths(const SourceTree& tree) {
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!file.is_code()) {
      continue;
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (columns(file.lines[i]) > kLongestLine) {
        findings.push_back(finding(file, i, fmt::format("longer than {} columns", kLongestLine)));
      }
    }
  }
  return findings;
}

std::size_t indentation(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Formatted code: a function starts on the last line that is indented like its closing brace, and
// only a function (or a block inside one, which is shorter) closes with a brace alone on its line.
Findings check_functions(const SourceTree& tree) {
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!file.is_code()) {
      continue;
    }
    for (const std::size_t level : {std::size_t{0}, std::size_t{2}}) {
      std::size_t start = 0;
      for (std::size_t i = 0; i < file.lines.size(); ++i) {
        const std::string& line = file.lines[i];
        if (line == std::string(level, ' ') + "}") {
          if (i - start + 1 > kLongestFunction) {
            findings.push_back(
                finding(file, start, fmt::format("a function of {} lines", i - start + 1)));
          }
        } else if (!line.empty() && line.front() != '#' && indentation(line) == level) {
          start = i;
        }
      }
    }
  }
  return findings;
}

Findings check_headers(const SourceTree& tree) {
  Findings findings;
  static const std::regex kAnyUsing("^\\s*using\\s+namespace\\s.*");
  static const std::regex kCafUsing("^\\s*using\\s+namespace\\s+(::)?caf\\b.*");
  for (const SourceFile& file : tree) {
    if (!file.is_code()) {
      continue;
    }
    // A "-inl.hpp" is included once per instruction set; its own toggle guards it.
    const bool guarded =
        std::find(file.lines.begin(), file.lines.end(), "#pragma once") != file.lines.end() ||
        (file.path.ends_with("-inl.hpp") && file.contains("HWY_TARGET_TOGGLE"));
    if (file.is_header() && !guarded) {
      findings.push_back(finding(file, 0, "a header without #pragma once"));
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (std::regex_match(file.lines[i], file.is_header() ? kAnyUsing : kCafUsing)) {
        findings.push_back(finding(file, i, "a using-directive that leaks names"));
      }
    }
  }
  return findings;
}

Findings check_words(const SourceTree& tree) {
  // Taken apart, so that this file does not hold them.
  static const std::regex kBanned(std::string("\\b(TO") + "DO|FIX" + "ME|XX" + "X|HA" + "CK)\\b");
  Findings findings;
  for (const SourceFile& file : tree) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      // Few lines have a capital of theirs; regular expressions are slow.
      const bool may = file.lines[i].find_first_of("XFTH") != std::string::npos;
      if (may && std::regex_search(file.lines[i], kBanned)) {
        findings.push_back(finding(file, i, "unfinished work; finish it or leave it out"));
      }
    }
  }
  return findings;
}

constexpr std::size_t kLongestReadme = 100;  // lines
constexpr std::size_t kFirstCommand = 20;    // Line by which a newcomer finds it.

// The README is short, and its first fenced block of commands stands near its top.
Findings check_readme(const SourceTree& tree) {
  const SourceFile* readme = find_file(tree, "README.md");
  if (readme == nullptr) {
    return {"README.md: does not exist"};
  }
  Findings findings;
  if (readme->lines.size() > kLongestReadme) {
    findings.push_back(
        finding(*readme, kLongestReadme, fmt::format("more than {} lines", kLongestReadme)));
  }
  const auto fence = std::find(readme->lines.begin(), readme->lines.end(), "```sh");
  const auto command = static_cast<std::size_t>(fence - readme->lines.begin()) + 2;  // Below it.
  if (fence == readme->lines.end() || command > kFirstCommand) {
    findings.push_back(finding(*readme, kFirstCommand - 1, "no block of sh begins above"));
  }
  return findings;
}

constexpr std::size_t kMostFragments = 20;

// Comments that begin with "Of", "What" or "The same of" are fragments without a noun: each names
// its thing, with few exceptions. Tests and benchmarks are left out.
Findings check_comment_beginnings(const SourceTree& tree) {
  static const std::regex kFragment("//[/<]* ?(Of|What|The same of) ");
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!file.is_code() || folder_of(file.path) == "tests" || folder_of(file.path) == "bench") {
      continue;
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (has_any(file.lines[i], {"// ", "///"}) && std::regex_search(file.lines[i], kFragment)) {
        findings.push_back(finding(file, i, "a comment that begins without a noun or a verb"));
      }
    }
  }
  return findings.size() > kMostFragments ? findings : Findings();
}

// Text of a line that a user may read: of a document all but code in backquotes, of a source of the
// program its string literals.
std::string user_text(const SourceFile& file, const std::string& line) {
  static const std::regex kCode("`[^`]*`");
  static const std::regex kLiteral("\"([^\"\\\\]|\\\\.)*\"");
  if (file.path.ends_with(".md")) {
    return std::regex_replace(line, kCode, "");
  }
  std::string text;
  if (file.is_code() && folder_of(file.path) != "tests" && folder_of(file.path) != "bench") {
    for (std::sregex_iterator at(line.begin(), line.end(), kLiteral), end; at != end; ++at) {
      text += at->str();
    }
  }
  return text;
}

// Documents and messages use the field's words, not what this project once called a thing.
Findings check_document_words(const SourceTree& tree) {
  static const std::regex kPrivate(
      "\\b(played|on loan|leas(e|es|ed)|poison(s|ed)?|knock(s|ed)?|stranger|to the bit|the mend|"
      "(go|goes|gone) on from)\\b");
  Findings findings;
  for (const SourceFile& file : tree) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (!has_any(file.lines[i], {"played", "on loan", "leas", "poison", "knock", "stranger",
                                   "to the bit", "the mend", "on from"})) {
        continue;
      }
      std::smatch match;
      const std::string text = user_text(file, file.lines[i]);
      if (std::regex_search(text, match, kPrivate)) {
        findings.push_back(finding(file, i, fmt::format("\"{}\" is a private word", match.str())));
      }
    }
  }
  return findings;
}

// Folders with more files than a reader can look through; sub-folders count on their own.
Findings check_folders(const SourceTree& tree) {
  std::map<std::string, std::size_t> counts;
  for (const SourceFile& file : tree) {
    ++counts[file.path.substr(0, file.path.size() - file.name().size())];
  }
  Findings findings;
  for (const auto& [folder, count] : counts) {
    if (count > kLargestFolder && folder != "tests/reference/fixtures/") {
      findings.push_back(fmt::format("{}: {} files, at most {}: give some of them a folder", folder,
                                     count, kLargestFolder));
    }
  }
  return findings;
}

TEST_CASE("size: folders are small", "[tidy][size]") {
  const Findings findings = check_folders(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("size: large folders are found", "[tidy][size]") {
  const auto folder = [](const std::string& path, std::size_t files) {
    SourceTree tree;
    for (std::size_t i = 0; i < files; ++i) {
      tree.push_back(make_file(fmt::format("{}/a{}.cpp", path, i), "\n"));
    }
    tree.push_back(make_file(path + "/inner/a.cpp", "\n"));
    return check_folders(tree);
  };
  CHECK(folder("engine/a", 31) ==
        Findings{"engine/a/: 31 files, at most 30: give some of them a folder"});
  CHECK(folder("engine/a", 30).empty());
  CHECK(folder("tests/reference/fixtures", 40).empty());
}

TEST_CASE("size: lines are short", "[tidy][size]") {
  const Findings findings = check_lengths(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("size: functions are short", "[tidy][size]") {
  const Findings findings = check_functions(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("size: headers are guarded and leak no names", "[tidy][size]") {
  const Findings findings = check_headers(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("size: nothing is marked as unfinished", "[tidy][size]") {
  const Findings findings = check_words(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

std::string repeated(const std::string& text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

TEST_CASE("size: documents and messages use the words of the field", "[tidy][size]") {
  const Findings findings = check_document_words(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("size: README.md is short and begins with commands", "[tidy][size]") {
  const Findings findings = check_readme(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("size: comments begin with a noun or a verb", "[tidy][size]") {
  const Findings findings = check_comment_beginnings(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("size: long lines are found", "[tidy][size]") {
  CHECK(check_lengths({make_file("a.cpp", repeated("x", 101))}) ==
        Findings{"a.cpp:1: longer than 100 columns"});
  CHECK(check_lengths({make_file("a.cpp", repeated("é", 100))}).empty());
  CHECK(check_lengths({make_file("a.md", repeated("x", 101))}).empty());
}

TEST_CASE("size: long functions are found, wherever they are", "[tidy][size]") {
  const auto function = [](const std::string& indent, std::size_t body) {
    return fmt::format("{0}void f(int a,\n{0}       int b) {{\n{1}{0}}}\n", indent,
                       repeated(fmt::format("{}  work();\n", indent), body));
  };
  CHECK(check_functions({make_file("a.cpp", fmt::format("\n{}", function("", 68)))}) ==
        Findings{"a.cpp:2: a function of 71 lines"});
  CHECK(check_functions({make_file("a.cpp", function("", 67))}).empty());
  CHECK(
      check_functions({make_file("a.hpp", fmt::format("class A {{\n{}}};\n", function("  ", 68)))})
          .size() == 1);
  CHECK(check_functions({make_file("a.cpp", function("", 60) + function("", 60))}).empty());
  CHECK(check_functions(
            {make_file("a.cpp", fmt::format("int table[] = {{\n{}}};\n", repeated("  1,\n", 90)))})
            .empty());
}

TEST_CASE("size: bad headers are found", "[tidy][size]") {
  CHECK(check_headers({make_file("a.hpp", "int a;\n")}) ==
        Findings{"a.hpp:1: a header without #pragma once"});
  CHECK(check_headers({make_file("a-inl.hpp", "int a;\n")}).size() == 1);
  CHECK(check_headers({make_file("a-inl.hpp", "#ifdef HWY_TARGET_TOGGLE\n")}).empty());
  CHECK(check_headers({make_file("a.hpp", "#pragma once\n using namespace std;\n")}).size() == 1);
  CHECK(check_headers({make_file("a.cpp", "using namespace caf;\n")}).size() == 1);
  CHECK(check_headers({make_file("a.cpp", "using namespace std::literals;\n")}).empty());
}

TEST_CASE("size: banned words are found in any file", "[tidy][size]") {
  CHECK(check_words({make_file("a.md", std::string("TO") + "DO: more\n")}).size() == 1);
  CHECK(check_words({make_file("a.cpp", std::string("// FIX") + "ME\n")}).size() == 1);
  CHECK(check_words({make_file("a.cpp", "// to do lists\n")}).empty());
}

TEST_CASE("size: a long README.md, or one with late commands, is found", "[tidy][size]") {
  const auto judge = [](std::size_t before, std::size_t after) {
    return check_readme({make_file(
        "README.md", repeated("a\n", before) + "```sh\nb\n```\n" + repeated("a\n", after))});
  };
  CHECK(judge(18, 79).empty());
  CHECK(judge(18, 80) == Findings{"README.md:101: more than 100 lines"});
  CHECK(judge(19, 0).size() == 1);
  CHECK(check_readme({make_file("README.md", "a\n")}).size() == 1);
  CHECK(check_readme({}).size() == 1);
}

TEST_CASE("size: comments without a noun are found when they are many", "[tidy][size]") {
  const auto judge = [](const std::string& path, std::size_t count, const std::string& line) {
    return check_comment_beginnings({make_file(path, repeated(line + "\n", count))}).size();
  };
  for (const char* const line : {"int a;  ///< Of b.", "// What b has.", "/// The same of c."}) {
    CAPTURE(line);
    CHECK(judge("a.hpp", kMostFragments, line) == 0);
    CHECK(judge("a.hpp", kMostFragments + 1, line) == kMostFragments + 1);
    CHECK(judge("tests/a.cpp", kMostFragments + 1, line) == 0);
  }
  CHECK(judge("a.cpp", kMostFragments + 1, "// Offset. Whatever of it.") == 0);
}

TEST_CASE("size: private words are found in documents and messages alone", "[tidy][size]") {
  CHECK(check_document_words({make_file("a.md", "resumes to the bit\n")}) ==
        Findings{"a.md:1: \"to the bit\" is a private word"});
  CHECK(
      check_document_words({make_file("a.md", "the message `lease`, in release mode\n")}).empty());
  CHECK(check_document_words({make_file("run/a.cpp", "// poisoned\n")}).empty());
  CHECK(check_document_words({make_file("run/a.cpp", "log(\"a \\\"b\\\": \" \"a lease\");\n")}) ==
        Findings{"run/a.cpp:1: \"lease\" is a private word"});
  CHECK(
      check_document_words({make_file("run/a.cpp", "log(\"released\");  // poisoned\n")}).empty());
  CHECK(check_document_words({make_file("tests/a.cpp", "log(\"poisoned\");\n")}).empty());
}

}  // namespace
}  // namespace train::tidy
