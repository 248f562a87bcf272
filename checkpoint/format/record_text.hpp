#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/format/manifest.hpp"

namespace train::checkpoint {

/// Record as a JSON object on one line.
[[nodiscard]] std::string record_text(const FileRecord& file);
[[nodiscard]] std::string record_text(const TensorRecord& tensor);
/// `text` as a quoted JSON string. REQUIRES: UTF-8.
[[nodiscard]] std::string json_string(std::string_view text);

/// Member of the outer object, with its destination.
struct WantedMember {
  std::string_view key;
  std::variant<std::string*, std::int64_t*> target;
  bool required = true;  ///< false: if it is missing, the target is unchanged.
};

/// Data read before the first defect, if there is one.
struct RecordsFound {
  std::vector<FileRecord> files;      ///< Contents of the member "files".
  std::vector<TensorRecord> tensors;  ///< Contents of the member "tensors"; not checked against
                                      ///< each other.
  std::string defect;  ///< One line; empty if nothing is missing or of the wrong type.
};

/// Reads a JSON object of `wanted` members, files and tensors, in any order; unknown members are
/// skipped. For any text: no recursion, memory proportional to the text, and records and nesting
/// are limited.
[[nodiscard]] RecordsFound read_records(std::string_view text,
                                        std::span<const WantedMember> wanted);

}  // namespace train::checkpoint
