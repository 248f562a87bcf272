#include "checkpoint/format/reference_file.hpp"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"

// Format: a line of JSON, then the values as little-endian doubles.

namespace train::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "reference log-probabilities";
/// In version 1 ReferenceKey::model covers only a sample of the weights and cannot be compared.
constexpr std::int64_t kVersion = 2;
constexpr std::uint64_t kLargestBytes = std::uint64_t{64} << 30;

std::string_view bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

Error damaged(const std::filesystem::path& path) {
  return user_error(fmt::format(
      "{}: is damaged; restore it from a copy, or start again with --fresh", path.string()));
}

Result<ReferenceFile> parse(const std::filesystem::path& path, const std::string& text) {
  const std::size_t line = text.find('\n');
  const Json head = Json::parse(text.substr(0, line), nullptr, false);
  if (line == std::string::npos || !head.is_object() || head.value("format", "") != kFormat ||
      head.value("version", std::int64_t{0}) < 1 ||
      head.value("version", std::int64_t{0}) > kVersion) {
    return damaged(path);
  }
  ReferenceFile file;
  file.key = {.data = head.value("data", ""),
              .compute = head.value("compute", ""),
              .model = head.value("model", ""),
              .kernel_set = head.value("kernel_set", ""),
              .training_rows = head.value("training_rows", std::int64_t{0}),
              .validation_rows = head.value("validation_rows", std::int64_t{0})};
  if (head.value("version", std::int64_t{0}) == 1 && !file.key.model.starts_with("seed ")) {
    file.key.model.clear();
  }
  file.weights_digest = head.value("weights_digest", std::uint64_t{0});
  file.commands = head.value("commands", std::int64_t{0});
  const std::string_view values = std::string_view(text).substr(line + 1);
  const auto documents = head.value("documents", std::uint64_t{0});
  if (values.size() / sizeof(double) != documents || values.size() % sizeof(double) != 0) {
    return damaged(path);
  }
  file.values.resize(documents);
  std::memcpy(file.values.data(), values.data(), values.size());
  if (head.value("digest", "") != storage::digest_text(std::string(values))) {
    return damaged(path);
  }
  return file;
}

}  // namespace

std::filesystem::path reference_path(const std::filesystem::path& run) {
  return run / "reference.log_probs";
}

std::filesystem::path partial_reference_path(const std::filesystem::path& run) {
  return run / "reference.log_probs.partial";
}

Status write_reference(const std::filesystem::path& path, const ReferenceFile& file) {
  const Json head = {{"format", kFormat},
                     {"version", kVersion},
                     {"data", file.key.data},
                     {"compute", file.key.compute},
                     {"model", file.key.model},
                     {"kernel_set", file.key.kernel_set},
                     {"training_rows", file.key.training_rows},
                     {"validation_rows", file.key.validation_rows},
                     {"weights_digest", file.weights_digest},
                     {"commands", file.commands},
                     {"documents", file.values.size()},
                     {"digest", storage::digest_text(std::string(bytes_of(file.values)))}};
  auto target = TRAIN_TRY(storage::AtomicFile::create(path));
  TRAIN_RETURN_IF_ERROR(target.write(head.dump() + "\n"));
  TRAIN_RETURN_IF_ERROR(target.write(bytes_of(file.values)));
  return target.commit();
}

Result<ReferenceFile> read_reference(const std::filesystem::path& path,
                                     const ReferenceKey& expected) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return user_error(
        fmt::format("{}: is missing, and cannot be recomputed, because the weights are trained by "
                    "now; restore it where every node reads it, or start again with --fresh",
                    path.string()));
  }
  const auto text = TRAIN_TRY(storage::read_file(path, kLargestBytes));
  auto file = TRAIN_TRY(parse(path, text));
  const auto differs = [&](const char* what, const std::string& made, const std::string& wanted) {
    return user_error(
        fmt::format("{}: was made with {} {}, but this run has {}; use the former, or start "
                    "again with --fresh",
                    path.string(), what, made, wanted));
  };
  const ReferenceKey& made = file.key;
  if (made.data != expected.data) {
    return differs("data", made.data, expected.data);
  }
  if (made.compute != expected.compute) {
    return differs("precision.compute", made.compute, expected.compute);
  }
  if (!made.model.empty() && !expected.model.empty() && made.model != expected.model) {
    return differs("weights", made.model, expected.model);
  }
  if (made.kernel_set != expected.kernel_set) {
    return differs("the kernels", made.kernel_set, expected.kernel_set);
  }
  if (made.training_rows < expected.training_rows ||
      made.validation_rows < expected.validation_rows) {
    return user_error(fmt::format(
        "{}: covers {} training and {} validation rows, where this run reads {} and {}; set "
        "run.steps, batch and eval.lanes back, or start again with --fresh",
        path.string(), made.training_rows, made.validation_rows, expected.training_rows,
        expected.validation_rows));
  }
  return file;
}

std::optional<ReferenceFile> read_partial_reference(const std::filesystem::path& path,
                                                    const ReferenceKey& key) {
  const auto text = storage::read_file(path, kLargestBytes);
  auto file = text ? parse(path, *text) : Result<ReferenceFile>(text.error());
  if (!file) {
    return std::nullopt;
  }
  const ReferenceKey& made = file->key;
  const bool same = made.data == key.data && made.compute == key.compute &&
                    (key.model.empty() || made.model == key.model) &&
                    made.kernel_set == key.kernel_set && made.training_rows == key.training_rows &&
                    made.validation_rows == key.validation_rows;
  return same && file->commands > 0 ? std::optional(std::move(file).value()) : std::nullopt;
}

}  // namespace train::checkpoint
