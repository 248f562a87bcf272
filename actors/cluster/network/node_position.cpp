#include "actors/cluster/network/node_position.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

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

Result<Endpoint> read_endpoint(const std::filesystem::path& file) {
  const auto note = read_note(file);
  TRAIN_RETURN_IF_ERROR(note);
  auto endpoint = parse_endpoint(note->word);
  if (endpoint) {
    endpoint->start = note->start;
    endpoint->generation = note->generation;
  }
  return endpoint;
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

Status write_note(const std::filesystem::path& file, const ControlNote& note) {
  return storage::write_private_file(
      file, fmt::format("{}\n{}\n{}\n", note.word, note.start, note.generation));
}

Result<ControlNote> read_note(const std::filesystem::path& file) {
  const auto text = storage::read_file(file, kMostBytes);
  TRAIN_RETURN_IF_ERROR(text);
  std::istringstream lines(*text);
  ControlNote note;
  const bool whole = std::getline(lines, note.word) && std::getline(lines, note.start) &&
                     lines >> note.generation && lines.get() == '\n';
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

Result<Endpoint> find_head(const NodePosition& position, std::uint32_t from,
                           const std::filesystem::path& file, std::chrono::milliseconds timeout,
                           const std::function<bool()>& give_up) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto endpoint = read_endpoint(file);
    if (endpoint && endpoint->start == position.start && endpoint->generation >= from) {
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
