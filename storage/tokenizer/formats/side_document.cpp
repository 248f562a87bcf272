#include "storage/tokenizer/formats/side_document.hpp"

#include <nlohmann/json.hpp>
#include <system_error>

#include "storage/files/input_file.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::storage {

namespace fs = std::filesystem;
using nlohmann::json;

json side_document(const fs::path& path) {
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 24U;
  constexpr JsonLimits limits = {
      .bytes = most_bytes, .values = 1'000'000, .run = most_bytes, .depth = 32};
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    return nullptr;
  }
  const auto file = InputFile::open(path);
  const auto text = file ? file->read_text(most_bytes) : Result<std::string>(file.error());
  if (!text || !json_excess(*text, limits).empty()) {
    return nullptr;
  }
  json document = json::parse(*text, nullptr, false);
  return document.is_discarded() ? json(nullptr) : document;
}

}  // namespace train::storage
