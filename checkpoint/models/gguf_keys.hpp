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

/// A GGUF file's metadata below "<architecture>.": whoever reads a key marks it, and what nobody
/// has read and is not 0 or false is refused by name, since it says something about the maths. The
/// first mistake is kept; what is returned after one stands for a number, without meaning.
class GgufKeys {
 public:
  /// `file` outlives it.
  GgufKeys(const storage::GgufFile& file, std::string architecture)
      : file_(&file), architecture_(std::move(architecture)) {}

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Mistakes: it is missing where there is no `otherwise`, or no such value.
  std::uint64_t count(std::string_view key, std::optional<std::uint64_t> otherwise = {});
  double real(std::string_view key, std::optional<double> otherwise = {});
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);
  /// A list of booleans, one number, or nothing; marked.
  const storage::GgufValue* value(std::string_view key);

  /// Marks keys that change nothing.
  void ignore(std::initializer_list<std::string_view> keys);
  /// A mistake: the file's line `key` says what is not supported, or does not fit.
  void refuse(std::string_view key, std::string_view reason);

  [[nodiscard]] const storage::GgufFile& file() const { return *file_; }
  /// Errors (user): the first mistake, or else the first key that nobody has read.
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
