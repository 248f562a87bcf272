#include "actors/host_name.hpp"

#include <unistd.h>

#include <array>
#include <climits>

namespace train::actors {

std::string host_name(const char* unknown) {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : unknown;
}

}  // namespace train::actors
