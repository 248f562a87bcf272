#include "base/process/host_name.hpp"

#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>

namespace train {

std::string host_name(const char* unknown) {
  std::array<char, HOST_NAME_MAX + 1> name{};
  const bool known = ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
  return known ? name.data() : unknown;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string word;
  file >> word;
  return word;
}

}  // namespace train
