#include "storage/tokens/token_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "storage/files/atomic_file.hpp"
#include "storage/files/input_file.hpp"
#include "storage/tokens/dataset_facts.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

constexpr const char* make_command =
    "make it with `actortrain data prepare --input FILE --tokenizer bytes --out DIR`";

Result<std::vector<fs::path>> train_files(const fs::path& directory) {
  std::error_code code;
  std::vector<fs::path> files;
  fs::directory_iterator entry(directory, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("train") && name.ends_with(".bin")) {
      files.push_back(entry->path());
    }
  }
  if (code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory) {
    return user_error(fmt::format("data directory {}: {}; check data.dir, or {}",
                                  directory.string(), code.message(), make_command));
  }
  if (code) {
    return os_error(Access::read, directory, code.value());
  }
  if (files.empty()) {
    return user_error(
        fmt::format("data directory {} holds no train.bin (nor train_0000.bin, ...); {}",
                    directory.string(), make_command));
  }
  std::sort(files.begin(), files.end());
  return files;
}

Status check_count(const fs::path& directory, const char* key, std::optional<std::int64_t> said,
                   std::uint64_t found) {
  if (said && (*said < 0 || static_cast<std::uint64_t>(*said) != found)) {
    return user_error(fmt::format(
        "{}: {} = {}, but the files hold {} tokens; prepare the data again with --force",
        (directory / facts_file_name).string(), key, *said, found));
  }
  return {};
}

Result<std::int64_t> vocabulary(const fs::path& directory, const DatasetFacts& facts,
                                std::int64_t model_vocab_size) {
  const std::int64_t data_vocab_size = facts.vocab_size.value_or(0);
  if (model_vocab_size > 0 && model_vocab_size < data_vocab_size) {
    return user_error(
        fmt::format("{}: the data's vocab_size {} is above the model's {}; set model.vocab_size = "
                    "{} or more",
                    (directory / facts_file_name).string(), data_vocab_size, model_vocab_size,
                    data_vocab_size));
  }
  return model_vocab_size > 0 ? model_vocab_size : data_vocab_size;
}

}  // namespace

Result<TokenSplit> TokenSplit::open(std::span<const fs::path> files, const Layout& layout) {
  TRAIN_CHECK(layout.sequence_length >= 1 && !files.empty());
  TRAIN_CHECK(layout.token_bytes == 2 || layout.token_bytes == 4);
  TokenSplit split;
  split.layout_ = layout;
  for (const fs::path& path : files) {
    TRAIN_RETURN_IF_ERROR(split.add(path));
  }
  if (split.sequences_ == 0) {
    return user_error(
        fmt::format("{}: {} tokens, but a sequence needs {} (data.sequence_length + 1); lower "
                    "data.sequence_length or give more text",
                    files.size() == 1 ? files.front().string()
                                      : (files.front().parent_path() / "train*.bin").string(),
                    split.tokens_, layout.sequence_length + 1));
  }
  return split;
}

Status TokenSplit::add(const fs::path& path) {
  const auto file = InputFile::open(path);
  TRAIN_RETURN_IF_ERROR(file);
  auto bytes = file->map();
  TRAIN_RETURN_IF_ERROR(bytes);
  const std::uint64_t size_bytes = file->size_bytes();
  const auto token_bytes = static_cast<std::size_t>(layout_.token_bytes);
  if (size_bytes % token_bytes != 0) {
    return user_error(fmt::format(
        "{}: {} bytes is no multiple of {} (uint{} tokens): cut short, or of another dtype; "
        "prepare it again or set dtype in meta.json",
        path.string(), size_bytes, token_bytes, 8 * token_bytes));
  }
  const std::uint64_t tokens = size_bytes / token_bytes;
  const auto length = static_cast<std::uint64_t>(layout_.sequence_length);
  files_.push_back({path, std::move(*bytes), tokens, sequences_});
  tokens_ += tokens;
  sequences_ += tokens > length ? (tokens - 1) / length : 0;
  return {};
}

std::uint32_t TokenSplit::token(const File& file, std::uint64_t position) const {
  const auto width = static_cast<std::size_t>(layout_.token_bytes);
  const std::byte* const bytes = file.bytes.get() + position * width;
  std::uint32_t value = 0;
  for (std::size_t i = width; i-- > 0;) {
    value = (value << 8U) | std::to_integer<std::uint32_t>(bytes[i]);
  }
  return value;
}

Status TokenSplit::read(std::uint64_t index, std::span<std::int32_t> tokens,
                        std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::uint64_t>(layout_.sequence_length);
  TRAIN_CHECK(index < sequences_, "sequence {} of {}", index, sequences_);
  const auto after = std::upper_bound(
      files_.begin(), files_.end(), index,
      [](std::uint64_t wanted, const File& file) { return wanted < file.first_sequence; });
  const auto file = std::prev(after);
  return read_at(static_cast<std::size_t>(file - files_.begin()),
                 (index - file->first_sequence) * length, tokens, targets);
}

Status TokenSplit::read_at(std::size_t index, std::uint64_t first, std::span<std::int32_t> tokens,
                           std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::uint64_t>(layout_.sequence_length);
  TRAIN_CHECK(index < files_.size(), "file {} of {}", index, files_.size());
  const File& file = files_[index];
  TRAIN_CHECK(file.tokens > length && first < file.tokens - length, "token {} of {}", first,
              file.tokens);
  TRAIN_CHECK(tokens.size() == length && targets.size() == length);
  const std::uint32_t limit = layout_.vocab_size > 0 && layout_.vocab_size < 0x7fffffff
                                  ? static_cast<std::uint32_t>(layout_.vocab_size)
                                  : 0x7fffffffU;
  for (std::uint64_t i = 0; i <= length; ++i) {
    const std::uint32_t id = token(file, first + i);
    if (id >= limit) {
      return user_error(fmt::format(
          "{}: token {} at position {} is outside the vocabulary of {}; set model.vocab_size to "
          "the data's, or prepare the data for this model",
          file.path.string(), id, first + i, limit));
    }
    if (i < length) {
      tokens[i] = static_cast<std::int32_t>(id);
    }
    if (i > 0) {
      targets[i - 1] = static_cast<std::int32_t>(id);
    }
  }
  return {};
}

Result<TokenDataset> TokenDataset::open(const fs::path& directory, const DatasetOptions& options) {
  TokenDataset dataset;
  auto facts = read_dataset_facts(directory);
  TRAIN_RETURN_IF_ERROR(facts);
  if (facts->format) {
    return user_error(
        fmt::format("{}: format is \"{}\", not tokens without a form; an objective that reads rows "
                    "takes it, or prepare the text without --row-length",
                    (directory / facts_file_name).string(), *facts->format));
  }
  const auto files = train_files(directory);
  TRAIN_RETURN_IF_ERROR(files);
  dataset.facts_ = std::move(*facts);
  const auto vocab_size = vocabulary(directory, dataset.facts_, options.vocab_size);
  TRAIN_RETURN_IF_ERROR(vocab_size);
  const TokenSplit::Layout layout{options.sequence_length, dataset.facts_.token_bytes, *vocab_size};
  auto train = TokenSplit::open(*files, layout);
  TRAIN_RETURN_IF_ERROR(train);
  dataset.train_ = std::move(*train);
  TRAIN_RETURN_IF_ERROR(
      check_count(directory, "train_tokens", dataset.facts_.train_tokens, dataset.train_.tokens()));
  const fs::path val_file = directory / "val.bin";
  std::error_code code;
  if (!fs::exists(val_file, code) && !code) {
    if (options.need_validation) {
      return user_error(fmt::format("{} is missing; {}, or set eval.interval_steps = 0",
                                    val_file.string(), make_command));
    }
    return dataset;
  }
  auto validation = TokenSplit::open(std::span(&val_file, 1), layout);
  if (!validation) {
    if (!options.need_validation) {
      return dataset;
    }
    return validation.error();
  }
  dataset.validation_ = std::move(*validation);
  TRAIN_RETURN_IF_ERROR(check_count(directory, "val_tokens", dataset.facts_.val_tokens,
                                    dataset.validation_.tokens()));
  return dataset;
}

std::optional<double> TokenDataset::bytes_per_token() const {
  if (!facts_.val_bytes || *facts_.val_bytes <= 0 || validation_.tokens() == 0) {
    return std::nullopt;
  }
  return static_cast<double>(*facts_.val_bytes) / static_cast<double>(validation_.tokens());
}

}  // namespace train::storage
