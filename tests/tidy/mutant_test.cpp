// Each mutant fits the code as it is and names a test that exists, and tests/mutants/README.md
// lists it.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy::mutant_test {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr std::string_view kReadme = "tests/mutants/README.md";

/// Lines that a patch replaces, with those around them.
struct Hunk {
  std::string path;       ///< Of the file that it changes.
  std::size_t place = 0;  ///< Of its first line in the file, from 0, when the patch was made.
  Lines before;
};

/// The numbers of "@@ -12,7 +12,6 @@" that are behind `sign`: the first line, and how many.
std::pair<std::size_t, std::size_t> range_of(const std::string& line, char sign) {
  std::size_t first = 0;
  std::size_t count = 1;
  const char* const end = line.data() + line.size();
  const auto [after, bad] = std::from_chars(line.data() + line.find(sign, 2) + 1, end, first);
  if (bad == std::errc() && after != end && *after == ',') {
    std::from_chars(after + 1, end, count);
  }
  return {first, count};
}

std::vector<Hunk> hunks_of(const SourceFile& patch) {
  std::vector<Hunk> hunks;
  std::string path;
  std::size_t old_lines = 0;
  std::size_t new_lines = 0;
  for (const std::string& line : patch.lines) {
    if (old_lines + new_lines > 0) {
      const char mark = line.empty() ? ' ' : line.front();
      old_lines -= mark == '+' ? 0 : 1;
      new_lines -= mark == '-' ? 0 : 1;
      if (mark != '+') {
        hunks.back().before.push_back(line.empty() ? line : line.substr(1));
      }
    } else if (line.starts_with("--- a/")) {
      path = line.substr(6);
    } else if (line.starts_with("@@ -")) {
      const auto [first, count] = range_of(line, '-');
      hunks.push_back({.path = path, .place = first - 1, .before = {}});
      old_lines = count;
      new_lines = range_of(line, '+').second;
    }
  }
  return hunks;
}

bool is_at(const Hunk& hunk, const Lines& lines, std::size_t place) {
  return place + hunk.before.size() <= lines.size() &&
         std::equal(hunk.before.begin(), hunk.before.end(),
                    lines.begin() + static_cast<std::ptrdiff_t>(place));
}

/// Why it does not apply; empty: it does, where it was made or in the only place that there is.
std::string why_not(const Hunk& hunk, const SourceTree& tree) {
  const SourceFile* const file = find_file(tree, hunk.path);
  if (file == nullptr) {
    return fmt::format("there is no {}", hunk.path);
  }
  if (is_at(hunk, file->lines, hunk.place)) {
    return {};
  }
  std::size_t places = 0;
  for (std::size_t place = 0; place < file->lines.size(); ++place) {
    places += is_at(hunk, file->lines, place) ? 1 : 0;
  }
  return places == 1 ? "" : fmt::format("its lines are at {} places of {}", places, hunk.path);
}

/// Value of `key` in a patch's header; empty: the header lacks it.
std::string field(const SourceFile& patch, const std::string& key) {
  for (const std::string& line : patch.lines) {
    if (line.starts_with("diff ") || line.starts_with("--- ")) {
      break;
    }
    if (line.starts_with(key + ": ")) {
      return line.substr(key.size() + 2);
    }
  }
  return {};
}

/// The string literals that follow each TEST_CASE( directly, joined.
std::set<std::string> case_names(const SourceTree& tree) {
  std::set<std::string> names;
  for (const SourceFile& file : tree) {
    if (folder_of(file.path) != "tests" || !file.is_code()) {
      continue;
    }
    const std::string text = fmt::format("{}", fmt::join(file.lines, "\n"));
    const std::string_view start = "TEST_CASE(";
    for (std::size_t at = text.find(start); at != std::string::npos; at = text.find(start, at)) {
      at = text.find_first_not_of(" \n", at + start.size());
      std::string name;
      while (at < text.size() && text[at] == '"') {
        for (++at; at < text.size() && text[at] != '"'; ++at) {
          at += text[at] == '\\' ? 1 : 0;
          name += text[at];
        }
        at = text.find_first_not_of(" \n", at + 1);
      }
      if (!name.empty()) {
        names.insert(name);
      }
    }
  }
  return names;
}

/// The parts of a filter of Catch2 between commas; `\,` is a comma of a name.
Lines parts_of(const std::string& filter) {
  Lines parts = {""};
  for (std::size_t i = 0; i < filter.size(); ++i) {
    if (filter[i] == ',') {
      parts.emplace_back();
    } else {
      i += filter[i] == '\\' ? 1 : 0;
      parts.back() += filter[i];
    }
  }
  return parts;
}

/// A tag, the name of a case, or the beginning of one and `*`.
bool names_case(std::string part, const std::set<std::string>& cases) {
  if (part.starts_with("[")) {
    return true;
  }
  const bool whole = !part.ends_with("*");
  if (!whole) {
    part.pop_back();
  }
  const auto found = cases.lower_bound(part);
  return found != cases.end() && (whole ? *found == part : found->starts_with(part));
}

Findings check_patch(const SourceFile& patch, const SourceTree& tree,
                     const std::set<std::string>& cases) {
  Findings findings;
  for (const char* const key : {"Mutant", "Programs", "Filter", "Guards"}) {
    if (field(patch, key).empty()) {
      findings.push_back(finding(patch, 0, fmt::format("has no line \"{}: ...\"", key)));
    }
  }
  for (const std::string& part : parts_of(field(patch, "Filter"))) {
    if (!names_case(part, cases)) {
      findings.push_back(finding(patch, 0, fmt::format("no case is called {}", part)));
    }
  }
  const std::vector<Hunk> hunks = hunks_of(patch);
  if (hunks.empty()) {
    findings.push_back(finding(patch, 0, "changes nothing"));
  }
  for (const Hunk& hunk : hunks) {
    if (const std::string why = why_not(hunk, tree); !why.empty()) {
      findings.push_back(finding(patch, 0, "does not apply: " + why));
    }
  }
  return findings;
}

/// Each mutant is once in the README, in its table or in the list before, and only once there.
Findings check_list(const SourceTree& patches, const SourceFile& readme) {
  std::map<std::string, int> listed;
  for (const SourceFile& patch : patches) {
    listed[fs::path(patch.path).stem().string()] = 0;
  }
  Findings findings;
  for (std::size_t i = 0; i < readme.lines.size(); ++i) {
    const std::string& line = readme.lines[i];
    for (std::size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
      const std::string word = line.substr(at + 1, line.find('`', at + 1) - at - 1);
      at += word.size() + 1;
      if (const auto found = listed.find(word); found != listed.end()) {
        ++found->second;
      } else if (line.starts_with("| `" + word)) {
        findings.push_back(finding(readme, i, fmt::format("there is no mutant {}", word)));
      }
    }
  }
  for (const auto& [name, times] : listed) {
    if (times != 1) {
      findings.push_back(fmt::format("{}: has {} {} times", readme.path, name, times));
    }
  }
  return findings;
}

SourceTree load_patches() {
  const fs::path root = ACTORTRAIN_SOURCE_DIR;
  SourceTree patches;
  for (const auto& entry : fs::recursive_directory_iterator(root / "tests/mutants")) {
    if (entry.path().extension() == ".patch") {
      patches.push_back(read_file(root, entry.path()));
    }
  }
  std::sort(patches.begin(), patches.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return patches;
}

TEST_CASE("mutant: each applies, and names a test", "[tidy][mutant]") {
  const SourceTree patches = load_patches();
  REQUIRE(patches.size() > 200);
  const std::set<std::string> cases = case_names(repository());
  Findings findings;
  for (const SourceFile& patch : patches) {
    const Findings found = check_patch(patch, repository(), cases);
    findings.insert(findings.end(), found.begin(), found.end());
  }
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("mutant: each is listed once", "[tidy][mutant]") {
  const SourceFile* const readme = find_file(repository(), kReadme);
  REQUIRE(readme != nullptr);
  const Findings findings = check_list(load_patches(), *readme);
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("mutant: one that does not apply, or names no test, is found", "[tidy][mutant]") {
  const std::string head =
      "Mutant: a bug\nPrograms: test_base\nFilter: base: one*,base: two, and\\, more\nGuards: P1\n";
  const std::string diff =
      "\ndiff --git a/base/a.cpp b/base/a.cpp\n--- a/base/a.cpp\n+++ b/base/a.cpp\n"
      "@@ -2,3 +2,4 @@ int f() {\n   two\n-  three\n+  others\n+  and more\n \n";
  const std::string place = "  two\n  three\n\n";
  const std::set<std::string> cases = {"base: one of them", "base: two", " and, more"};
  const auto check = [&](const std::string& patch, const std::string& text) {
    return check_patch(make_file("tests/mutants/base/a.patch", patch),
                       {make_file("base/a.cpp", text)}, cases);
  };
  CHECK(check(head + diff, "one\n" + place + "five\n").empty());
  CHECK(check(head + diff, "one\nand one\n" + place + "five\n").empty());
  CHECK(check(head + diff, "one\n" + place + place).empty());  // Where it was made.
  const Findings nowhere = check(head + diff, "one\n  two\n  four\n\n");
  REQUIRE(nowhere.size() == 1);
  CHECK(nowhere.front().ends_with("does not apply: its lines are at 0 places of base/a.cpp"));
  CHECK(check(head + diff, place + "five\n" + place).size() == 1);  // Either of two.
  CHECK(check(head + diff, "one\n  two\n  three\n").size() == 1);
  CHECK(check(head, "one\n").size() == 1);
  CHECK(check(diff, "one\n" + place).size() == 5);
  CHECK(check_patch(make_file("tests/mutants/base/a.patch", head + diff), {}, cases).size() == 1);
  CHECK(check_patch(make_file("tests/mutants/base/a.patch", head + diff),
                    {make_file("base/a.cpp", "one\n" + place)}, {"base: onward"})
            .size() == 3);
  CHECK(case_names({make_file("tests/a_test.cpp",
                              "TEST_CASE(\"a \\\"b\\\" \"\n    \"c\", \"[t]\") {\n")}) ==
        std::set<std::string>{"a \"b\" c"});
}

TEST_CASE("mutant: one that is not listed, or twice, or listed and gone, is found",
          "[tidy][mutant]") {
  const SourceTree patches = {make_file("tests/mutants/base/a.patch", ""),
                              make_file("tests/mutants/run/b.patch", "")};
  const auto check = [&](const std::string& text) {
    return check_list(patches, make_file(std::string(kReadme), text));
  };
  CHECK(check("`./dev mutants` of these: `a`\n| `b` | the bug of `c` |\n").empty());
  CHECK(check("Of these: `a`\n").size() == 1);
  CHECK(check("Of these: `a`, `b`\n| `a` | the bug |\n").size() == 1);
  CHECK(check("Of these: `a`\n| `b` | the bug |\n| `c` | the bug |\n").size() == 1);
}

}  // namespace
}  // namespace train::tidy::mutant_test
