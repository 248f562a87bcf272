// Completion and manual are made of the table of commands; bash itself completes.

#include <catch2/catch.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/process.hpp"

namespace train::integration::completion_test {
namespace {

using test::Process;

std::string printed(const std::string& command, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> words = {ACTORTRAIN_BINARY_DIR "/actortrain", command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto ended = Process(words).wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended.out;
}

/// Returns the words that bash offers in the place of the last one.
std::set<std::string> completed(const std::string& script, const std::vector<std::string>& words) {
  const std::string harness =
      "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); "
      "COMPREPLY=(); _actortrain; "
      "printf '%s\\n' \"${COMPREPLY[@]}\"";
  std::vector<std::string> all = {"/bin/bash", "-u", "-c", harness, script};
  all.insert(all.end(), words.begin(), words.end());
  const auto ended = Process(all).wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.err.empty());
  std::set<std::string> found;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) {
    found.insert(line);
  }
  found.erase("");
  return found;
}

TEST_CASE("completion: bash offers commands, options, values and keys",
          "[integration][completion]") {
  const test::TempDirectory directory;
  const std::string script = (directory / "actortrain").string();
  test::write_bytes(script, printed("completion"));
  CHECK(printed("completion", {"bash"}) == printed("completion"));
  using Found = std::set<std::string>;
  CHECK(completed(script, {"actortrain", "st"}) == Found{"status"});
  CHECK(completed(script, {"actortrain", ""}).count("run") == 1);
  CHECK(completed(script, {"actortrain", ""}).count("worker") == 0);  // Nobody types it.
  CHECK(completed(script, {"actortrain", "data", "p"}) == Found{"prepare"});
  CHECK(completed(script, {"actortrain", "checkpoints", "prune", "--keep"}) ==
        Found{"--keep-best", "--keep-every", "--keep-last"});
  CHECK(completed(script, {"actortrain", "log", "runs/a", "--to", "w"}) == Found{"wandb"});
  CHECK(completed(script, {"actortrain", "run", "--fr"}) == Found{"--fresh"});
  CHECK(completed(script, {"actortrain", "run", "my.toml", "--fr"}) == Found{"--fresh"});
  CHECK(completed(script, {"actortrain", "run", "runs/"}).empty());  // Files are bash's to find.
  CHECK(completed(script, {"actortrain", "export", "runs/a", "--dtype", "f"}) ==
        Found{"fp16", "fp32"});
  CHECK(completed(script, {"actortrain", "export", "runs/a", "--dtype", "=", "b"}) ==
        Found{"bf16"});
  CHECK(completed(script, {"actortrain", "run", "a.toml", "--set", "run.steps"}) ==
        Found{"run.steps=", "run.steps_per_job="});
  CHECK(completed(script, {"actortrain", "run", "--set", "=", "optimizer.ns_"}) ==
        Found{"optimizer.ns_steps="});
}

TEST_CASE("manual: every command and every option that help shows stands in it",
          "[integration][completion]") {
  const std::string manual = printed("manual");
  std::string plain;
  for (std::size_t i = 0; i < manual.size(); ++i) {
    i += manual[i] == '\\' && i + 1 < manual.size() && manual[i + 1] == '-' ? 1 : 0;
    plain += manual[i];
  }
  for (const char* const command :
       {"run", "data prepare", "checkpoints prune", "config keys", "log"}) {
    std::vector<std::string> words = {ACTORTRAIN_BINARY_DIR "/actortrain"};
    std::istringstream names(command);
    for (std::string name; names >> name;) {
      words.push_back(name);
    }
    words.emplace_back("--help");
    const auto help = Process(words).wait();
    REQUIRE(help.exit_code == 0);
    const std::size_t begin = plain.find(std::string(".SS actortrain ") + command + "\n");
    REQUIRE(begin != std::string::npos);
    const std::string section = plain.substr(begin, plain.find(".SS", begin + 3) - begin);
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t at = line.find_first_not_of(' ');
      if (at == 2 && line.compare(at, 2, "--") == 0) {
        const std::string option = line.substr(at, line.find_first_of(" ,", at) - at);
        CAPTURE(command, option);
        CHECK(section.find(option) != std::string::npos);
      }
    }
  }
  CHECK(plain.find("actortrain worker") == std::string::npos);
}

TEST_CASE("install: the program, its completion and its manual", "[integration][completion]") {
  const test::TempDirectory directory;
  const auto ended = Process({"/usr/bin/env", "cmake", "--install", ACTORTRAIN_BINARY_DIR,
                              "--component", "actortrain", "--prefix", directory.path().string()})
                         .wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const auto version = Process({(directory / "bin/actortrain").string(), "version"}).wait();
  CHECK(version.exit_code == 0);
  CHECK(test::read_bytes(directory / "share/bash-completion/completions/actortrain") ==
        printed("completion"));
  CHECK(test::read_bytes(directory / "share/man/man1/actortrain.1") == printed("manual"));
}

}  // namespace
}  // namespace train::integration::completion_test
