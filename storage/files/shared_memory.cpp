#include "storage/files/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <system_error>

#include "base/text/units.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

/// Number in a file; nullopt if there is none ("max" is none).
std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::uint64_t number = 0;
  return stream >> number ? std::optional(number) : std::nullopt;
}

std::uint64_t available_on_machine() {
  std::ifstream lines("/proc/meminfo");
  for (std::string key; lines >> key;) {
    std::uint64_t kilobytes = 0;
    if (key == "MemAvailable:" && lines >> kilobytes) {
      return kilobytes << 10;
    }
  }
  return kUnlimited;
}

/// Least memory that any control group (version 2) above this process leaves.
std::uint64_t available_in_groups() {
  const fs::path root = "/sys/fs/cgroup";
  std::ifstream lines("/proc/self/cgroup");
  std::uint64_t least = kUnlimited;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("0::/")) {
      continue;
    }
    fs::path group = (root / line.substr(4)).lexically_normal();
    while (group.string().starts_with(root.string())) {
      const auto most = number_in(group / "memory.max");
      const auto used = number_in(group / "memory.current");
      if (most && used) {
        least = std::min(least, *most - std::min(*most, *used));
      }
      if (group == root) {
        break;
      }
      group = group.parent_path();
    }
  }
  return least;
}

/// The kernel kills a process that makes a file longer than this; shared memory counts as a file.
std::uint64_t file_size_limit() {
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? static_cast<std::uint64_t>(limit.rlim_cur) : kUnlimited;
}

}  // namespace

std::uint64_t available_memory() { return std::min(available_on_machine(), available_in_groups()); }

Status SharedMemory::map(std::uint64_t size_bytes) {
  void* memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor(), 0);
  if (memory == MAP_FAILED) {
    return failure(fmt::format("{} of shared memory cannot be mapped: {}", format_bytes(size_bytes),
                               text_of(errno)));
  }
  data_ = Mapping(static_cast<std::byte*>(memory), {.size_bytes = size_bytes});
  return {};
}

Result<SharedMemory> SharedMemory::create(const std::string& name, std::uint64_t size_bytes) {
  if (const std::uint64_t most = file_size_limit(); most < size_bytes) {
    return failure(
        fmt::format("{} of shared memory are more than the limit of file sizes "
                    "(ulimit -f) of {}",
                    format_bytes(size_bytes), format_bytes(most)));
  }
  if (const std::uint64_t available = available_memory(); available < size_bytes) {
    return failure(fmt::format("{} of shared memory are more than the {} that are available",
                               format_bytes(size_bytes), format_bytes(available)));
  }
  SharedMemory memory(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.descriptor_) {
    return failure(fmt::format("no shared memory: {}", text_of(errno)));
  }
  const auto length = static_cast<off_t>(size_bytes);
  if (const int error_number = ::posix_fallocate(memory.descriptor(), 0, length);
      error_number != 0) {
    return failure(
        fmt::format("no {} of shared memory: {}", format_bytes(size_bytes), text_of(error_number)));
  }
  if (::fcntl(memory.descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return failure(fmt::format("shared memory cannot be sealed: {}", text_of(errno)));
  }
  TRAIN_RETURN_IF_ERROR(memory.map(size_bytes));
  return memory;
}

Result<SharedMemory> SharedMemory::attach(int descriptor) {
  SharedMemory memory(descriptor);
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) {
    return failure(fmt::format("descriptor {}: {}", descriptor, text_of(errno)));
  }
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || found.st_size == 0) {
    return failure(fmt::format("descriptor {} is no shared memory of a fixed size", descriptor));
  }
  TRAIN_RETURN_IF_ERROR(memory.map(static_cast<std::uint64_t>(found.st_size)));
  return memory;
}

}  // namespace train::storage
