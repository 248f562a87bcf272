// The file bin/actortrain of a package: starts lib/actortrain through the loader and the C library
// beside it, so that no library of the machine is needed. Linked statically, and small: it uses no
// C++ library. The program finds this file by base/process/own_program.

#include <unistd.h>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t kWordsBefore = 6;  // The loader's, before the caller's.

/// Says why the program cannot be started. Returns the exit code of a shell that finds no program.
int refuse(const char* reason, const char* path) {
  static_cast<void>(
      std::fprintf(stderr, "error %s: %s: the package is not whole; unpack it again, all of it\n",
                   path, reason));
  return 127;
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
    return refuse(std::strerror(errno), "/proc/self/exe");
  }
  home[size] = '\0';
  if (!cut(home) || !cut(home)) {
    return refuse("it is in no folder bin/", home);
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
  if (path == nullptr || words == nullptr) {
    return refuse(std::strerror(errno), program);
  }
  char name_option[] = "--argv0";
  char path_option[] = "--library-path";
  char* const before[kWordsBefore] = {loader, name_option, argv[0], path_option, path, program};
  std::memcpy(words, before, sizeof before);
  for (int i = 1; i < argc; ++i) {
    words[kWordsBefore - 1 + static_cast<std::size_t>(i)] = argv[i];
  }
  ::execv(loader, words);
  return refuse(std::strerror(errno), loader);
}
