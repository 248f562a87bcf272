// Cost of broken lines for `data prepare`: a million JSON lines, and the same with one in a
// thousand broken in each of ten ways, read in turn; the best of several rounds, in CPU seconds,
// which are independent of the machine's load. Usage: bench_inputs [LINES [TOKENIZER]].
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include <unistd.h>

#include "data/prepare/prepare.hpp"

namespace {

using namespace train;
using namespace train::data;
using namespace train::storage;
namespace fs = std::filesystem;

constexpr int kRounds = 5;
constexpr auto kBroken = std::to_array<std::string_view>(
    {R"({"text": "half a pair \ud83d of a character"})",
     R"({"text": "a number that is none", "score": NaN})", R"({"text": null})",
     "{\"text\": \"a byte \xff that is no UTF-8\"}", R"({"text": "an end that comes too ea)",
     "{\"text\": \"a\ttabulator that is not escaped\"}", R"({'text': 'as Python prints it'})",
     "null", R"({"body": "another member"})", R"({"text": ["a list"]})"});

/// Writes texts of about 400 bytes. `one_in`: one of so many lines is broken in each way; 0: none.
void write_lines(const fs::path& path, std::uint64_t lines, std::uint64_t one_in) {
  std::ofstream file(path, std::ios::binary);
  for (std::uint64_t i = 0; i < lines; ++i) {
    const std::uint64_t way = one_in == 0 ? kBroken.size() : i % one_in;
    if (way < kBroken.size()) {
      file << kBroken[way] << '\n';
      continue;
    }
    file << R"({"id": )" << i << R"(, "text": ")";
    for (std::uint64_t word = 0; word < 40; ++word) {
      file << "word" << (i * 7919 + word * 104729) % 5000 << (word % 8 == 7 ? "\\n" : " ");
    }
    file << "\"}\n";
  }
}

/// CPU seconds of one preparation; negative: it failed.
double prepare_seconds(const fs::path& input, const std::string& tokenizer, const fs::path& out,
                       std::uint64_t& dropped) {
  const std::clock_t begin = std::clock();
  const auto report = prepare_dataset(
      {.inputs = {input}, .tokenizer = tokenizer, .out = out, .threads = 2, .force = true});
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  if (!report) {
    fmt::print(stderr, "{}\n", report.error().message);
    return -1.0;
  }
  dropped = 0;
  for (const DropTally& tally : report->dropped) {
    dropped += tally.lines;
  }
  return seconds;
}

int measure(std::uint64_t lines, const std::string& tokenizer, const fs::path& folder) {
  const std::array<fs::path, 2> inputs = {folder / "clean.jsonl", folder / "broken.jsonl"};
  write_lines(inputs[0], lines, 0);
  write_lines(inputs[1], lines, 1000);
  std::array<double, 2> best = {std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::max()};
  std::array<std::uint64_t, 2> dropped = {};
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const double seconds = prepare_seconds(inputs[i], tokenizer, folder / "out", dropped[i]);
      if (seconds < 0.0) {
        return EXIT_FAILURE;
      }
      best[i] = std::min(best[i], seconds);
    }
  }
  fmt::print("{} lines, tokenizer {}: {:.2f} s; {} of them broken: {:.2f} s, {:+.1f} %\n", lines,
             tokenizer, best[0], dropped[1], best[1], 100.0 * (best[1] / best[0] - 1.0));
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t lines = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const fs::path folder =
      fs::temp_directory_path() / fmt::format("actortrain-bench-inputs-{}", ::getpid());
  fs::create_directory(folder);
  const int code = measure(lines, argc > 2 ? argv[2] : "bytes", folder);
  fs::remove_all(folder);
  return code;
}
