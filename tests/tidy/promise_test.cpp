// What is promised in one place is kept in another: keys are documented, invariants are tested,
// shipped runs are loaded.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

struct Key {
  const SourceFile* file = nullptr;
  std::size_t line = 0;
  std::string section;  // Of a table in a section: "train.stop_after".
  std::string name;
};

// The fields of the section structs; a struct follows a comment that names its section, "///
// [run]".
std::vector<Key> section_keys(const SourceTree& tree) {
  static const std::regex kSection("^/// \\[([a-z_.]+)\\].*");
  static const std::regex kField("^  [A-Za-z_:0-9<>]+ ([a-z_0-9]+)( =.*|;.*)");
  std::vector<Key> keys;
  for (const SourceFile& file : tree) {
    if (!file.path.starts_with("configs/") || !file.path.ends_with("_section.hpp")) {
      continue;
    }
    std::string section;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (std::regex_match(file.lines[i], match, kSection)) {
        section = match[1].str();
      } else if (std::regex_match(file.lines[i], match, kField)) {
        keys.push_back({&file, i, section, match[1].str()});
      }
    }
  }
  return keys;
}

Findings check_keys(const SourceTree& tree) {
  Findings findings;
  const SourceFile* readme = find_file(tree, "configs/README.md");
  for (const Key& key : section_keys(tree)) {
    const std::string name = fmt::format("{}.{}", key.section, key.name);
    // A table has its keys there, and a list of tables those of each.
    const bool told = readme != nullptr &&
                      (readme->contains(fmt::format("| `{}` |", name)) ||
                       readme->contains(fmt::format("| `{}.", name)) ||
                       readme->contains(fmt::format("| `{}[].{}` |", key.section, key.name)));
    if (!told) {
      findings.push_back(
          finding(*key.file, key.line, fmt::format("{} is not in configs/README.md", name)));
    }
  }
  return findings;
}

bool declares_invariants(const SourceFile& file) {
  static const std::set<std::string> kFolders = {"base",   "configs", "kernels",    "storage",
                                                 "data",   "engine",  "checkpoint", "run",
                                                 "actors", "cli"};
  return kFolders.contains(folder_of(file.path)) &&
         (file.is_header() || file.name() == "README.md");
}

// Every match of the first group of `pattern` in `file`, with the line it is first seen on.
void collect(const SourceFile& file, const std::regex& pattern,
             std::map<std::string, std::string>& first_seen) {
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    for (std::sregex_iterator at(line.begin(), line.end(), pattern), end; at != end; ++at) {
      first_seen.emplace((*at)[1].str(), fmt::format("{}:{}", file.path, i + 1));
    }
  }
}

Findings check_invariants(const SourceTree& tree) {
  static const std::regex kDeclared("\\b([A-Z]{2}-[0-9]+)\\b");
  static const std::regex kCited("\\[([A-Z]{2}-[0-9]+)\\]");
  std::map<std::string, std::string> declared;
  std::map<std::string, std::string> cited;
  for (const SourceFile& file : tree) {
    if (declares_invariants(file)) {
      collect(file, kDeclared, declared);
    } else if (file.path.starts_with("tests/") && file.path.ends_with("_test.cpp") &&
               !file.path.starts_with("tests/tidy/")) {
      collect(file, kCited, cited);
    }
  }
  Findings findings;
  for (const auto& [id, place] : declared) {
    if (!cited.contains(id)) {
      findings.push_back(fmt::format("{}: no test cites [{}]", place, id));
    }
  }
  for (const auto& [id, place] : cited) {
    if (!declared.contains(id)) {
      findings.push_back(fmt::format("{}: [{}] is declared nowhere", place, id));
    }
  }
  return findings;
}

Findings check_shipped(const SourceTree& tree) {
  Findings findings;
  for (const SourceFile& run : tree) {
    if (folder_of(run.path) != "configs" || !run.path.ends_with(".toml")) {
      continue;
    }
    const char* loader =
        run.path.starts_with("configs/clusters/") ? "find_cluster_profile(" : "load_config(";
    const bool loaded = std::any_of(tree.begin(), tree.end(), [&](const SourceFile& file) {
      return file.path.starts_with("tests/") && file.path.ends_with("_test.cpp") &&
             file.contains(loader) && file.contains(fmt::format("{}\"", run.name()));
    });
    if (!loaded) {
      findings.push_back(finding(run, 0, "a shipped run that no test loads"));
    }
  }
  return findings;
}

TEST_CASE("promise: every key of a run is documented", "[tidy][promise][CF-1]") {
  CHECK(section_keys(repository()).size() >= 83);
  const Findings findings = check_keys(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("promise: every named invariant is cited by a test", "[tidy][promise]") {
  const Findings findings = check_invariants(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("promise: every shipped run is loaded by a test", "[tidy][promise]") {
  const Findings findings = check_shipped(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("promise: an undocumented key is found", "[tidy][promise]") {
  const SourceFile section = make_file("configs/sections/run_section.hpp",
                                       "/// [run]: text\nstruct RunSection {\n"
                                       "  std::string name;  ///< Name.\n"
                                       "  std::int64_t steps =\n      3;  ///< Steps.\n};\n"
                                       "/// [eval]\nstruct EvalSection {\n  bool on = true;\n};\n");
  const SourceFile readme =
      make_file("configs/README.md", "| `run.name` | text of `run.steps` |\n");
  CHECK(check_keys({section, readme}) ==
        Findings{"configs/sections/run_section.hpp:4: run.steps is not in configs/README.md",
                 "configs/sections/run_section.hpp:9: eval.on is not in configs/README.md"});
  CHECK(check_keys({section}).size() == 3);
}

TEST_CASE("promise: an invariant without a test, or a test without one, is found",
          "[tidy][promise]") {
  const SourceFile header = make_file("storage/a.hpp", "/// AB-1 (first) UTF-8\n/// AB-2\n");
  const SourceFile test =
      make_file("tests/storage/a_test.cpp", "TEST_CASE(\"a\", \"[storage][AB-1][AB-3]\") {\n");
  CHECK(check_invariants({header, test}) ==
        Findings{"storage/a.hpp:2: no test cites [AB-2]",
                 "tests/storage/a_test.cpp:1: [AB-3] is declared nowhere"});
  const SourceFile source = make_file("storage/a.cpp", "// AB-9\n");
  CHECK(check_invariants({source}).empty());
}

TEST_CASE("promise: a shipped run that nothing loads is found", "[tidy][promise]") {
  const SourceFile run = make_file("configs/big.toml", "[run]\n");
  const SourceFile other = make_file("tests/configs/a_test.cpp", "load_config(\"small.toml\")\n");
  CHECK(check_shipped({run, other}) ==
        Findings{"configs/big.toml:1: a shipped run that no test loads"});
  const SourceFile loads = make_file("tests/configs/a_test.cpp", "load_config(\"big.toml\")\n");
  CHECK(check_shipped({run, loads}).empty());
}

}  // namespace
}  // namespace train::tidy
