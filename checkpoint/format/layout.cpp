#include "checkpoint/format/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "storage/files/atomic_file.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNamePrefix = "step-";
constexpr std::size_t kStepDigits = 8;

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:0{}}", kNamePrefix, step, kStepDigits);
}

std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  constexpr std::size_t digits_limit = 18;
  if (!name.starts_with(kNamePrefix)) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kNamePrefix.size());
  if (digits.size() < kStepDigits || digits.size() > digits_limit ||
      digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  const std::int64_t step = std::stoll(std::string(digits));
  return checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

Result<std::vector<Candidate>> list_checkpoints(const fs::path& checkpoints) {
  const auto names = TRAIN_TRY(storage::entry_names(checkpoints));
  std::vector<Candidate> found;
  for (const std::string& name : names) {
    if (const auto step = checkpoint_step(name)) {
      found.push_back({*step, checkpoints / name});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Candidate& a, const Candidate& b) { return a.step > b.step; });
  return found;
}

bool is_gone(const fs::path& path) {
  std::error_code code;
  return fs::symlink_status(path, code).type() == fs::file_type::not_found;
}

Result<std::vector<std::string>> list_damaged(const fs::path& checkpoints) {
  auto names = TRAIN_TRY(storage::entry_names(checkpoints));
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("damaged-"); });
  return names;
}

Result<fs::path> set_aside(const fs::path& checkpoint) {
  const fs::path directory = checkpoint.parent_path();
  const std::string name = "damaged-" + checkpoint.filename().string();
  fs::path target = directory / name;
  std::error_code code;
  for (int serial = 1; fs::exists(fs::symlink_status(target, code)); ++serial) {
    target = directory / fmt::format("{}.{}", name, serial);
  }
  TRAIN_RETURN_IF_ERROR(storage::rename_durably(checkpoint, target));
  return target;
}

Status remove_leftovers(const fs::path& checkpoints) {
  const auto names = TRAIN_TRY(storage::entry_names(checkpoints));
  for (const std::string& name : names) {
    if (name.starts_with(".incoming-") || name.starts_with(".retired-")) {
      TRAIN_RETURN_IF_ERROR(storage::remove_tree(checkpoints / name));
    }
  }
  return {};
}

}  // namespace train::checkpoint
