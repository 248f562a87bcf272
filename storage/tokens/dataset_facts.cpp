#include "storage/tokens/dataset_facts.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"

namespace train::storage {
namespace {

using nlohmann::json;

constexpr std::uint64_t facts_limit_bytes = std::uint64_t{1} << 20;

Status read_count(const json& object, const char* key, const std::string& place,
                  std::optional<std::int64_t>& value) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) {
    return {};
  }
  if (!found->is_number_unsigned() ||
      found->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    return user_error(fmt::format("{}: {} has to be a whole number >= 0", place, key));
  }
  value = found->get<std::int64_t>();
  return {};
}

Status read_digest(const json& object, const char* key, const std::string& place,
                   std::optional<std::string>& value) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) {
    return {};
  }
  if (!found->is_string() || !is_digest(found->get_ref<const std::string&>())) {
    return user_error(fmt::format("{}: {} has to be a digest (xxh3-128:...)", place, key));
  }
  value = found->get<std::string>();
  return {};
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
  return {};
}

}  // namespace

Result<DatasetFacts> read_dataset_facts(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / facts_file_name;
  std::error_code code;
  if (!std::filesystem::exists(path, code) && !code) {
    return DatasetFacts{};
  }
  const auto text = read_file(path, facts_limit_bytes);
  if (!text) {
    return text.error();
  }
  const std::string place = path.string();
  const json object = json::parse(*text, nullptr, false);
  if (!object.is_object()) {
    return user_error(
        fmt::format("{} is not a JSON object; prepare the data again with --force", place));
  }
  DatasetFacts facts;
  if (const auto found = object.find("tokenizer"); found != object.end() && !found->is_null()) {
    if (!found->is_string()) {
      return user_error(fmt::format("{}: tokenizer has to be a string", place));
    }
    facts.tokenizer = found->get<std::string>();
  }
  TRAIN_RETURN_IF_ERROR(read_dtype(object, place, facts));
  TRAIN_RETURN_IF_ERROR(read_count(object, "vocab_size", place, facts.vocab_size));
  TRAIN_RETURN_IF_ERROR(read_count(object, "end_of_text", place, facts.end_of_text));
  TRAIN_RETURN_IF_ERROR(read_count(object, "train_tokens", place, facts.train_tokens));
  TRAIN_RETURN_IF_ERROR(read_count(object, "val_tokens", place, facts.val_tokens));
  TRAIN_RETURN_IF_ERROR(read_count(object, "val_bytes", place, facts.val_bytes));
  TRAIN_RETURN_IF_ERROR(read_digest(object, "train_digest", place, facts.train_digest));
  TRAIN_RETURN_IF_ERROR(read_digest(object, "val_digest", place, facts.val_digest));
  return facts;
}

Status write_dataset_facts(const std::filesystem::path& directory, const DatasetFacts& facts) {
  nlohmann::ordered_json object;
  const auto put = [&object](const char* key, const auto& value) {
    if (value) {
      object[key] = *value;
    }
  };
  put("tokenizer", facts.tokenizer);
  put("vocab_size", facts.vocab_size);
  object["dtype"] = facts.token_bytes == 2 ? "uint16" : "uint32";
  put("end_of_text", facts.end_of_text);
  put("train_tokens", facts.train_tokens);
  put("val_tokens", facts.val_tokens);
  put("val_bytes", facts.val_bytes);
  put("train_digest", facts.train_digest);
  put("val_digest", facts.val_digest);
  return write_file_atomically(directory / facts_file_name, object.dump(2) + "\n");
}

}  // namespace train::storage
