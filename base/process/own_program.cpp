#include "base/process/own_program.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/process/set_aside.hpp"

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

/// The program's file when this was first called.
const fs::path& first_file() {
  static const fs::path file = own_file();
  return file;
}

/// True if a package's loader started this process. Judged by the first name of its file: NFS
/// renames a file that is deleted while it is in use.
bool started_by_loader() { return is_loader(first_file()); }

}  // namespace

std::string launcher_of(const fs::path& loader, const fs::path& earlier) {
  const auto beside = [](const fs::path& file) {
    return file.parent_path().parent_path() / "bin" / "actortrain";
  };
  std::error_code failed;
  const bool moved = !fs::exists(beside(loader), failed) && fs::exists(beside(earlier), failed);
  return beside(moved ? earlier : loader).string();
}

std::string own_program() {
  const fs::path file = own_file();
  return started_by_loader() ? launcher_of(file, first_file()) : file.string();
}

void name_process() {
  if (started_by_loader()) {
    ::prctl(PR_SET_NAME, "actortrain");
  }
}

std::string own_program_now() {
  return started_by_loader() ? launcher_of(own_file(), first_file()) : kOwnFile;
}

std::vector<std::string> environment_of_others() {
  std::vector<std::string> variables;
  std::vector<std::string> restored;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::size_t name_end = variable.find('=');
    const auto* const kept = std::ranges::find_if(kSetAside, [&](const SetAside& each) {
      return name_end != std::string_view::npos && variable.substr(0, name_end) == each.kept;
    });
    if (kept == std::end(kSetAside)) {
      variables.emplace_back(variable);
    } else {
      restored.push_back(kept->name + std::string(variable.substr(name_end)));
    }
  }
  for (std::string& variable : restored) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    std::erase_if(variables, [&name](const std::string& each) { return each.starts_with(name); });
    variables.push_back(std::move(variable));
  }
  return variables;
}

}  // namespace train
