#include "run/directory/run_file_table.hpp"

#include <algorithm>
#include <string>

namespace train::run {
namespace {

/// Matches `name` with `pattern`, in which one `*` stands for any part.
bool is_like(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    return name == pattern;
  }
  const std::string_view end = pattern.substr(star + 1);
  return name.size() + 1 >= pattern.size() && name.starts_with(pattern.substr(0, star)) &&
         name.ends_with(end);
}

/// Returns NAME for the temporary name .NAME.tmp....
std::string_view lasting_name(std::string_view name) {
  const std::size_t temporary = name.rfind(".tmp");
  return name.starts_with('.') && temporary != std::string_view::npos && temporary > 0
             ? name.substr(1, temporary - 1)
             : name;
}

bool belongs(const std::filesystem::path& path, const std::filesystem::path& pattern) {
  auto part = path.begin();
  return std::all_of(pattern.begin(), pattern.end(), [&](const std::filesystem::path& wanted) {
    if (part == path.end()) {
      return false;
    }
    const std::string name = (part++)->string();
    return is_like(name, wanted.string()) || is_like(lasting_name(name), wanted.string());
  });
}

}  // namespace

const RunFileRow* row_of(const std::filesystem::path& path) {
  const auto row = std::find_if(kRunFiles.begin(), kRunFiles.end(), [&](const RunFileRow& each) {
    return belongs(path, std::filesystem::path(each.pattern));
  });
  return row == kRunFiles.end() ? nullptr : &*row;
}

}  // namespace train::run
