// A key of a run file that no code reads would be accepted and ignored.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <initializer_list>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

/// Keys that nothing reads, since each takes the one value that the program has.
const std::set<std::string> kOneValue = {"precision.master", "lora.dropout"};

const std::regex kKey(R"(\{KEY\((\w+), (\w+)\))");
const std::regex kSection(R"(^\s*(\w+Section) (\w+);)");
const std::regex kNamed(R"((\w+Section)&?\s+(\w+?)_?\s*[,;)={])");
const std::regex kRead(R"((\w+?)_?(?:\(\))?(?:\.|->)(?=(\w+)))");

using Pairs = std::set<std::pair<std::string, std::string>>;

/// All matches of `pattern` outside comments, as the pairs of its two groups; only lines with one
/// of `signs` can have one.
void collect(const SourceFile& file, std::initializer_list<std::string_view> signs,
             const std::regex& pattern, Pairs& pairs) {
  for (const std::string& line : file.lines) {
    const std::string code = line.substr(0, line.find("//"));
    if (!has_any(code, signs)) {
      continue;
    }
    for (std::sregex_iterator match(code.begin(), code.end(), pattern), end; match != end;
         ++match) {
      pairs.emplace((*match)[1], (*match)[2]);
    }
  }
}

/// The table of keys, the rules between them and the words for them use no value.
bool is_reader(const SourceFile& file) {
  const std::string folder = folder_of(file.path);
  return file.is_code() && folder != "tests" && folder != "bench" &&
         !file.path.starts_with("configs/fields/") && !file.path.starts_with("configs/rules/") &&
         !file.path.starts_with("configs/words/");
}

/// Findings: keys of the table that no file reads as `section.key`, or through a name that the file
/// or its header gives to the section's struct; exceptions that are none.
Findings unread_keys(const SourceTree& tree) {
  Pairs keys;
  Pairs sections;
  std::map<std::string, Pairs> names;  // by path without its ending: structs, and names of them
  std::map<std::string, Pairs> reads;
  for (const SourceFile& file : tree) {
    if (file.path == "configs/fields/field_table.cpp") {
      collect(file, {"KEY("}, kKey, keys);
    } else if (file.path == "configs/run_config.hpp") {
      collect(file, {"Section"}, kSection, sections);
    } else if (is_reader(file)) {
      const std::string stem = file.path.substr(0, file.path.rfind('.'));
      collect(file, {"Section"}, kNamed, names[stem]);
      collect(file, {".", "->"}, kRead, reads[stem]);
    }
  }
  Pairs read;
  for (const auto& [type, section] : sections) {
    for (const auto& [stem, accesses] : reads) {
      for (const auto& [object, member] : accesses) {
        if (object == section || names[stem].contains({type, object})) {
          read.emplace(section, member);
        }
      }
    }
  }
  Findings findings;
  for (const auto& key : keys) {
    const std::string name = fmt::format("{}.{}", key.first, key.second);
    if (read.contains(key) == kOneValue.contains(name)) {
      findings.push_back(name + (read.contains(key) ? ": read, but named as an exception"
                                                    : ": in the table of keys, but never read"));
    }
  }
  return findings;
}

SourceTree with_reader(std::string_view text) {
  return {make_file("configs/fields/field_table.cpp", "    {KEY(run, steps), \"\"},\n"),
          make_file("configs/run_config.hpp", "  RunSection run;\n"),
          make_file("configs/rules/a.cpp", "config.run.steps;\n"),
          make_file("tests/a.cpp", "config.run.steps;\n"), make_file("engine/a.cpp", text)};
}

}  // namespace

TEST_CASE("keys: every key of a run file is read", "[tidy][keys]") {
  const Findings findings = unread_keys(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("keys: the rule finds a key that nothing reads", "[tidy][keys]") {
  for (const char* text : {"f(config.run.steps);\n", "f(config_.run().steps);\n",
                           "void f(const RunSection& options) { g(options.steps); }\n",
                           "  RunSection options_;\n  return options_.steps;\n"}) {
    CAPTURE(text);
    CHECK(unread_keys(with_reader(text)).empty());
  }
  for (const char* text :
       {"", "// config.run.steps\n", "f(config.run.steps_per_job);\n", "f(config.model.steps);\n",
        "void f(const RunSection& options) { g(others.steps); }\n"}) {
    CAPTURE(text);
    CHECK(unread_keys(with_reader(text)).size() == 1);
  }
}

TEST_CASE("keys: the table has keys", "[tidy][keys]") {
  // Had the table another form, the rule would find nothing.
  SourceTree tree = repository();
  std::erase_if(tree, [](const SourceFile& file) { return folder_of(file.path) != "configs"; });
  CHECK(unread_keys(tree).size() > 100);
}

}  // namespace train::tidy
