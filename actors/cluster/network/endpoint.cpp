#include "actors/cluster/network/endpoint.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <boost/asio/ip/address_v4.hpp>
#include <charconv>
#include <memory>
#include <vector>

#include "storage/files/untrusted_text.hpp"

namespace train::actors {

std::string to_string(const Endpoint& endpoint) {
  return fmt::format("{}:{}", endpoint.host, endpoint.port);
}

Result<Endpoint> parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Endpoint endpoint;
  if (colon != std::string::npos && colon > 0) {
    endpoint.host = text.substr(0, colon);
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
    if (error == std::errc() && stop == end && endpoint.port != 0) {
      return endpoint;
    }
  }
  return user_error(fmt::format("{} is not HOST:PORT", storage::shown(text)));
}

Result<std::string> interface_address(const std::string& interface) {
  if (interface.empty()) {
    return std::string("127.0.0.1");
  }
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return failure("cannot list the network interfaces");
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<std::string> names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET ||
        (entry->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    if (interface == entry->ifa_name) {
      const auto* const address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      return boost::asio::ip::address_v4(ntohl(address->sin_addr.s_addr)).to_string();
    }
    names.emplace_back(entry->ifa_name);
  }
  return user_error(
      fmt::format("parallel.interface = \"{}\": no such interface with an IPv4 "
                  "address here; there are: {}",
                  interface, fmt::join(names, ", ")));
}

}  // namespace train::actors
