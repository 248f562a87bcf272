#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "kernels/kinds.hpp"

namespace train::engine {

/// Typed reader of a `config.json` while a spec is made from it. A missing key has its value in
/// `defaults`, which contains every key that may be read; null means that there is no value. The
/// first value of a wrong type or range is kept as the error of finish(), and its reader gets a
/// harmless value instead. Every key that is read is marked: finish() judges the others.
/// Ownership: borrows both, which must outlive this. Threading: one owner.
class ModelConfig {
 public:
  /// `source`: named in errors. `sequence_length`: of the run; 0: not known.
  ModelConfig(nlohmann::json& json, const nlohmann::json& defaults, std::string source,
              std::int64_t sequence_length)
      : json_(&json),
        defaults_(&defaults),
        source_(std::move(source)),
        sequence_length_(sequence_length) {}

  [[nodiscard]] std::int64_t sequence_length() const { return sequence_length_; }

  /// True if `key` is a key of the architecture.
  [[nodiscard]] bool may_read(const std::string& key) const;
  /// The key's value; nullptr: it is null. REQUIRES: `defaults` has the key.
  [[nodiscard]] const nlohmann::json* find(const std::string& key);
  /// True if the file has the key.
  [[nodiscard]] bool gives(const std::string& key) const;
  /// Gives `key` a value where it has none, or null.
  void set_if_none(const std::string& key, const nlohmann::json& value);
  /// The key's value in `defaults`.
  [[nodiscard]] const nlohmann::json* otherwise(const std::string& key) const;
  /// Reads `other` as an alias of `key`, which it overrides where it is given.
  void take_as(const std::string& other, const std::string& key);
  /// Likewise, where both may be given; refuses two values.
  void take_alias(const std::string& other, const std::string& key);

  // A size from 1 to 2^32; of layers and experts, to 2^16.
  std::int64_t size(const std::string& key);
  std::optional<std::int64_t> size_if_any(const std::string& key);
  // Likewise from 0 on; null: 0.
  std::int64_t count(const std::string& key);
  double real(const std::string& key);
  /// 0: none. Refuses a 0 in the file.
  double cap_if_any(const std::string& key);
  bool flag(const std::string& key);
  std::string text(const std::string& key);
  kernels::ActivationKind activation(const std::string& key);
  /// A list of numbers of layers, each of 0 or more; null: none.
  std::vector<std::int64_t> layer_numbers(const std::string& key);
  /// The window of each layer, 0: none. Windowed are the layers that `layer_types` calls
  /// "sliding_attention"; without it those of `windowed`. Refuses such a layer without a window.
  std::vector<std::int64_t> layer_windows(std::int64_t layers, std::optional<std::int64_t> window,
                                          const std::function<bool(std::int64_t)>& windowed);

  /// Names a setting that says something and has no effect, for ModelSpec::unread_keys.
  void pass_over(const std::string& what);

  /// Remembers an error: one line that names the file. The first counts.
  void refuse(const std::string& what);
  /// Handles keys of the file that were not read: config_keys() refuses them or lists them in
  /// `spec` for people. Error (user): the remembered one.
  [[nodiscard]] Status finish(ModelSpec& spec);

 private:
  void judge(const std::string& key, const nlohmann::json& value, ModelSpec& spec);

  nlohmann::json* json_;
  const nlohmann::json* defaults_;
  std::string source_;
  std::int64_t sequence_length_;
  std::set<std::string> read_;
  std::vector<std::string> passed_over_;
  std::optional<std::string> error_;
};

}  // namespace train::engine
