#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "kernels/activation/activation.hpp"

namespace train::engine {

/// A `config.json` in the making of a spec: keys by name, each of its other names after it. What is
/// missing, of another type or impossible is remembered, the first such thing, and asked for once,
/// at the end; until then readers get a harmless value.
/// Ownership: borrows the JSON, which must outlive this. Threading: one owner.
class ModelConfig {
 public:
  using Keys = std::initializer_list<const char*>;

  /// `source`: named in errors. `sequence_length`: of the run; 0: not known.
  ModelConfig(const nlohmann::json& json, std::string source, std::int64_t sequence_length)
      : json_(&json), source_(std::move(source)), sequence_length_(sequence_length) {}

  [[nodiscard]] const nlohmann::json& json() const { return *json_; }
  [[nodiscard]] std::int64_t sequence_length() const { return sequence_length_; }

  /// The value of the first key that is there and not null; nullptr if none is.
  [[nodiscard]] const nlohmann::json* find(Keys keys) const;

  // A size from 1 to 2^32.
  std::int64_t size(Keys keys);
  std::int64_t size_or(Keys keys, std::int64_t otherwise);
  double real_or(Keys keys, double otherwise);
  bool flag_or(Keys keys, bool otherwise);
  std::string text_or(Keys keys, const std::string& otherwise);
  kernels::ActivationKind activation(Keys keys, const std::string& otherwise);
  /// "sliding_attention" or "full_attention" of each layer, true for the former: `layer_types`, or
  /// what `otherwise` says.
  std::vector<bool> windowed_layers(std::int64_t layers, bool (*otherwise)(std::int64_t layer));

  /// Refuses a number that is there and is neither 0 nor null (dropout and the like).
  void require_zero(Keys keys);
  /// Refuses a key that is there and is neither null nor false.
  void require_absent(Keys keys, const char* why);

  /// Remembers an error: one line that names the file. The first counts.
  void refuse(const std::string& what);
  /// Error (user): what was remembered.
  [[nodiscard]] Status status() const;

 private:
  const nlohmann::json* json_;
  std::string source_;
  std::int64_t sequence_length_;
  std::optional<std::string> error_;
};

}  // namespace train::engine
