// Speed of a tokenizer: loading it, then encoding a text file on one and on more threads, with
// empty caches, then texts of 1 MB that are one word, and a pattern that explodes. PyPI's
// tokenizers on the same file: peers/tokenizers_speed.py. Usage: bench_tokenizer TOKENIZER TEXT
// [THREADS [DOCUMENT_BYTES]].
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/text/regex.hpp"
#include "data/tokenizer/text_encoder.hpp"
#include "data/tokenizer/tokenizer.hpp"

namespace {

using namespace train;
using namespace train::data;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 3;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Splits into pieces of about `bytes`, each of which ends with a line.
std::vector<std::string_view> documents_of(std::string_view text, std::size_t bytes) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const std::size_t end = text.find('\n', std::min(bytes, text.size() - 1));
    const std::size_t size = end == std::string_view::npos ? text.size() : end + 1;
    documents.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return documents;
}

/// Best of several rounds, each with empty caches.
std::optional<double> best_seconds(const Tokenizer& tokenizer,
                                   std::span<const std::string_view> documents, unsigned threads) {
  std::optional<double> best;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    const auto encoded = DocumentEncoder(tokenizer, threads).encode(documents, false);
    const double seconds = seconds_since(begin);
    if (!encoded) {
      fmt::print(stderr, "{}\n", encoded.error().message);
      return std::nullopt;
    }
    best = std::min(best.value_or(seconds), seconds);
  }
  return best;
}

/// Encodes a megabyte of one character as one document.
bool measure_repeated(const Tokenizer& tokenizer) {
  constexpr std::size_t bytes = 1'000'000;
  constexpr std::pair<const char*, const char*> characters[] = {
      {"a letter", "a"}, {"spaces", " "}, {"new lines", "\n"}, {"a CJK letter", "\u4e2d"}};
  for (const auto& [name, character] : characters) {
    std::string text;
    while (text.size() < bytes) {
      text += character;
    }
    const std::string_view document = text;
    const auto seconds = best_seconds(tokenizer, {&document, 1}, 1);
    if (!seconds) {
      return false;
    }
    fmt::print("1 MB of {}: {:.3f} s\n", name, *seconds);
  }
  return true;
}

/// Measures the time until a pattern that tries all ways to split a text is aborted.
void measure_explosion() {
  const auto pattern = Regex::compile("(?:(?:a+)+b)|(?:(?:a|aa)+$c)");
  if (!pattern) {
    fmt::print("a pattern made to explode: refused, {}\n", pattern.error().message);
    return;
  }
  const std::string text(1'000'000, 'a');
  const auto begin = Clock::now();
  Regex::Matches matches(*pattern, text);
  const auto match = matches.next();
  fmt::print("a pattern made to explode, 1 MB: {:.3f} s, {}\n", seconds_since(begin),
             match ? "a result" : match.error().message);
}

int measure(const char* path, const std::string& text, unsigned threads, std::size_t bytes) {
  const auto begin = Clock::now();
  const auto tokenizer = Tokenizer::load(path);
  if (!tokenizer) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return EXIT_FAILURE;
  }
  fmt::print("load {:.3f} s, {} ids\n", seconds_since(begin), tokenizer->vocab_size());
  const std::vector<std::string_view> documents = documents_of(text, bytes);
  double alone = 0.0;
  for (unsigned count = 1; count <= threads; ++count) {
    const auto seconds = best_seconds(*tokenizer, documents, count);
    if (!seconds) {
      return EXIT_FAILURE;
    }
    alone = count == 1 ? *seconds : alone;
    fmt::print("{} threads: {:.1f} MB/s, {:.2f} times one\n", count,
               static_cast<double>(text.size()) / *seconds / 1e6, alone / *seconds);
  }
  measure_explosion();
  return measure_repeated(*tokenizer) ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_tokenizer TOKENIZER TEXT [THREADS [DOCUMENT_BYTES]]\n");
    return EXIT_FAILURE;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) {
    fmt::print(stderr, "{}: nothing to read\n", argv[2]);
    return EXIT_FAILURE;
  }
  const auto number = [&](int place, unsigned long otherwise) {
    return argc > place ? std::max(1UL, std::strtoul(argv[place], nullptr, 10)) : otherwise;
  };
  return measure(argv[1], text, static_cast<unsigned>(number(3, 2)), number(4, 4096));
}
