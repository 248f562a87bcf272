#include "actors/cluster/recovery/exit_record.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "actors/cluster/recovery/node_run.hpp"
#include "base/log.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = 4096;

fs::path exit_record_file(const fs::path& root) { return control_directory(root) / "ended"; }

}  // namespace

void forget_exit_record(const fs::path& root) { ::unlink(exit_record_file(root).c_str()); }

void leave_exit_record(const fs::path& root, const std::string& start, int exit_code) {
  std::error_code error;
  if (!fs::exists(root / "config.toml", error)) {
    return;  // it has come to no run
  }
  Status left = storage::make_private_directory(control_directory(root));
  if (left) {
    left = storage::write_private_file(exit_record_file(root),
                                       fmt::format("{}\n{}\n", exit_code, start));
  }
  if (!left) {
    log_warning(fmt::format("no_word_to_other_nodes {}", left.error().message));
  }
}

std::optional<int> exit_record(const fs::path& root, const std::string& start) {
  const auto text = storage::read_file(exit_record_file(root), kMostBytes);
  if (!text) {
    return std::nullopt;
  }
  const std::string_view line = std::string_view(*text).substr(0, text->find('\n'));
  int exit_code = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), exit_code);
  const bool whole = error == std::errc() && *text == fmt::format("{}\n{}\n", exit_code, start);
  return whole ? std::optional(exit_code) : std::nullopt;
}

}  // namespace train::actors
