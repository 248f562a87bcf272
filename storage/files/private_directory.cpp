#include "storage/files/private_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text/paths.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnerAlone = 0700;
constexpr mode_t kWrittenByOthers = S_IWGRP | S_IWOTH;

/// Name in an open directory.
struct Entry {
  int parent = -1;
  std::string name;
  fs::path path;  ///< Used in errors.
};

Error refused(const fs::path& path, std::string_view what, std::string_view way_out) {
  return user_error(fmt::format("{}: {}; {}", path.string(), what, way_out));
}

Error not_opened(const Entry& entry, int error_number, std::string_view way_out) {
  struct stat facts {};
  const bool looked = ::fstatat(entry.parent, entry.name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
  if (looked && S_ISLNK(facts.st_mode)) {
    return refused(
        entry.path,
        fmt::format("is a symbolic link made by user {}, and is not followed", facts.st_uid),
        way_out);
  }
  if (looked && !S_ISDIR(facts.st_mode)) {
    return refused(entry.path, "is no directory", way_out);
  }
  if (looked && facts.st_uid != ::geteuid()) {
    return refused(entry.path, fmt::format("belongs to user {}", facts.st_uid), way_out);
  }
  return os_error(Access::write, entry.path, error_number);
}

/// nullopt: the name no longer exists.
Result<Descriptor> open_own(const Entry& entry, std::string_view way_out) {
  Descriptor opened(
      ::openat(entry.parent, entry.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) {
    return errno == ENOENT ? Result<Descriptor>(Descriptor()) : not_opened(entry, errno, way_out);
  }
  struct stat facts {};
  if (::fstat(opened.get(), &facts) != 0) {
    return os_error(Access::read, entry.path, errno);
  }
  if (facts.st_uid != ::geteuid()) {
    return refused(entry.path, fmt::format("belongs to user {}", facts.st_uid), way_out);
  }
  return opened;
}

/// REQUIRES: `opened` is owned by this user.
Status keep_others_out(const Descriptor& opened, const fs::path& path) {
  struct stat facts {};
  if (::fstat(opened.get(), &facts) != 0) {
    return os_error(Access::read, path, errno);
  }
  const bool shut = (facts.st_mode & 07777) == kOwnerAlone;
  return shut || ::fchmod(opened.get(), kOwnerAlone) == 0 ? Status()
                                                          : os_error(Access::write, path, errno);
}

/// A directory that others could write may hold anything.
Status check_not_written_by_others(const Descriptor& opened, const fs::path& path,
                                   std::string_view way_out) {
  struct stat facts {};
  if (::fstat(opened.get(), &facts) != 0) {
    return os_error(Access::read, path, errno);
  }
  if ((facts.st_mode & kWrittenByOthers) != 0) {
    return refused(path,
                   fmt::format("other users may write to it (mode {:o})", facts.st_mode & 07777),
                   way_out);
  }
  return {};
}

Result<Descriptor> make_own(const Entry& entry, const fs::path& parent, std::string_view way_out) {
  if (disk_make_directory(entry.parent, entry.name.c_str(), entry.path, kOwnerAlone) != 0 &&
      errno != EEXIST) {
    return os_error(Access::write, entry.path, errno);
  }
  auto opened = TRAIN_TRY(open_own(entry, way_out));
  if (!opened) {
    return os_error(Access::write, entry.path, ENOENT);
  }
  if (disk_sync_directory(entry.parent, parent) != 0) {
    return os_error(Access::write, parent, errno);
  }
  return opened;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

Result<std::vector<std::string>> names_in(int directory, const fs::path& path) {
  Descriptor again(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) {
    return os_error(Access::read, path, errno);
  }
  const std::unique_ptr<DIR, CloseDirectory> list(::fdopendir(again.get()));
  if (!list) {
    return os_error(Access::read, path, errno);
  }
  (void)again.release();  // Owned by the list from here on.
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(list.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      names.emplace_back(name);
    }
  }
  return errno == 0 ? Result(std::move(names)) : os_error(Access::read, path, errno);
}

}  // namespace

Result<Descriptor> open_private_directory(const fs::path& base, const fs::path& below,
                                          std::string_view way_out) {
  TRAIN_RETURN_IF_ERROR(make_directory(base));
  Descriptor opened(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) {
    return os_error(Access::write, base, errno);
  }
  fs::path parent = base;
  for (const fs::path& part : below) {
    if (part.empty()) {  // Empty part after a trailing slash.
      continue;
    }
    const Entry entry{.parent = opened.get(), .name = part.string(), .path = parent / part};
    auto next = open_own(entry, way_out);
    if (next && !*next) {
      next = make_own(entry, parent, way_out);
    }
    TRAIN_RETURN_IF_ERROR(next);
    TRAIN_RETURN_IF_ERROR(check_not_written_by_others(*next, entry.path, way_out));
    TRAIN_RETURN_IF_ERROR(keep_others_out(*next, entry.path));
    parent = entry.path;
    opened = std::move(next).value();
  }
  return opened;
}

Status check_private_tree(int directory, const fs::path& path, std::string_view way_out) {
  const auto names = TRAIN_TRY(names_in(directory, path));
  for (const std::string& name : names) {
    const Entry entry{.parent = directory, .name = name, .path = path / name};
    struct stat facts {};
    if (::fstatat(directory, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) {
        continue;
      }
      return os_error(Access::read, entry.path, errno);
    }
    if (S_ISREG(facts.st_mode)) {
      if (facts.st_uid != ::geteuid()) {
        return refused(entry.path, fmt::format("belongs to user {}", facts.st_uid), way_out);
      }
      continue;
    }
    const auto opened = TRAIN_TRY(open_own(entry, way_out));
    if (opened) {
      TRAIN_RETURN_IF_ERROR(check_not_written_by_others(opened, entry.path, way_out));
      TRAIN_RETURN_IF_ERROR(keep_others_out(opened, entry.path));
      TRAIN_RETURN_IF_ERROR(check_private_tree(opened.get(), entry.path, way_out));
    }
  }
  return {};
}

Status make_private_directory(const fs::path& path) {
  const fs::path clean = without_slash(path);
  const fs::path parent = clean.has_parent_path() ? clean.parent_path() : fs::path(".");
  TRAIN_RETURN_IF_ERROR(make_directory(parent));
  const Descriptor base(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!base) {
    return os_error(Access::write, parent, errno);
  }
  const Entry entry{.parent = base.get(), .name = clean.filename().string(), .path = clean};
  constexpr std::string_view kWayOut = "remove it, and start again";
  auto opened = open_own(entry, kWayOut);
  if (opened && !*opened) {
    opened = make_own(entry, parent, kWayOut);
  }
  TRAIN_RETURN_IF_ERROR(opened);
  return keep_others_out(*opened, clean);
}

}  // namespace train::storage
