#include "data/tokenizer/formats/side_document.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "storage/files/input_file.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

template <class Json>
Result<Json> read_object(const fs::path& path) {
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 24U;
  constexpr storage::JsonLimits limits = {
      .bytes = most_bytes, .values = 1'000'000, .run = most_bytes, .depth = 32};
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return Json::object();
  }
  const auto file = TRAIN_TRY(storage::InputFile::open(path));
  const auto text = TRAIN_TRY(file.read_text(most_bytes));
  if (const std::string excess = storage::json_excess(text, limits); !excess.empty()) {
    return user_error(fmt::format("{}: it is {}", path.string(), excess));
  }
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return user_error(fmt::format("{}: not a JSON object; fix it, or remove it", path.string()));
  }
  return document;
}

}  // namespace

Result<nlohmann::ordered_json> side_members(const fs::path& path) {
  return read_object<nlohmann::ordered_json>(path);
}

Result<nlohmann::json> side_document(const fs::path& path) {
  return read_object<nlohmann::json>(path);
}

}  // namespace train::data
