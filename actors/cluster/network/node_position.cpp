#include "actors/cluster/network/node_position.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <boost/asio/ip/address_v4.hpp>
#include <charconv>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "storage/files/atomic_file.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::actors {
namespace {

constexpr std::uint64_t kMostBytes = 4096;
constexpr std::chrono::milliseconds kBetweenLooks{50};

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

Status write_note(const std::filesystem::path& file, const ControlNote& note) {
  return storage::write_private_file(
      file, fmt::format("{}\n{}\n{}\n", note.word, note.start, note.number));
}

Result<ControlNote> read_note(const std::filesystem::path& file) {
  const auto text = storage::read_file(file, kMostBytes);
  TRAIN_RETURN_IF_ERROR(text);
  std::istringstream lines(*text);
  ControlNote note;
  const bool whole = std::getline(lines, note.word) && std::getline(lines, note.start) &&
                     lines >> note.number && lines.get() == '\n';
  return whole ? Result(note) : failure(fmt::format("{}: not complete", file.string()));
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

std::int64_t local_rank(std::int64_t rank, std::int64_t ranks, std::int64_t nodes) {
  // The last node whose first rank is not after this one.
  const NodePosition position{.node = ((rank + 1) * nodes - 1) / ranks, .nodes = nodes};
  return rank - position.ranks(ranks).first;
}

Result<Endpoint> find_head(const NodePosition& position, std::uint32_t from,
                           const std::filesystem::path& file, std::chrono::milliseconds timeout,
                           const std::function<bool()>& give_up) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto note = read_note(file);
    auto endpoint = note ? parse_endpoint(note->word) : Result<Endpoint>(note.error());
    if (endpoint && note->start == position.start && note->number >= from) {
      endpoint->generation = note->number;
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

}  // namespace train::actors
