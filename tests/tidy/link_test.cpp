// What a document names must exist: the files it links to, and the paths it quotes.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <regex>
#include <string>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

using Exists = std::function<bool(const std::string& path)>;  // From the repository root.

// "](docs/a.md)" counts from the document's folder, "`engine/a.hpp`" from the repository root.
Findings check_paths(const SourceTree& tree, const Exists& exists) {
  static const std::regex kLink("\\]\\(([^)#: ]+)(#[^)]*)?\\)");
  static const std::regex kQuoted(
      "`((actors|base|checkpoint|cli|cmake|configs|docs|engine|kernels|run|scripts|storage|tests)/"
      "[A-Za-z0-9_./-]*(/|\\.[a-z]+))`");
  Findings findings;
  for (const SourceFile& file : tree) {
    // Measurements keep the names of their day.
    if (!file.path.ends_with(".md") || file.path.starts_with("bench/results/")) {
      continue;
    }
    const std::filesystem::path folder = std::filesystem::path(file.path).parent_path();
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const auto judge = [&](const std::regex& pattern, const std::filesystem::path& from) {
        const std::string& line = file.lines[i];
        for (std::sregex_iterator at(line.begin(), line.end(), pattern), end; at != end; ++at) {
          const std::string path = (from / (*at)[1].str()).lexically_normal().generic_string();
          if (!exists(path)) {
            findings.push_back(finding(file, i, fmt::format("{} does not exist", path)));
          }
        }
      };
      judge(kLink, folder);
      judge(kQuoted, "");
    }
  }
  return findings;
}

TEST_CASE("link: every path that a document names exists", "[tidy][link]") {
  const std::filesystem::path root = ACTORTRAIN_SOURCE_DIR;
  const Findings findings = check_paths(
      repository(), [&](const std::string& path) { return std::filesystem::exists(root / path); });
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("link: a path that does not exist is found", "[tidy][link]") {
  const auto judge = [](const std::string& line) {
    return check_paths({make_file("docs/a.md", line)},
                       [](const std::string& path) {
                         return path == "docs/b.md" || path == "engine/a.hpp";
                       })
        .size();
  };
  CHECK(judge("[b](b.md), [a](../engine/a.hpp) and [a web page](https://example.org)") == 0);
  CHECK(judge("`engine/a.hpp`, and `engine/<family>.hpp`") == 0);
  CHECK(judge("[c](c.md)") == 1);
  CHECK(judge("`engine/b.hpp` and `engine/base/`") == 2);
}

}  // namespace
}  // namespace train::tidy
