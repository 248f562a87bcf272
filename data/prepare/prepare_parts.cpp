#include "data/prepare/prepare_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "data/rows/row_format.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "storage/inputs/member_list.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

/// Files first written under a hidden name.
constexpr std::array<std::string_view, 4> kWrittenFiles = {"train.bin", "val.bin", kFactsFileName,
                                                           kUnfinishedFileName};
constexpr std::size_t kTokenBufferBytes = std::size_t{1} << 20;

bool is_row_file(const std::string& name) {
  for (const std::string_view split : kRowSplits) {
    for (const std::string_view part : kRowParts) {
      if (name == row_file_name(split, part)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

Result<std::uint32_t> end_of_text_of(const Tokenizer& tokenizer, const std::string& source) {
  const auto token = tokenizer.end_of_text();
  if (!token) {
    return user_error(
        fmt::format("{}: no end-of-text token is set, which must end every document; set eos_token "
                    "in tokenizer_config.json",
                    source));
  }
  return *token;
}

double document_hash(std::uint64_t seed, std::uint64_t document) {
  std::uint64_t value = seed * 0x9ddfea08eb382d69U + document + 0x2545f4914f6cdd1dU;
  for (int round = 0; round < 3; ++round) {
    value ^= value >> 31U;
    value *= 0xd1342543de82ef95U;
  }
  value ^= value >> 32U;
  return static_cast<double>(value >> 11U) * 0x1p-53;
}

SplitPlan make_split_plan(const TokenCensus& census, double val_fraction) {
  const double wanted = val_fraction * static_cast<double>(census.tokens);
  const auto hashed = static_cast<double>(census.hashed_tokens);
  if (census.hashed_tokens > 0 && census.hashed_tokens < census.tokens && hashed >= 0.5 * wanted &&
      hashed <= 2.0 * wanted) {
    return {};
  }
  const auto rounded = static_cast<std::uint64_t>(std::llround(wanted));
  const std::uint64_t tail = std::clamp<std::uint64_t>(rounded, 1, census.tokens - 1);
  return {.whole_documents = false, .tail_begin = census.tokens - tail};
}

TokenWriter::TokenWriter(storage::AtomicFile file, std::int64_t token_bytes)
    : file_(std::move(file)), token_bytes_(token_bytes) {
  buffer_.reserve(kTokenBufferBytes + sizeof(std::uint32_t));
}

Status TokenWriter::add(std::span<const std::byte> text) {
  for (const std::byte byte : text) {
    TRAIN_RETURN_IF_ERROR(add_token(std::to_integer<std::uint32_t>(byte)));
  }
  text_bytes_ += text.size();
  return {};
}

Status TokenWriter::add_token(std::uint32_t token) {
  for (std::int64_t byte = 0; byte < token_bytes_; ++byte) {
    buffer_.push_back(static_cast<char>((token >> (8 * byte)) & 0xffU));
  }
  ++tokens_;
  return buffer_.size() >= kTokenBufferBytes ? flush() : Status{};
}

Status TokenWriter::flush() {
  TRAIN_RETURN_IF_ERROR(file_.write(buffer_));
  digest_.update(buffer_);
  buffer_.clear();
  return {};
}

Status TokenWriter::finish() {
  TRAIN_RETURN_IF_ERROR(flush());
  return file_.sync();
}

void ReadProgress::advance(std::uint64_t bytes) {
  done_ += bytes;
  if (callback_) {
    callback_(std::min(done_, total_), total_);
  }
}

Result<std::vector<fs::path>> earlier_files(const fs::path& directory) {
  const auto names = TRAIN_TRY(storage::entry_names(directory));
  std::vector<fs::path> found;
  for (const std::string& name : names) {
    const bool tokens = (name.ends_with(".bin") || name.ends_with(".npy")) &&
                        (name.starts_with("train") || name == "val.bin" || name == "val.npy");
    const bool rows = is_row_file(name);
    if (name == kFactsFileName) {
      // First: a crash in between must not leave facts about missing files.
      found.insert(found.begin(), directory / name);
    } else if (tokens || rows) {
      found.push_back(directory / name);
    }
  }
  return found;
}

bool holds_data(const fs::path& directory, const std::vector<fs::path>& files) {
  std::error_code ignored;
  if (fs::exists(directory / kUnfinishedFileName, ignored)) {
    return false;
  }
  return std::any_of(files.begin(), files.end(), [](const fs::path& file) {
    return file.filename() == kFactsFileName || file.extension() == ".bin" ||
           file.extension() == ".npy";
  });
}

Status remove_hidden(const fs::path& directory) {
  const auto names = TRAIN_TRY(storage::entry_names(directory));
  for (const std::string& name : names) {
    const bool hidden =
        std::any_of(kWrittenFiles.begin(), kWrittenFiles.end(), [&name](std::string_view written) {
          return name.starts_with(fmt::format(".{}.tmp-", written));
        });
    if (hidden || name == kRowsStagingFolder) {
      TRAIN_RETURN_IF_ERROR(storage::remove_tree(directory / name));
    }
  }
  return {};
}

Result<TokenWriters> TokenWriters::create(const fs::path& out, std::int64_t token_bytes) {
  auto train = TRAIN_TRY(storage::AtomicFile::create(out / "train.bin"));
  auto val = TRAIN_TRY(storage::AtomicFile::create(out / "val.bin"));
  return TokenWriters{TokenWriter(std::move(train), token_bytes),
                      TokenWriter(std::move(val), token_bytes)};
}

PrepareReport token_report(const TokenCensus& census, const SplitPlan& plan,
                           const TokenWriters& writers) {
  PrepareReport report;
  report.documents = census.documents;
  report.train_tokens = writers.train.tokens();
  report.val_tokens = writers.val.tokens();
  report.val_bytes = writers.val.text_bytes();
  report.whole_documents = plan.whole_documents;
  return report;
}

std::vector<std::string> PrepareReport::dropped_lines() const {
  return storage::dropped_table(storage::drop_reasons(dropped, storage::line_fault_text));
}

namespace {

/// Advice for a record without a member "text".
std::string no_text_advice(std::string_view record) {
  // Members that identify conversations, prompts and pairs.
  static const std::vector<std::vector<const char*>> kinds = {{"messages"},
                                                              {"conversations"},
                                                              {"conversation"},
                                                              {"instruction", "output"},
                                                              {"prompt", "completion"},
                                                              {"chosen", "rejected"}};
  const auto object = nlohmann::ordered_json::parse(record, nullptr, false);
  const bool known = std::any_of(kinds.begin(), kinds.end(), [&](const auto& names) {
    return std::all_of(names.begin(), names.end(), [&](const char* name) {
      return object.is_object() && object.contains(name);
    });
  });
  return known ? "use --row-length T for conversations, prompts or pairs"
               : fmt::format("its {} do not tell which is the text; rename that one \"text\"",
                             storage::member_list(object));
}

}  // namespace

Status DropCount::add(storage::LineFault fault, const fs::path& input,
                      const storage::InputRecord& record, std::uint64_t documents) {
  constexpr std::uint64_t first_records = 1000;
  storage::DropTally& tally = by_fault_.at(static_cast<std::size_t>(fault));
  if (tally.lines++ == 0) {
    tally.first = fmt::format("{}:{}", input.string(), record.line);
    if (fault == storage::LineFault::no_text) {
      no_text_advice_ = no_text_advice(record.text);
    }
  }
  // Detects data of another kind early, not after hours.
  return ++dropped_ == first_records && documents == 0 ? check(documents) : Status{};
}

Status DropCount::check(std::uint64_t documents) const {
  if (documents == 0 && dropped_ == 0) {
    return user_error(fmt::format("{}: no text in the input{}; give a file that is not empty",
                                  request_.inputs.front().string(),
                                  request_.inputs.size() > 1 ? "s" : ""));
  }
  std::string text =
      storage::dropped_text(storage::drop_reasons(by_fault_, storage::line_fault_text));
  if (!no_text_advice_.empty()) {
    text += "; " + no_text_advice_;
  }
  if (documents == 0) {
    return user_error(fmt::format("no record of the input gives a text: {}{}", text,
                                  no_text_advice_.empty() ? "; fix the data" : ""));
  }
  return storage::check_dropped({documents + dropped_, dropped_}, request_.most_dropped, text);
}

Status publish_data(const fs::path& out, const std::string& tokenizer,
                    const std::function<Status()>& place,
                    const std::function<Status()>& write_facts) {
  const fs::path mark = out / kUnfinishedFileName;
  TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(mark, ""));
  const auto earlier = TRAIN_TRY(earlier_files(out));
  for (const fs::path& path : earlier) {
    TRAIN_RETURN_IF_ERROR(storage::remove_tree(path));
    TRAIN_RETURN_IF_ERROR(storage::fsync_directory(out));
  }
  if (tokenizer != "bytes") {
    TRAIN_RETURN_IF_ERROR(keep_tokenizer(tokenizer, out));
  }
  TRAIN_RETURN_IF_ERROR(place());
  TRAIN_RETURN_IF_ERROR(write_facts());
  TRAIN_RETURN_IF_ERROR(storage::remove_tree(mark));
  return storage::fsync_directory(out);
}

Status publish_tokens(const PrepareRequest& request, DatasetFacts facts, TokenWriters& writers) {
  TokenWriter& train = writers.train;
  TokenWriter& val = writers.val;
  TRAIN_RETURN_IF_ERROR(train.finish());
  TRAIN_RETURN_IF_ERROR(val.finish());
  facts.train_tokens = static_cast<std::int64_t>(train.tokens());
  facts.val_tokens = static_cast<std::int64_t>(val.tokens());
  facts.val_bytes = static_cast<std::int64_t>(val.text_bytes());
  facts.train_digest = train.digest();
  facts.val_digest = val.digest();
  facts.token_bytes = train.token_bytes();
  const auto place = [&]() -> Status {
    TRAIN_RETURN_IF_ERROR(train.commit());
    return val.commit();
  };
  return publish_data(request.out, request.tokenizer, place,
                      [&] { return write_dataset_facts(request.out, facts); });
}

}  // namespace train::data
