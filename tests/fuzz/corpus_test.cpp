// The fuzzers' targets without the fuzzer: what it once found, the seeds, and random changes of
// both.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/target.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using train::fuzz::Target;

namespace {

namespace fs = std::filesystem;

/// Changes an input a little, as a fuzzer does.
class Mutator {
 public:
  Mutator(std::uint64_t seed, const Target& target, const std::vector<std::string>& inputs)
      : random_(seed), target_(target), inputs_(inputs) {}

  std::string next() {
    std::string text = inputs_[below(inputs_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      change(text);
    }
    return text;
  }

 private:
  std::size_t below(std::size_t limit) {
    return limit == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_);
  }

  void change(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        text.insert(at, 1, static_cast<char>(below(256)));
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        if (at < text.size()) {
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        }
        break;
      case 3:
        text.insert(at, target_.words[below(target_.words.size())]);
        break;
      case 4:
        text.replace(at, below(24), target_.words[below(target_.words.size())]);
        break;
      case 5:
        text.insert(at, std::string(text, below(text.size()), below(64)));
        break;
      default: {
        const std::string& other = inputs_[below(inputs_.size())];
        text = text.substr(0, at) + other.substr(below(other.size()));
      }
    }
  }

  std::mt19937_64 random_;
  const Target& target_;
  const std::vector<std::string>& inputs_;
};

/// The inputs under version control, and the seeds, which have to be more than errors.
std::vector<std::string> inputs_of(const Target& target) {
  std::vector<std::string> inputs = target.seeds();
  const fs::path corpus = fs::path(ACTORTRAIN_SOURCE_DIR) / "tests/fuzz/corpus" / target.name;
  REQUIRE(fs::is_directory(corpus));
  for (const std::string& name : test::names_in(corpus)) {
    inputs.push_back(test::read_bytes(corpus / name));
  }
  return inputs;
}

void run(const Target& target, const std::string& input) {
  try {
    target.run(input);
  } catch (const std::exception& error) {
    const fs::path file = fs::path(ACTORTRAIN_BINARY_DIR) / fmt::format("{}-broken", target.name);
    test::write_bytes(file, input);
    FAIL(fmt::format("{} ({} bytes, kept as {})", error.what(), input.size(), file.string()));
  }
}

std::vector<Target> all_targets() {
  return {fuzz::config_target(),    fuzz::control_target(),     fuzz::dataset_target(),
          fuzz::documents_target(), fuzz::index_target(),       fuzz::manifest_target(),
          fuzz::run_files_target(), fuzz::safetensors_target(), fuzz::shard_target()};
}

}  // namespace

TEST_CASE("fuzz: what was found once, and 2,000 changes of every target's inputs", "[fuzz]") {
  const std::uint64_t seed = Catch::rngSeed();
  for (const Target& target : all_targets()) {
    const auto inputs = inputs_of(target);
    for (const std::string& input : inputs) {
      run(target, input);
    }
    Mutator mutator(seed, target, inputs);
    for (int i = 0; i < 2000; ++i) {
      run(target, mutator.next());
    }
  }
}

TEST_CASE("fuzz: the corpus is small, and of targets that exist", "[fuzz]") {
  const fs::path corpus = fs::path(ACTORTRAIN_SOURCE_DIR) / "tests/fuzz/corpus";
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(corpus)) {
    bytes += entry.is_regular_file() ? entry.file_size() : 0;
  }
  REQUIRE(bytes <= 50 * 1024);
  std::vector<std::string> names;
  for (const Target& target : all_targets()) {
    names.emplace_back(target.name);
    REQUIRE_FALSE(target.words.empty());
  }
  REQUIRE(test::names_in(corpus) == names);
}

TEST_CASE("fuzz: a target that breaks its promise is found", "[fuzz]") {
  const Error line{ErrorKind::user, "a line"};
  REQUIRE_NOTHROW(fuzz::require_readable(line));
  for (const char* bad : {"", "two\nlines", "\x1b[2J"}) {
    REQUIRE_THROWS_AS(fuzz::require_readable({ErrorKind::user, bad}), fuzz::Broken);
  }
  REQUIRE_THROWS_AS(fuzz::require(false, "nothing"), fuzz::Broken);
}
