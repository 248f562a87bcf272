#include "base/process/own_program.hpp"

#include <sys/prctl.h>

#include <filesystem>
#include <system_error>

namespace train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnFile = "/proc/self/exe";

/// A package's loader lies in its lib/, and is the file that the kernel has started.
bool is_loader(const fs::path& file) { return file.filename().string().starts_with("ld-linux"); }

fs::path own_file() {
  std::error_code failed;
  return fs::read_symlink(kOwnFile, failed);  // Empty if it fails.
}

std::string launcher_of(const fs::path& loader) {
  return (loader.parent_path().parent_path() / "bin" / "actortrain").string();
}

}  // namespace

std::string own_program() {
  const fs::path file = own_file();
  return is_loader(file) ? launcher_of(file) : file.string();
}

void name_process() {
  if (is_loader(own_file())) {
    ::prctl(PR_SET_NAME, "actortrain");
  }
}

std::string own_program_now() {
  const fs::path file = own_file();
  return is_loader(file) ? launcher_of(file) : kOwnFile;
}

}  // namespace train
