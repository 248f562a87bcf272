// The file bin/actortrain of a package: starts lib/actortrain through the loader and the C library
// beside it, so that no library of the machine is needed. Linked statically, and small: it uses no
// C++ library. The program finds this file by base/process/own_program.

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/process/set_aside.hpp"

namespace {

constexpr std::size_t kWordsBefore = 6;  // The loader's, before the caller's.

constexpr const char* kNotWhole =
    "bin/actortrain needs the folder lib/ next to bin/; link to it instead of copying it, or "
    "unpack the complete package again";
constexpr const char* kNoProc = "the program needs /proc; mount it: mount -t proc proc /proc";

/// Calls that container runtimes of before 2021 may not know.
constexpr std::uint32_t kLateCalls[] = {SYS_statx,       SYS_pidfd_open, SYS_clone3,
                                        SYS_close_range, SYS_openat2,    SYS_faccessat2};

/// Way out of an error that the system gives for a file of the package.
const char* way_out_of(int error_number) {
  switch (error_number) {
    case EACCES:
      return "it must be readable and executable; chmod 755 it, or mount it without noexec";
    case EPERM:
      return "a policy of this machine forbids it; have its administrator allow the package";
    case E2BIG:
      return "the arguments and the environment are too long; shorten them";
    default:
      return kNotWhole;
  }
}

/// Says why the program cannot be started. Returns the exit code of a shell that finds no program.
int refuse(const char* reason, const char* path, const char* way_out) {
  static_cast<void>(std::fprintf(stderr, "error %s: %s: %s\n", path, reason, way_out));
  return 127;
}

int refuse(int error_number, const char* path) {
  return refuse(std::strerror(error_number), path, way_out_of(error_number));
}

/// Has late calls answered by ENOSYS, as an old kernel does, where a container's runtime answers
/// EPERM: upon ENOSYS alone the C library takes an older call, and otherwise it starts no thread.
/// The kernel takes the error of the filter that was set last. Where no filter may be set, the
/// program says what it lacks.
void answer_as_an_old_kernel() {
  if (::syscall(SYS_clone3, nullptr, 0) != -1 || errno != EPERM) {
    return;
  }
  constexpr std::size_t kCalls = sizeof kLateCalls / sizeof *kLateCalls;
  constexpr std::size_t kFirst = 3;
  constexpr std::uint32_t kUnknown = SECCOMP_RET_ERRNO | ENOSYS;
  sock_filter filter[kFirst + kCalls + 2] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, kCalls + 1),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (std::size_t i = 0; i < kCalls; ++i) {
    const auto to_unknown = static_cast<std::uint8_t>(kCalls - i);
    filter[kFirst + i] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kLateCalls[i], to_unknown, 0);
  }
  filter[kFirst + kCalls] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[kFirst + kCalls + 1] = BPF_STMT(BPF_RET | BPF_K, kUnknown);
  const sock_fprog all = {.len = kFirst + kCalls + 2, .filter = filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
    static_cast<void>(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all));
  }
}

/// Libraries of the machine may want a newer C library than the package's, with which the program
/// would not start at all.
bool set_preloads_aside() {
  const char* const keep = std::getenv("ACTORTRAIN_KEEP_PRELOAD");
  const bool keeps = keep != nullptr && std::strcmp(keep, "1") == 0;
  for (const train::SetAside& moved : train::kSetAside) {
    const char* const value = std::getenv(moved.name);
    if (::unsetenv(moved.kept) != 0) {  // Another launcher's.
      return false;
    }
    if (value != nullptr && !keeps &&
        (::setenv(moved.kept, value, 1) != 0 || ::unsetenv(moved.name) != 0)) {
      return false;
    }
  }
  return true;
}

/// Cuts the last part of a path; false: there is none.
bool cut(char* path) {
  char* const slash = std::strrchr(path, '/');
  if (slash == nullptr) {
    return false;
  }
  *slash = '\0';
  return true;
}

/// The package's folder of libraries, and what a variable adds for libraries that it does not have:
/// a device's. Its own come first.
char* library_path(const char* libraries) {
  const char* const more = std::getenv("LD_LIBRARY_PATH");
  if (more == nullptr || *more == '\0') {
    return ::strdup(libraries);
  }
  const std::size_t size = std::strlen(libraries) + std::strlen(more) + 2;
  auto* const path = static_cast<char*>(std::malloc(size));
  if (path != nullptr) {
    static_cast<void>(std::snprintf(path, size, "%s:%s", libraries, more));
  }
  return path;
}

}  // namespace

int main(int argc, char** argv) {
  // The file itself, whatever link it was called by.
  char home[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", home, sizeof home - 1);
  if (size < 0) {
    return refuse(std::strerror(errno), "/proc/self/exe", kNoProc);
  }
  home[size] = '\0';
  if (!cut(home) || !cut(home)) {
    return refuse("it is in no folder bin/", home, kNotWhole);
  }
  if (std::strpbrk(home, ":;") != nullptr) {  // They separate folders of libraries.
    return refuse("the path has a ':' or ';'", home, "move the package to a path without them");
  }
  char libraries[PATH_MAX + 8];
  char loader[PATH_MAX + 64];
  char program[PATH_MAX + 64];
  static_cast<void>(std::snprintf(libraries, sizeof libraries, "%s/lib", home));
  static_cast<void>(std::snprintf(loader, sizeof loader, "%s/ld-linux-x86-64.so.2", libraries));
  static_cast<void>(std::snprintf(program, sizeof program, "%s/actortrain", libraries));
  char* const path = library_path(libraries);
  auto** const words = static_cast<char**>(
      std::calloc(static_cast<std::size_t>(argc) + kWordsBefore + 1, sizeof(char*)));
  if (path == nullptr || words == nullptr || !set_preloads_aside()) {
    return refuse(std::strerror(errno), program, "give it more memory");
  }
  if (::access(program, R_OK) != 0) {  // The loader would say this in its own words.
    return refuse(errno, program);
  }
  answer_as_an_old_kernel();
  char name_option[] = "--argv0";
  char path_option[] = "--library-path";
  char* const before[kWordsBefore] = {loader, name_option, argv[0], path_option, path, program};
  std::memcpy(words, before, sizeof before);
  for (int i = 1; i < argc; ++i) {
    words[kWordsBefore - 1 + static_cast<std::size_t>(i)] = argv[i];
  }
  ::execv(loader, words);
  return refuse(errno, loader);
}
