#include "data/tokens/token_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <system_error>

#include "data/tokens/dataset_facts.hpp"
#include "data/tokens/token_encoding.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/input_file.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMakeCommand =
    "make it with `actortrain data prepare --input FILE --tokenizer bytes --out DIR`";

constexpr std::int64_t kLargestVocabulary = 0x7fffffff;
/// Ids checked at each end of a file on opening; all are checked when read.
constexpr std::uint64_t kIdsLookedAt = 4096;

struct SplitFiles {
  std::vector<fs::path> train;
  std::vector<fs::path> validation;  ///< May be empty.
};

/// True if `word` stands in `name` at `at`, with no letter after it.
bool is_word_at(std::string_view name, std::size_t at, std::string_view word) {
  if (at > name.size() || !name.substr(at).starts_with(word)) {
    return false;
  }
  const std::string_view rest = name.substr(at + word.size());
  return rest.empty() || std::isalpha(static_cast<unsigned char>(rest.front())) == 0;
}

/// Files whose names begin with the split's; if none is for training, those with the split after
/// "_", as other programs name them. In name order.
SplitFiles files_by_name(const std::vector<fs::path>& all) {
  SplitFiles ours;
  SplitFiles others;
  for (const fs::path& path : all) {
    const std::string name = path.filename().string();
    if (name.starts_with("train")) {
      ours.train.push_back(path);
    } else if (is_word_at(name, 0, "val")) {
      ours.validation.push_back(path);
    } else if (is_word_at(name, name.find("_train"), "_train")) {
      others.train.push_back(path);
    } else if (is_word_at(name, name.find("_val"), "_val")) {
      others.validation.push_back(path);
    }
  }
  return ours.train.empty() ? others : ours;
}

/// Error (user): the same ids may exist twice.
Status check_endings(const std::vector<fs::path>& files) {
  const auto is_numpy = [](const fs::path& path) { return path.extension() == ".npy"; };
  const auto numpy = std::find_if(files.begin(), files.end(), is_numpy);
  const auto other = std::find_if_not(files.begin(), files.end(), is_numpy);
  if (numpy == files.end() || other == files.end()) {
    return {};
  }
  return user_error(fmt::format("{} and {}: both are there; keep .bin or .npy", other->string(),
                                numpy->filename().string()));
}

/// `key`: the run file's that names the directory.
Result<SplitFiles> split_files(const fs::path& directory, const char* key) {
  std::error_code code;
  std::vector<fs::path> all;
  fs::directory_iterator entry(directory, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const fs::path ending = entry->path().extension();
    if (ending == ".bin" || ending == ".npy") {
      all.push_back(entry->path());
    }
  }
  if (code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory) {
    // A shell would have replaced it.
    const bool shell = directory.string().find_first_of("~$") != std::string::npos;
    return user_error(fmt::format(
        "data directory {}: {}; {}check {}, or {}", directory.string(), code.message(),
        shell ? "write the whole path: ~ and $NAME stay as they are; " : "", key, kMakeCommand));
  }
  if (code) {
    return storage::os_error(storage::Access::read, directory, code.value());
  }
  std::sort(all.begin(), all.end());
  SplitFiles files = files_by_name(all);
  if (files.train.empty()) {
    return user_error(fmt::format(
        "data directory {}: holds no train.bin (nor train_0000.bin, ...); check {}, or {}",
        directory.string(), key, kMakeCommand));
  }
  // Files beside a val.bin were never read.
  const fs::path only = directory / "val.bin";
  if (std::find(files.validation.begin(), files.validation.end(), only) != files.validation.end()) {
    files.validation = {only};
  }
  TRAIN_RETURN_IF_ERROR(check_endings(files.train));
  TRAIN_RETURN_IF_ERROR(check_endings(files.validation));
  return files;
}

Status check_count(const fs::path& directory, const char* key, std::optional<std::int64_t> said,
                   std::uint64_t found) {
  if (said && (*said < 0 || static_cast<std::uint64_t>(*said) != found)) {
    return user_error(fmt::format(
        "{}: {} = {}, but the files hold {} tokens; prepare the data again with --force",
        (directory / kFactsFileName).string(), key, *said, found));
  }
  return {};
}

}  // namespace

Result<TokenSplit> TokenSplit::open(std::span<const fs::path> files, const Layout& layout) {
  TRAIN_CHECK(layout.sequence_length >= 1 && !files.empty());
  TRAIN_CHECK(!layout.said_bytes || *layout.said_bytes == 2 || *layout.said_bytes == 4);
  TokenSplit split;
  split.layout_ = layout;
  for (const fs::path& path : files) {
    TRAIN_RETURN_IF_ERROR(split.add(path));
  }
  TRAIN_RETURN_IF_ERROR(split.check_said_vocabulary());
  if (split.sequences_ == 0 && !layout.may_be_short) {
    return user_error(fmt::format(
        "{}: {} tokens, but a sequence needs {} (data.sequence_length + 1); lower "
        "data.sequence_length or give more text",
        files.size() == 1 ? files.front().string() : fmt::format("{} ...", files.front().string()),
        split.tokens_, layout.sequence_length + 1));
  }
  return split;
}

Status TokenSplit::add(const fs::path& path) {
  const auto file = TRAIN_TRY(storage::InputFile::open(path));
  auto bytes = TRAIN_TRY(file.map());
  const std::uint64_t size_bytes = file.size_bytes();
  const auto encoding = TRAIN_TRY(token_encoding_of({.path = path,
                                                     .bytes = {bytes.get(), size_bytes},
                                                     .said_bytes = layout_.said_bytes,
                                                     .is_ours = layout_.is_ours,
                                                     .vocab_size = layout_.vocab_size}));
  const std::uint64_t tokens = encoding.tokens;
  const auto length = static_cast<std::uint64_t>(layout_.sequence_length);
  files_.push_back({path, std::move(bytes), size_bytes, encoding.first_byte,
                    static_cast<std::uint64_t>(encoding.token_bytes), tokens, sequences_});
  tokens_ += tokens;
  sequences_ += tokens > length ? (tokens - 1) / length : 0;
  return {};
}

std::string TokenSplit::encoding_of(std::size_t index) const {
  const File& file = files_[index];
  const auto said = static_cast<std::uint64_t>(layout_.said_bytes.value_or(2));
  return file.first_byte == 0 && file.token_bytes == said
             ? ""
             : fmt::format("+{}x{}", file.first_byte, file.token_bytes);
}

std::uint32_t TokenSplit::token(const File& file, std::uint64_t position) const {
  const std::byte* const bytes = file.bytes.get() + file.first_byte + position * file.token_bytes;
  std::uint64_t value = 0;
  for (std::uint64_t i = file.token_bytes; i-- > 0;) {
    value = (value << 8U) | std::to_integer<std::uint64_t>(bytes[i]);
  }
  // No vocabulary holds an id that does not fit.
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, 0xffffffffU));
}

std::uint32_t TokenSplit::id_limit() const {
  std::int64_t limit = kLargestVocabulary;
  for (const std::int64_t size : {layout_.vocab_size, layout_.said_vocab_size}) {
    limit = size > 0 ? std::min(limit, size) : limit;
  }
  return static_cast<std::uint32_t>(limit);
}

bool TokenSplit::is_minus_one(const File& file, std::uint64_t position) {
  const std::byte* const bytes = file.bytes.get() + file.first_byte + position * file.token_bytes;
  return file.token_bytes >= 4 && std::all_of(bytes, bytes + file.token_bytes, [](std::byte byte) {
           return byte == std::byte{0xff};
         });
}

Error TokenSplit::outside(const File& file, std::uint64_t position, std::uint32_t id) const {
  if (is_minus_one(file, position)) {
    return user_error(
        fmt::format("{}: token -1 at position {}: not an id, but other programs' mark for a "
                    "missing one; write the ids without it",
                    file.path.string(), position));
  }
  const std::int64_t said = layout_.said_vocab_size;
  if (said > 0 && id >= said) {
    return user_error(
        fmt::format("{}: vocab_size is {}, but {} has token {} at position {}; fix vocab_size if "
                    "the ids are right, or prepare the data again",
                    (file.path.parent_path() / kFactsFileName).string(), said,
                    file.path.filename().string(), id, position));
  }
  return user_error(fmt::format(
      "{}: token {} at position {} is outside the vocabulary of {}; prepare the data without "
      "the text that has it, or with the model's tokenizer; a new model takes more "
      "(model.vocab_size)",
      file.path.string(), id, position, id_limit()));
}

Status TokenSplit::check_said_vocabulary() const {
  if (layout_.said_vocab_size <= 0) {
    return {};
  }
  for (const File& file : files_) {
    for (std::uint64_t i = 0; i < file.tokens; ++i) {
      if (i == kIdsLookedAt && file.tokens > 2 * kIdsLookedAt) {
        i = file.tokens - kIdsLookedAt;
      }
      const std::uint32_t id = token(file, i);
      if (id >= layout_.said_vocab_size && !is_minus_one(file, i)) {
        return outside(file, i, id);
      }
    }
  }
  return {};
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
  const std::uint32_t limit = id_limit();
  for (std::uint64_t i = 0; i <= length; ++i) {
    const std::uint32_t id = token(file, first + i);
    if (id >= limit) {
      return outside(file, first + i, id);
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
  auto facts = TRAIN_TRY(read_dataset_facts(directory));
  if (facts.format) {
    return user_error(
        fmt::format("{}: format is \"{}\", not plain tokens; choose an objective that reads rows, "
                    "or prepare the text without --row-length",
                    (directory / kFactsFileName).string(), *facts.format));
  }
  const auto files = TRAIN_TRY(split_files(directory, options.key));
  dataset.facts_ = std::move(facts);
  // A tokenizer may have more tokens than a model: the ids in the data count.
  const std::int64_t vocab_size =
      options.vocab_size > 0 ? options.vocab_size : dataset.facts_.vocab_size.value_or(0);
  const TokenSplit::Layout layout{.sequence_length = options.sequence_length,
                                  .said_bytes = dataset.facts_.says_dtype
                                                    ? std::optional(dataset.facts_.token_bytes)
                                                    : std::nullopt,
                                  .is_ours = dataset.facts_.train_digest.has_value(),
                                  .vocab_size = vocab_size,
                                  .said_vocab_size = dataset.facts_.vocab_size.value_or(0)};
  dataset.train_ = TRAIN_TRY(TokenSplit::open(files.train, layout));
  TRAIN_RETURN_IF_ERROR(
      check_count(directory, "train_tokens", dataset.facts_.train_tokens, dataset.train_.tokens()));
  dataset.validation_files_ = files.validation;
  if (files.validation.empty()) {
    if (options.need_validation) {
      return user_error(fmt::format("{} is missing; {}, or set eval.interval_steps = 0",
                                    (directory / "val.bin").string(), kMakeCommand));
    }
    return dataset;
  }
  TokenSplit::Layout validation_layout = layout;
  validation_layout.may_be_short = !options.need_validation;
  dataset.validation_ = TRAIN_TRY(TokenSplit::open(files.validation, validation_layout));
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

}  // namespace train::data
