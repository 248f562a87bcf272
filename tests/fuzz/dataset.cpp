// Directories of token files: meta.json up to the first NUL byte, then the tokens of both splits.
#include <cstdint>

#include "data/tokens/dataset_facts.hpp"
#include "data/tokens/token_dataset.hpp"
#include "data/tokens/token_fingerprint.hpp"
#include "tests/fuzz/scratch_directory.hpp"
#include "tests/fuzz/target.hpp"

namespace train::fuzz {
namespace {

void read_split(const data::TokenSplit& split, std::int64_t vocab_size) {
  const auto length = static_cast<std::size_t>(split.sequence_length());
  std::vector<std::int32_t> tokens(length);
  std::vector<std::int32_t> targets(length);
  for (std::uint64_t index = 0; index < split.sequences(); ++index) {
    const Status status = split.read(index, tokens, targets);
    if (!status) {
      require_readable(status.error());
      continue;
    }
    for (std::size_t i = 0; i < length; ++i) {
      require(tokens[i] >= 0 && targets[i] >= 0, "a token is no negative number");
      require(vocab_size == 0 || (tokens[i] < vocab_size && targets[i] < vocab_size),
              "a token is one of the vocabulary");
      require(i == 0 || tokens[i] == targets[i - 1], "targets are the tokens one further");
    }
  }
}

void run(std::string_view input) {
  static const ScratchDirectory directory;
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view tokens = input.substr(std::min(end + 1, input.size()));
  (void)directory.put(data::kFactsFileName, input.substr(0, end));
  (void)directory.put("train.bin", tokens);
  (void)directory.put("val.bin", tokens);
  const data::DatasetOptions options{.sequence_length = 4, .vocab_size = 0};
  const auto dataset = data::TokenDataset::open(directory.path(), options);
  if (!dataset) {
    require_readable(dataset.error());
    return;
  }
  read_split(dataset->train(), dataset->facts().vocab_size.value_or(0));
  read_split(dataset->validation(), dataset->facts().vocab_size.value_or(0));
  require(bool(data::token_fingerprint(*dataset)), "data that opens has a fingerprint");
  if (const auto bytes = dataset->bytes_per_token()) {
    require(*bytes >= 0, "tokens hold no fewer bytes than none");
  }
}

std::vector<std::string> seeds() {
  std::string tokens;
  for (int i = 0; i < 26; ++i) {
    tokens.push_back(static_cast<char>(i));
    tokens.push_back('\0');
  }
  const std::string nul(1, '\0');
  return {
      R"({"tokenizer":"bytes","vocab_size":257,"dtype":"uint16","end_of_text":256})" + nul + tokens,
      R"({"dtype":"uint32"})" + nul + tokens,
      R"({"vocab_size":30,"train_tokens":26,"val_tokens":26,"val_bytes":52})" + nul + tokens};
}

}  // namespace

Target dataset_target() {
  return {"dataset",
          run,
          seeds,
          {"\"tokenizer\":", "\"vocab_size\":", "\"dtype\":", "\"uint32\"",
           "\"end_of_text\":", "\"train_tokens\":", "\"val_bytes\":", "9223372036854775807",
           "18446744073709551616", "-1", "1e400", "null", "[[[["}};
}

}  // namespace train::fuzz
