#include "cli/board/other_users.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "storage/files/atomic_file.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestPasswd = std::uint64_t{1} << 24U;

/// Lower uids are the system's; from 65,534 on they belong to nobody and containers.
bool is_person(uid_t user) { return user >= 1000 && user < 65534; }

/// name:password:uid:gid:comment:home:shell
bool is_other_person(std::string_view line, uid_t own) {
  std::array<std::string_view, 7> fields;
  for (std::string_view& field : fields) {
    field = line.substr(0, line.find(':'));
    line.remove_prefix(std::min(line.size(), field.size() + 1));
  }
  uid_t user = 0;
  const std::string_view number = fields[2];
  const std::string_view shell = fields[6];
  const auto read = std::from_chars(number.data(), number.data() + number.size(), user);
  return read.ec == std::errc() && user != own && is_person(user) && !shell.empty() &&
         !shell.ends_with("nologin") && !shell.ends_with("/false");
}

bool others_run_processes(uid_t own) {
  std::error_code vanished;
  for (fs::directory_iterator entry("/proc", vanished), end; !vanished && entry != end;
       entry.increment(vanished)) {
    struct stat facts {};
    if (std::isdigit(static_cast<unsigned char>(entry->path().filename().native().front())) != 0 &&
        ::stat(entry->path().c_str(), &facts) == 0 && facts.st_uid != own &&
        is_person(facts.st_uid)) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool names_other_people(std::string_view passwd, uid_t own) {
  while (!passwd.empty()) {
    const std::string_view line = passwd.substr(0, passwd.find('\n'));
    if (is_other_person(line, own)) {
      return true;
    }
    passwd.remove_prefix(std::min(passwd.size(), line.size() + 1));
  }
  return false;
}

bool other_people_here() {
  const auto passwd = storage::read_file("/etc/passwd", kLargestPasswd);
  return (passwd && names_other_people(*passwd, ::getuid())) || others_run_processes(::getuid());
}

}  // namespace train::cli
