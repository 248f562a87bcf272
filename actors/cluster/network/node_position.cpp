#include "actors/cluster/network/node_position.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <charconv>
#include <limits>
#include <memory>
#include <thread>

#include "storage/files/atomic_file.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::actors {
namespace {

constexpr std::uint64_t kMostBytes = 4096;
constexpr std::chrono::milliseconds kBetweenLooks{50};

/// What an endpoint file says: `host:port`, then the start's name.
Result<Endpoint> read_endpoint(const std::filesystem::path& file) {
  auto text = storage::read_file(file, kMostBytes);
  TRAIN_RETURN_IF_ERROR(text);
  const std::size_t first = text->find('\n');
  if (first == std::string::npos || text->back() != '\n') {
    return failure(fmt::format("{}: not complete", file.string()));
  }
  auto endpoint = parse_endpoint(text->substr(0, first));
  if (endpoint) {
    endpoint->start = text->substr(first + 1, text->size() - first - 2);
  }
  return endpoint;
}

constexpr const char* kGeneration = ".generation-";

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty() ? std::optional(value) : std::nullopt;
}

}  // namespace

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
  return user_error(fmt::format("{} is no HOST:PORT", storage::shown(text)));
}

Result<Endpoint> wait_for_endpoint(const std::filesystem::path& file,
                                   const std::function<bool(const std::string&)>& wanted,
                                   std::chrono::milliseconds timeout,
                                   const std::function<bool()>& give_up) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto endpoint = read_endpoint(file);
    if (endpoint && wanted(endpoint->start)) {
      return endpoint;
    }
    if (std::chrono::steady_clock::now() >= deadline || (give_up && give_up())) {
      return failure(
          fmt::format("the head wrote no endpoint to {} within {} s ({}); is node 0 up, and is the "
                      "run directory on a file system that all nodes share?",
                      file.string(), timeout.count() / 1000,
                      endpoint ? "it is of another start" : endpoint.error().message));
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
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
    char host[NI_MAXHOST] = {};
    if (::getnameinfo(entry->ifa_addr, sizeof(sockaddr_in), host, sizeof(host), nullptr, 0,
                      NI_NUMERICHOST) == 0 &&
        interface == entry->ifa_name) {
      return std::string(host);
    }
    names.emplace_back(entry->ifa_name);
  }
  return user_error(
      fmt::format("parallel.interface = \"{}\": no such interface with an IPv4 "
                  "address here; there are: {}",
                  interface, fmt::join(names, ", ")));
}

std::int64_t local_rank(std::int64_t rank, std::int64_t ranks, std::int64_t nodes) {
  NodePosition position{.nodes = nodes};
  while (position.ranks(ranks).second <= rank) {
    ++position.node;
  }
  return rank - position.ranks(ranks).first;
}

std::string NodePosition::start_of(std::uint32_t generation) const {
  return generation == 0 ? start : fmt::format("{}{}{}", start, kGeneration, generation);
}

std::optional<std::uint32_t> NodePosition::generation_of(std::string_view name) const {
  if (name == start) {
    return 0;
  }
  const std::string before = start + kGeneration;
  if (!name.starts_with(before)) {
    return std::nullopt;
  }
  const auto value = number_of(name.substr(before.size()));
  return value && *value <= std::numeric_limits<std::uint32_t>::max()
             ? std::optional(static_cast<std::uint32_t>(*value))
             : std::nullopt;
}

Result<Endpoint> find_head(const NodePosition& position, std::uint32_t from,
                           const std::filesystem::path& endpoint_file,
                           std::chrono::milliseconds timeout,
                           const std::function<bool()>& give_up) {
  const auto ours = [&position, from](const std::string& start) {
    const auto generation = position.generation_of(start);
    return generation && *generation >= from;
  };
  return wait_for_endpoint(endpoint_file, ours, timeout, give_up);
}

}  // namespace train::actors
