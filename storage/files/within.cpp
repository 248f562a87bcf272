#include "storage/files/within.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <span>
#include <utility>

#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

// Rejects a named pipe below instead of waiting, and acquires no controlling terminal.
constexpr int kReading = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

Error leads_out(const Within& place) {
  return user_error(fmt::format(
      "cannot read {}: a link leads out of {}, and is not followed; put the file itself there, or "
      "name the folder that it leads to",
      place.path().string(), place.folder.string()));
}

int open_beneath(int folder, const fs::path& below) {
  open_how how = {};
  how.flags = kReading;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(::syscall(SYS_openat2, folder, below.c_str(), &how, sizeof how));
}

/// Path by which an open descriptor can be reopened, whatever names refer to by then.
std::string own_path(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

/// Current path of the descriptor.
std::optional<std::string> place_of(int descriptor) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(own_path(descriptor).c_str(), text.data(), text.size());
  if (size <= 0 || static_cast<std::size_t>(size) == text.size()) {
    return std::nullopt;
  }
  return std::string(text.data(), static_cast<std::size_t>(size));
}

bool is_in(int folder, int file) {
  const auto outer = place_of(folder);
  const auto inner = place_of(file);
  return outer && inner && inner->starts_with(*outer == "/" ? "/" : *outer + "/");
}

/// For absolute links into the folder, which the kernel rejects too, and for kernels without
/// openat2(): the target is first held without opening it, and its place decides.
Result<Descriptor> open_held(int folder, const Within& place) {
  const Descriptor held(::openat(folder, place.below.c_str(), O_PATH | O_CLOEXEC));
  if (!held) {
    return os_error(Access::read, place.path(), errno);
  }
  if (!is_in(folder, held.get())) {
    return leads_out(place);
  }
  struct stat facts {};
  if (::fstat(held.get(), &facts) == 0 && S_ISREG(facts.st_mode)) {
    Descriptor file(::open(own_path(held.get()).c_str(), kReading));
    return file ? Result(std::move(file)) : os_error(Access::read, place.path(), errno);
  }
  return user_error(
      fmt::format("cannot read {}: not a regular file; check the path", place.path().string()));
}

}  // namespace

Result<Descriptor> open_within(const Within& place) {
  const Descriptor folder(::open(place.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) {
    return os_error(Access::read, place.path(), errno);
  }
  Descriptor file(open_beneath(folder.get(), place.below));
  if (!file) {
    // Other errors may be a refusal by the kernel, whose cause the fallback finds out.
    constexpr std::array<int, 5> kPlain = {ENOENT, ENOTDIR, EACCES, EMFILE, ENFILE};
    return std::find(kPlain.begin(), kPlain.end(), errno) != kPlain.end()
               ? os_error(Access::read, place.path(), errno)
               : open_held(folder.get(), place);
  }
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) {
    return os_error(Access::read, place.path(), errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    return user_error(
        fmt::format("cannot read {}: not a regular file; check the path", place.path().string()));
  }
  return file;
}

Result<std::string> read_within(const Within& place, std::uint64_t limit_bytes) {
  const auto file = TRAIN_TRY(open_within(place));
  const fs::path path = place.path();
  std::string text;
  while (true) {
    constexpr std::size_t kPiece = std::size_t{64} << 10U;
    const std::size_t before = text.size();
    if (before > limit_bytes) {
      return failure(
          fmt::format("cannot read {}: above its limit of {} bytes", path.string(), limit_bytes));
    }
    text.resize(before + std::min<std::uint64_t>(kPiece, limit_bytes - before + 1));
    const ssize_t got =
        disk_read(file.get(), path, std::as_writable_bytes(std::span(text).subspan(before)));
    if (got < 0 && errno != EINTR) {
      return os_error(Access::read, path, errno);
    }
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) {
      return text;
    }
  }
}

}  // namespace train::storage
