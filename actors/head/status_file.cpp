#include "actors/head/status_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/descriptor.hpp"
#include "base/host_name.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

std::int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status replace(const fs::path& path, const std::string& text) {
  fs::path hidden = path;
  hidden.replace_filename(".status.json.tmp");
  const Descriptor file(::open(hidden.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) {
    return storage::os_error(storage::Access::write, hidden, errno);
  }
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(file.get(), text.data() + at, text.size() - at);
    if (written <= 0) {
      return storage::os_error(storage::Access::write, hidden, written < 0 ? errno : ENOSPC);
    }
    at += static_cast<std::size_t>(written);
  }
  if (::rename(hidden.c_str(), path.c_str()) != 0) {
    return storage::os_error(storage::Access::write, path, errno);
  }
  return {};
}

}  // namespace

StatusFile::StatusFile(fs::path run, StatusBase base)
    : path_(status_path(run)), base_(std::move(base)) {}

void StatusFile::note(const RunProgress& progress) {
  const std::lock_guard lock(mutex_);
  noted_ = progress;
}

Status StatusFile::write(RunStatus status) {
  const std::lock_guard lock(mutex_);
  if (over_) {
    return {};
  }
  over_ = status.outcome.has_value();
  status.base = base_;
  if (status.heard.empty() && noted_) {
    status.progress = *noted_;
  }
  status.now_unix_s = unix_now_s();
  return replace(path_, to_json(status));
}

fs::path status_path(const fs::path& run) { return run / "status.json"; }

StatusBase status_base(std::string run, std::int64_t steps) {
  return {.run = std::move(run),
          .host = host_name(),
          .pid = ::getpid(),
          .process_start = process_start(::getpid()).value_or(0),
          .started_unix_s = unix_now_s(),
          .steps = steps};
}

std::optional<std::uint64_t> process_start(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    if (!(fields >> field)) {
      return std::nullopt;
    }
    if (number == 3 && (field == "Z" || field == "X")) {
      return std::nullopt;  // it has ended, and its parent has not looked yet
    }
  }
  return std::stoull(field);
}

}  // namespace train::actors
