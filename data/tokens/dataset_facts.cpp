#include "data/tokens/dataset_facts.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"

namespace train::data {
namespace {

using nlohmann::json;

constexpr std::uint64_t kFactsLimitBytes = std::uint64_t{8} << 20;

struct CountKey {
  const char* name;
  std::optional<std::int64_t> DatasetFacts::*member;
};
constexpr CountKey kCounts[] = {{"vocab_size", &DatasetFacts::vocab_size},
                                {"end_of_text", &DatasetFacts::end_of_text},
                                {"train_tokens", &DatasetFacts::train_tokens},
                                {"val_tokens", &DatasetFacts::val_tokens},
                                {"val_bytes", &DatasetFacts::val_bytes}};

struct TextKey {
  const char* name;
  std::optional<std::string> DatasetFacts::*member;
  bool (*holds)(std::string_view);
  const char* wanted;
};
constexpr const char* kDigest = "a digest (xxh3-128:...)";
constexpr TextKey kTexts[] = {
    {"format", &DatasetFacts::format, [](std::string_view) { return true; }, "a string"},
    {"tokenizer", &DatasetFacts::tokenizer, [](std::string_view) { return true; }, "a string"},
    {"train_digest", &DatasetFacts::train_digest, storage::is_digest, kDigest},
    {"val_digest", &DatasetFacts::val_digest, storage::is_digest, kDigest}};

/// Member `key`; null if missing.
const json* member_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Error wrong(const std::string& place, const char* key, const char* wanted) {
  return user_error(fmt::format("{}: {} has to be {}", place, key, wanted));
}

Status read_dtype(const json& object, const std::string& place, DatasetFacts& facts) {
  const auto found = object.find("dtype");
  if (found == object.end()) {
    return {};
  }
  if (*found != "uint16" && *found != "uint32") {
    return user_error(fmt::format("{}: dtype has to be \"uint16\" or \"uint32\"", place));
  }
  facts.token_bytes = *found == "uint16" ? 2 : 4;
  facts.says_dtype = true;
  return {};
}

}  // namespace

Result<DatasetFacts> read_dataset_facts(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kFactsFileName;
  std::error_code code;
  if (std::filesystem::exists(directory / kUnfinishedFileName, code)) {
    return user_error(
        fmt::format("{}: `data prepare` was stopped while it put its files there; run it again",
                    directory.string()));
  }
  if (!std::filesystem::exists(path, code) && !code) {
    return DatasetFacts{};
  }
  const auto text = TRAIN_TRY(storage::read_file(path, kFactsLimitBytes));
  const std::string place = path.string();
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return user_error(
        fmt::format("{} is not a JSON object; prepare the data again with --force", place));
  }
  DatasetFacts facts;
  TRAIN_RETURN_IF_ERROR(read_dtype(object, place, facts));
  for (const CountKey& key : kCounts) {
    const json* found = member_of(object, key.name);
    if (found != nullptr && (!found->is_number_unsigned() || found->get<std::int64_t>() < 0)) {
      return wrong(place, key.name, "a whole number >= 0");
    }
    if (found != nullptr) {
      facts.*key.member = found->get<std::int64_t>();
    }
  }
  for (const TextKey& key : kTexts) {
    const json* found = member_of(object, key.name);
    if (found != nullptr &&
        (!found->is_string() || !key.holds(found->get_ref<const std::string&>()))) {
      return wrong(place, key.name, key.wanted);
    }
    if (found != nullptr) {
      facts.*key.member = found->get<std::string>();
    }
  }
  return facts;
}

Status write_dataset_facts(const std::filesystem::path& directory, const DatasetFacts& facts) {
  nlohmann::ordered_json object;
  const auto put = [&object](const char* key, const auto& value) {
    if (value) {
      object[key] = *value;
    }
  };
  put("format", facts.format);
  put("tokenizer", facts.tokenizer);
  put("vocab_size", facts.vocab_size);
  object["dtype"] = facts.token_bytes == 2 ? "uint16" : "uint32";
  put("end_of_text", facts.end_of_text);
  put("train_tokens", facts.train_tokens);
  put("val_tokens", facts.val_tokens);
  put("val_bytes", facts.val_bytes);
  put("train_digest", facts.train_digest);
  put("val_digest", facts.val_digest);
  return storage::write_file_atomically(directory / kFactsFileName, object.dump(2) + "\n");
}

}  // namespace train::data
