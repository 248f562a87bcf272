// Files and headings that a document links to exist, and so do the paths that it quotes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
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

bool source_exists(const std::string& stem, const Exists& exists) {
  return std::ranges::any_of(std::to_array<const char*>({"", ".hpp", ".cpp", ".cu", ".cuh"}),
                             [&](const char* ending) { return exists(stem + ending); });
}

/// The first column of a table in a folder's README names its sources without their endings, by
/// paths below the folder: "| `rank/plan/rank_plan` |". A name that begins with no subfolder is no
/// path.
Findings check_table_paths(const SourceTree& tree, const Exists& exists) {
  static const std::regex kQuoted("`([a-z_0-9]+)(/[a-z_0-9/]*[a-z_0-9])`");
  Findings findings;
  for (const SourceFile& file : tree) {
    const std::string folder = std::filesystem::path(file.path).parent_path().generic_string();
    if (file.name() != "README.md" || folder.empty()) {
      continue;
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      if (!line.starts_with("| `")) {
        continue;
      }
      const std::string cell = line.substr(0, line.find(" | "));
      for (std::sregex_iterator at(cell.begin(), cell.end(), kQuoted), end; at != end; ++at) {
        const std::string first = fmt::format("{}/{}", folder, (*at)[1].str());
        const std::string path = first + (*at)[2].str();
        if (exists(first) && !source_exists(path, exists)) {
          findings.push_back(finding(file, i, fmt::format("{} does not exist", path)));
        }
      }
    }
  }
  return findings;
}

/// The anchor of a heading's text, as GitHub makes it.
std::string anchor_of(const std::string& heading) {
  static const std::regex kLink("\\[([^\\]]*)\\]\\([^)]*\\)");
  std::string anchor;
  for (const unsigned char c : std::regex_replace(heading, kLink, "$1")) {
    if (c == ' ') {
      anchor += '-';
    } else if (std::isalnum(c) != 0 || c == '-' || c == '_' || c >= 0x80) {
      anchor += static_cast<char>(std::tolower(c));
    }
  }
  return anchor;
}

/// Anchors of a document's headings; the second of one name ends in "-1", and so on.
std::set<std::string> anchors_of(const SourceFile& file) {
  std::set<std::string> anchors;
  std::map<std::string, int> seen;
  bool fenced = false;
  for (const std::string& line : file.lines) {
    fenced = fenced != line.starts_with("```");
    const std::size_t level = line.find_first_not_of('#');
    if (!fenced && level != std::string::npos && level > 0 && line[level] == ' ') {
      const std::string anchor = anchor_of(line.substr(level + 1));
      const int earlier = seen[anchor]++;
      anchors.insert(earlier == 0 ? anchor : fmt::format("{}-{}", anchor, earlier));
    }
  }
  return anchors;
}

/// Links to a heading of a document, of the same or of another one.
Findings check_anchors(const SourceTree& tree) {
  static const std::regex kLink("\\]\\(([^)#: ]*)#([^)]*)\\)");
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!file.path.ends_with(".md")) {
      continue;
    }
    const std::filesystem::path folder = std::filesystem::path(file.path).parent_path();
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      for (std::sregex_iterator at(line.begin(), line.end(), kLink), end; at != end; ++at) {
        const std::string name = (*at)[1].str();
        const std::string path =
            name.empty() ? file.path : (folder / name).lexically_normal().generic_string();
        const SourceFile* to = find_file(tree, path);
        if (to != nullptr && anchors_of(*to).count((*at)[2].str()) == 0) {
          findings.push_back(
              finding(file, i, fmt::format("{} has no heading #{}", path, (*at)[2].str())));
        }
      }
    }
  }
  return findings;
}

TEST_CASE("link: every heading that a document links to exists", "[tidy][link]") {
  const Findings findings = check_anchors(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("link: a heading that does not exist is found", "[tidy][link]") {
  const auto judge = [](const std::string& line) {
    return check_anchors({make_file("docs/a.md", "# Here it is\n" + line),
                          make_file("docs/b.md",
                                    "## `a.b`, [c](c.md): 1\n## Twice\n## Twice\n"
                                    "```sh\n# none\n```\n")})
        .size();
  };
  CHECK(judge("[x](b.md#ab-c-1), [x](b.md#twice-1), [x](#here-it-is), [x](b.md)") == 0);
  CHECK(judge("[x](b.md#twice-2)") == 1);
  CHECK(judge("[x](b.md#none)") == 1);
  CHECK(judge("[x](#there)") == 1);
}

TEST_CASE("link: every path that a document names exists", "[tidy][link]") {
  const std::filesystem::path root = ACTORTRAIN_SOURCE_DIR;
  const Findings findings = check_paths(
      repository(), [&](const std::string& path) { return std::filesystem::exists(root / path); });
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("link: every source that a folder's table names exists", "[tidy][link]") {
  const std::filesystem::path root = ACTORTRAIN_SOURCE_DIR;
  const Findings findings = check_table_paths(
      repository(), [&](const std::string& path) { return std::filesystem::exists(root / path); });
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("link: a source in a folder's table that does not exist is found", "[tidy][link]") {
  const auto judge = [](const std::string& path, const std::string& line) {
    const std::set<std::string> there = {"engine/rank", "engine/rank/exec", "engine/rank/a.cu",
                                         "engine/rank/exec/b.hpp"};
    return check_table_paths({make_file(path, line)},
                             [&](const std::string& one) { return there.contains(one); });
  };
  CHECK(judge("engine/README.md", "| `rank/a`, `rank/exec/b`, `rank/exec` | c |").empty());
  CHECK(judge("engine/README.md", "| `rank/a`, `rank/b` | c |") ==
        Findings{"engine/README.md:1: engine/rank/b does not exist"});
  CHECK(judge("engine/README.md", "| `rewards/chosen` | a metric |").empty());
  CHECK(judge("engine/README.md", "| what | `rank/b` |").empty());
  CHECK(judge("docs/a.md", "| `rank/b` | c |").empty());
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
