// The documents' lists of the files on a way through the program are ways through its code.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

struct Way {
  std::string document;
  std::string heading;
  std::size_t most = 0;  // files
};

const std::vector<Way>& ways() {
  static const std::vector<Way> kWays = {
      {"docs/architecture.md", "## From the token file to the update", 26},
      {"docs/recovery.md", "## From a rank's death to the next step", 24},
      {"docs/architecture.md", "## From a conversation to its gradient", 30},
      {"docs/architecture.md", "## From a model's directory to the weights", 20}};
  return kWays;
}

// A source and its header are one.
std::string stem(const std::string& path) { return path.substr(0, path.rfind('.')); }

// The sources that the items of a numbered list below `heading` link to, without their endings.
std::vector<std::string> files_of(const SourceFile& document, const std::string& heading) {
  static const std::regex kItem("^([0-9]+\\.|  ) .*");  // Its first line, or a further one.
  static const std::regex kLink("\\[([^\\]]+\\.(cpp|hpp|cu|cuh))\\]\\(");
  std::vector<std::string> files;
  auto line = std::find(document.lines.begin(), document.lines.end(), heading);
  for (; line != document.lines.end() && (*line == heading || !line->starts_with("## ")); ++line) {
    if (!std::regex_match(*line, kItem)) {
      continue;
    }
    for (std::sregex_iterator link(line->begin(), line->end(), kLink), end; link != end; ++link) {
      files.push_back(stem((*link)[1].str()));
    }
  }
  return files;
}

void add_includes(const SourceTree& tree, const std::string& path, std::set<std::string>& stems) {
  static const std::regex kInclude("^#include \"([^\"]+)\".*");
  if (const SourceFile* file = find_file(tree, path)) {
    for (const std::string& line : file->lines) {
      std::smatch match;
      if (line.starts_with("#include") && std::regex_match(line, match, kInclude)) {
        stems.insert(stem(match[1].str()));
      }
    }
  }
}

// Files that a file, or its header, includes directly or over one header.
std::set<std::string> reach_of(const SourceTree& tree, const std::string& file) {
  std::set<std::string> direct;
  add_includes(tree, file + ".cpp", direct);
  add_includes(tree, file + ".hpp", direct);
  direct.erase(file);
  std::set<std::string> all = direct;
  for (const std::string& one : direct) {
    add_includes(tree, one + ".hpp", all);
  }
  return all;
}

Findings check_way(const SourceTree& tree, const Way& way) {
  const SourceFile* document = find_file(tree, way.document);
  const auto files =
      document == nullptr ? std::vector<std::string>() : files_of(*document, way.heading);
  Findings findings;
  const auto add = [&](const std::string& text) {
    findings.push_back(fmt::format("{}, {}: {}", way.document, way.heading, text));
  };
  if (files.size() < 2 || files.size() > way.most) {
    add(fmt::format("{} files, of 2 to {}", files.size(), way.most));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto near = [&](std::size_t other) {
      return other < files.size() && (reach_of(tree, files[i]).contains(files[other]) ||
                                      reach_of(tree, files[other]).contains(files[i]));
    };
    // Messages, which bring an actor in, are no includes.
    const auto any_near = [&](std::size_t self) {
      bool any = false;
      for (std::size_t other = 0; other < files.size(); ++other) {
        any = any || (other != self && near(other));
      }
      return any;
    };
    if (find_file(tree, files[i] + ".cpp") == nullptr &&
        find_file(tree, files[i] + ".hpp") == nullptr) {
      add(files[i] + " does not exist");
    } else if (!near(i - 1) && !near(i + 1) && !(files[i].starts_with("actors/") && any_near(i))) {
      add(files[i] + " includes no neighbour and is included by none");
    }
  }
  return findings;
}

TEST_CASE("ways: each file of a way includes a neighbour or is included by one", "[tidy][ways]") {
  for (const Way& way : ways()) {
    const Findings findings = check_way(repository(), way);
    INFO(joined(findings));
    CHECK(findings.empty());
  }
}

TEST_CASE("ways: a file that is gone, or off the way, is found", "[tidy][ways]") {
  const auto judge = [](const std::string& list, std::size_t most = 3) {
    const SourceTree tree = {
        make_file("docs/a.md",
                  "## A way\n\n" + list + "## Another\n\n1. [run/z.cpp](../run/z.cpp)\n"),
        make_file("run/a.cpp", "#include \"run/between.hpp\"\n"),
        make_file("run/between.hpp", "#include \"run/b.hpp\"\n"),
        make_file("run/b.hpp", "\n"),
        make_file("run/c.cpp", "#include \"run/a.hpp\"\n"),
        make_file("run/d.cpp", "\n")};
    return check_way(tree, {"docs/a.md", "## A way", most}).size();
  };
  const auto item = [](const std::string& name) {
    return fmt::format("1. [run/{}](x): y.\n", name);
  };
  CHECK(judge(item("a.cpp") + item("b.hpp")) == 0);
  CHECK(judge(item("b.hpp") + item("a.cpp") + item("c.cpp")) == 0);
  CHECK(judge(item("a.cpp") + item("b.hpp") + item("d.cpp")) == 1);
  CHECK(judge(item("a.cpp") + item("b.hpp") + item("e.cpp")) == 1);
  CHECK(judge(item("a.cpp") + item("d.cpp") + item("c.cpp")) == 3);
  CHECK(judge(item("a.cpp") + item("b.hpp"), 1) == 1);
  const std::string more = "   Also [run/b.hpp](x), [run/c.cpp](x) and [a page](y.md).\n";
  CHECK(judge(item("a.cpp") + more) == 1);  // b and c do not include each other
  CHECK(judge(item("a.cpp") + more, 2) == 2);
  CHECK(judge(item("a.cpp") + item("b.hpp") + "\nText with [run/e.cpp](x).\n") == 0);
  CHECK(judge("") == 1);
}

}  // namespace
}  // namespace train::tidy
