// What tests wait for, and where their random numbers come from: events, and the seed of the
// runner.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

/// A file that sleeps once, and why no event can be waited for there.
struct AllowedSleep {
  std::string_view path;
  std::string_view reason;
};

constexpr std::size_t kMostSleeps = 5;
constexpr std::array kAllowedSleeps = {
    AllowedSleep{"tests/support/harness/hang_limit.hpp",
                 "between two looks at what another process writes, of which no call tells"},
    AllowedSleep{"tests/support/devices/kernel_faults.hpp",
                 "a kernel that is slow where a test asks for it; nobody waits for it there"},
};
static_assert(kAllowedSleeps.size() <= kMostSleeps);

// Patterns are taken apart, so that this file does not hold what they find.
const std::regex kSleep(std::string("\\b(sleep_") + "for|sleep_" + "until|usle" + "ep|nanosle" +
                        "ep|time\\.sle" + "ep|asyncio\\.sle" + "ep)\\s*\\(|" + "(^|[^\\w.$>-])sle" +
                        "ep( +[0-9$\"{]|\\([0-9])");
/// A wait that ends at a time of its own: by the event, or at the hang limit.
const std::regex kTimedWait(std::string("\\bwait_(for|until)\\s*\\(.*") +
                            "(\\b[1-9][0-9']*(ns|us|ms|s|min|h)\\b|chrono::\\w+[({]\\s*[1-9])");
const std::regex kOwnSeed(std::string("\\brandom_") + "device\\b|/dev/u?ran" + "dom\\b");

bool is_program(const SourceFile& file) {
  return file.is_code() || !std::filesystem::path(file.path).has_extension() ||
         file.path.ends_with(".py") || file.path.ends_with(".sh");
}

/// Benchmarks measure time and may wait for it; of the product's own sleeps reviews have a say.
bool is_of_tests(const SourceFile& file) {
  const std::string folder = folder_of(file.path);
  return folder == "tests" || folder == "scripts" || folder == ".ci" || file.path == "dev";
}

/// `part`: what every match has; regular expressions are slow.
Findings matching(const SourceTree& tree, const std::regex& pattern, std::string_view part,
                  std::string_view what) {
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!is_of_tests(file) || !is_program(file)) {
      continue;
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (file.lines[i].find(part) != std::string::npos &&
          std::regex_search(file.lines[i], pattern)) {
        findings.push_back(finding(file, i, what));
      }
    }
  }
  return findings;
}

Findings sleeps_in(const SourceTree& tree) {
  Findings findings =
      matching(tree, kSleep, "ep", "sleeps; wait for an event, or for a later look");
  for (const AllowedSleep& allowed : kAllowedSleeps) {
    const auto here = std::find_if(findings.begin(), findings.end(), [&](const std::string& each) {
      return each.starts_with(fmt::format("{}:", allowed.path));
    });
    if (here == findings.end()) {
      findings.push_back(fmt::format("{}: sleeps no more; the table has it", allowed.path));
    } else {
      findings.erase(here);  // one: a second one is found
    }
  }
  return findings;
}

Findings timed_waits_in(const SourceTree& tree) {
  return matching(tree, kTimedWait, "wait_",
                  "waits for a time of its own; wait for an event, at most hang_limit");
}

Findings seeds_in(const SourceTree& tree) {
  return matching(tree, kOwnSeed, "dom",
                  "draws a seed of its own; take Catch::rngSeed(), which replays");
}

/// This repository, and the scripts beside its sources.
SourceTree load_programs() {
  namespace fs = std::filesystem;
  const fs::path root = ACTORTRAIN_SOURCE_DIR;
  SourceTree tree = repository();
  for (const auto& entry : fs::directory_iterator(root / "scripts")) {
    if (entry.is_regular_file()) {
      tree.push_back(read_file(root, entry.path()));
    }
  }
  tree.push_back(read_file(root, root / "dev"));
  tree.push_back(read_file(root, root / ".ci/run"));
  return tree;
}

/// The files of the table, as they are, beside one more file.
SourceTree beside_allowed(const SourceFile& file) {
  SourceTree tree = {file};
  for (const AllowedSleep& allowed : kAllowedSleeps) {
    tree.push_back(make_file(std::string(allowed.path), std::string("sleep_") + "for(1ms);\n"));
  }
  return tree;
}

TEST_CASE("waiting: tests and scripts wait for events", "[tidy][waiting]") {
  const SourceTree tree = load_programs();
  REQUIRE(std::any_of(tree.begin(), tree.end(),
                      [](const SourceFile& file) { return file.path == "scripts/fuzz.sh"; }));
  const Findings findings = sleeps_in(tree);
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("waiting: no wait of a test ends at a time of its own", "[tidy][waiting]") {
  const Findings findings = timed_waits_in(load_programs());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("waiting: the rule finds waits with a time, and leaves looks alone", "[tidy][waiting]") {
  const std::string wait = "wait_";
  const auto found = [&](const std::string& line) {
    return timed_waits_in({make_file("tests/a_test.cpp", line + "\n")}).size();
  };
  using Times = std::vector<std::string>;
  for (const std::string& time : Times{"10ms", "1'000us", "2s", "std::chrono::seconds(120)",
                                       "std::chrono::milliseconds{5}"}) {
    CAPTURE(time);
    CHECK(found("  while (end." + wait + "for(" + time + ") != std::future_status::ready) {") == 1);
    CHECK(found("changed." + wait + "until(lock, Clock::now() + " + time + ");") == 1);
  }
  for (const std::string& time :
       Times{"0ms", "std::chrono::seconds(0)", "hang_limit", "limit", "6"}) {
    CAPTURE(time);
    CHECK(found("CHECK(end." + wait + "for(" + time + ") == std::future_status::timeout);") == 0);
  }
  CHECK(found("wait_" + std::string("for_step(site, *run, 10);")) == 0);
  CHECK(timed_waits_in({make_file("base/a.cpp", wait + "for(10ms);\n")}).empty());
}

TEST_CASE("waiting: what is random in a test replays", "[tidy][waiting]") {
  const Findings findings = seeds_in(load_programs());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("waiting: the rules find each way to sleep and to draw a seed", "[tidy][waiting]") {
  const std::string sle = "sle";
  for (const auto& [path, line] : std::vector<std::pair<std::string, std::string>>{
           {"tests/a_test.cpp", "std::this_thread::" + sle + "ep_for(20ms);"},
           {"tests/a_test.cpp", "std::this_thread::" + sle + "ep_until(then);"},
           {"tests/a_test.cpp", "::u" + sle + "ep(20);"},
           {"tests/a_test.cpp", "::" + sle + "ep(2);"},
           {"tests/a_test.cpp", "::nano" + sle + "ep(&time, nullptr);"},
           {"tests/a_test.cpp", "write_script(path, \"" + sle + "ep 1000\");"},
           {"tests/a_test.cpp", "fmt::format(\"wait; " + sle + "ep {}\", 3)"},
           {"tests/a.py", "    time." + sle + "ep(0.1)"},
           {"scripts/a.sh", "  " + sle + "ep 5"},
           {"scripts/a.sh", "while :; do " + sle + "ep \"$pause\"; done"},
           {"dev", sle + "ep 0.2"},
           {".ci/run", "(" + sle + "ep 1)"}}) {
    CAPTURE(path, line);
    CHECK(sleeps_in(beside_allowed(make_file(path, line + "\n"))).size() == 1);
    CHECK(sleeps_in(beside_allowed(make_file("bench/a.cpp", line + "\n"))).empty());
  }
  CHECK(sleeps_in({}).size() == kAllowedSleeps.size());
  const std::string twice = std::string("sleep_") + "for(1ms);\n";
  CHECK(sleeps_in(beside_allowed(make_file("tests/a_test.cpp", twice + twice))).size() == 2);
  CHECK(sleeps_in(
            beside_allowed(make_file("tests/a_test.cpp",
                                     "wakeup::sleep(word, seen);  // sleeps until it is woken\n")))
            .empty());
  for (const std::string& line :
       {"std::random_" + std::string("device{}()"), "head -c 4 /dev/uran" + std::string("dom")}) {
    CAPTURE(line);
    CHECK(seeds_in({make_file("tests/a_test.cpp", line + "\n")}).size() == 1);
    CHECK(seeds_in({make_file("base/a.cpp", line + "\n")}).empty());
  }
}

}  // namespace
}  // namespace train::tidy
