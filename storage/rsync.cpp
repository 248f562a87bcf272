#include "storage/rsync.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/process/process.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

constexpr int kBackgroundNice = 19;

/// Last two non-empty lines, joined: the last is rsync's verdict, the one before it the cause.
std::string last_words(std::string_view text) {
  std::string words;
  for (int lines = 0; lines < 2 && !text.empty();) {
    const std::size_t end = text.find_last_not_of("\r\n \t");
    if (end == std::string_view::npos) {
      break;
    }
    text = text.substr(0, end + 1);
    const std::size_t begin = text.find_last_of("\r\n");
    const std::string_view line = begin == std::string_view::npos ? text : text.substr(begin + 1);
    words = words.empty() ? std::string(line) : fmt::format("{}; {}", line, words);
    text = begin == std::string_view::npos ? std::string_view{} : text.substr(0, begin);
    ++lines;
  }
  return words.empty() ? "it said nothing" : words;
}

std::string how_it_ended(const ChildEnd& end, const RsyncOptions& options) {
  if (end.stopped) {
    return "stopped";
  }
  if (end.timed_out) {
    return fmt::format("not done after {} s; stopped",
                       static_cast<double>(options.timeout.count()) / 1000.0);
  }
  if (end.signal != 0) {
    return fmt::format("rsync was killed by signal {}", end.signal);
  }
  const bool full = end.errors.find("No space left") != std::string::npos ||
                    end.errors.find("quota exceeded") != std::string::npos;
  return fmt::format("exit code {}: {}{}", end.exit_code, last_words(end.errors),
                     full ? fmt::format("; {}: free space there", kDiskFullWords) : "");
}

bool same_size(const fs::path& a, const fs::path& b) {
  std::error_code code;
  const auto size = fs::file_size(a, code);
  return !code && fs::file_size(b, code) == size && !code;
}

}  // namespace

Status rsync_file(const fs::path& from, const fs::path& to_directory, const RsyncOptions& options) {
  if (options.copy) {
    return options.copy(from, to_directory / from.filename());
  }
  const char* const other = std::getenv("ACTORTRAIN_RSYNC");
  const std::string name = other != nullptr && *other != '\0' ? other : options.program;
  const auto program = find_program(name);
  if (!program) {
    return user_error(fmt::format(
        "cannot copy {}: program {} not found; install the package rsync, or use no local "
        "directory: checkpoint.local_dir = \"none\"",
        from.string(), name));
  }
  // Absolute, as rsync reads a colon before the first slash as a host name.
  const auto source = TRAIN_TRY(absolute_path(from));
  const auto directory = TRAIN_TRY(absolute_path(to_directory));
  const fs::path target = directory / from.filename();
  file_point("rsync-start", target);
  // rsync's own checksums, its largest cost, are off: callers compare the copy with the original's
  // digest.
  const std::vector<std::string> words = {
      *program, "--whole-file",  "--ignore-times",         "--checksum-choice=none",
      "--",     source.string(), (directory / "").string()};
  const auto end = run_child(words, {.nice = kBackgroundNice,
                                     .timeout = options.timeout,
                                     .stop = options.stop,
                                     .started = [&] { file_point("rsync-running", target); }});
  TRAIN_RETURN_IF_ERROR(end);
  const auto failed = [&](const std::string& why) {
    return failure(
        fmt::format("cannot copy {} to {}: {}", from.string(), to_directory.string(), why));
  };
  if (end->exit_code != 0 || end->stopped || end->timed_out) {
    return failed(how_it_ended(*end, options));
  }
  if (!same_size(source, target)) {
    return failed("rsync reported success, but the file is missing or has another size");
  }
  file_point("rsync-end", target);
  return {};
}

}  // namespace train::storage
