#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {

/// Metadata of a GGUF file below "<architecture>.": reading a key marks it, and unread keys other
/// than 0 or false are refused by name, since they affect the maths. The first mistake is kept;
/// values returned after it are meaningless placeholders.
class GgufKeys {
 public:
  /// `file` outlives it.
  GgufKeys(const storage::GgufFile& file, std::string architecture)
      : file_(&file), architecture_(std::move(architecture)) {}

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Mistakes: the key is missing without `otherwise`, or has another type.
  std::uint64_t count(std::string_view key, std::optional<std::uint64_t> otherwise = {});
  double real(std::string_view key, std::optional<double> otherwise = {});
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);
  /// Reads a list of booleans, one number, or null; marks the key.
  const storage::GgufValue* value(std::string_view key);

  /// Marks keys that have no effect.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Records a mistake: the file's `key` has an unsupported or inconsistent value.
  void refuse(std::string_view key, std::string_view reason);

  [[nodiscard]] const storage::GgufFile& file() const { return *file_; }
  /// Errors (user): the first mistake, or else the first unread key.
  [[nodiscard]] Status check() const;

 private:
  [[nodiscard]] std::string full(std::string_view key) const;
  [[nodiscard]] const storage::GgufValue* find(std::string_view key) const;
  void fail(std::string mistake);

  const storage::GgufFile* file_;
  std::string architecture_;
  std::set<std::string, std::less<>> read_;
  std::string mistake_;  ///< Empty: none yet.
};

}  // namespace train::checkpoint
