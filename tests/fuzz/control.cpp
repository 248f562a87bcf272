// What processes tell each other before and while they train together: messages as the actor
// framework reads them off the wire, addresses, and Slurm's list of hosts. Peers have proved who
// they are before (actors/net/gate); the first byte says which reader is meant.
#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <cstdint>

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/messages/worker_messages.hpp"
#include "actors/net/endpoint.hpp"
#include "actors/net/node_place.hpp"
#include "tests/fuzz/target.hpp"

namespace train::fuzz {
namespace {

using namespace actors;

template <class Message>
std::vector<char> bytes_of(Message message) {
  std::vector<char> bytes;
  caf::binary_serializer sink(nullptr, bytes);
  require(!sink(message), "a message is written");
  return bytes;
}

template <class Message>
void read_message(std::string_view bytes) {
  Message message;
  caf::binary_deserializer source(nullptr, bytes.data(), bytes.size());
  if (source(message)) {
    return;
  }
  const auto written = bytes_of(message);
  Message again;
  caf::binary_deserializer second(nullptr, written);
  require(!second(again) && bytes_of(again) == written, "a message is written and read");
}

void read_endpoint(std::string_view text) {
  const auto endpoint = parse_endpoint(std::string(text));
  if (!endpoint) {
    require_readable(endpoint.error());
    return;
  }
  const auto again = parse_endpoint(to_string(*endpoint));
  require(
      again && again->port == endpoint->port && again->host == endpoint->host && again->port > 0,
      "an endpoint is written and read");
}

void read_hosts(std::string_view list) {
  const auto hosts = expand_hosts(list);
  if (!hosts) {
    require_readable(hosts.error());
    return;
  }
  for (const std::string& host : *hosts) {
    require(!host.empty() && host.find_first_of(",[]") == std::string::npos, "a host has a name");
  }
}

using Reader = void (*)(std::string_view);
constexpr Reader readers[] = {
    read_endpoint,
    read_hosts,
    read_message<JoinCluster>,
    read_message<Refused>,
    read_message<WorkerExited>,
    read_message<GoAway>,
    read_message<RendezvousSet>,
    read_message<RendezvousGet>,
    read_message<RendezvousValue>,
    read_message<RendezvousForget>,
    read_message<WorkerFailed>,
    read_message<ShardWritten>,
    read_message<ShardOrder>,
    read_message<ShardDone>,
    read_message<NodeJoined>,
    read_message<GenerationOver>,
    read_message<NodeIdle>,
};

void run(std::string_view input) {
  if (!input.empty()) {
    const auto which = static_cast<unsigned char>(input.front());
    readers[which % std::size(readers)](input.substr(1));
  }
}

template <class Message>
std::string seed(std::size_t reader, const Message& message) {
  const auto bytes = bytes_of(message);
  return std::string(1, static_cast<char>(reader)) + std::string(bytes.begin(), bytes.end());
}

std::vector<std::string> seeds() {
  return {std::string(1, 0) + "127.0.0.1:4242",
          "\1n[01-03,7],login",
          seed(2, JoinCluster{.rank = 3, .pid = 77, .host = "n1", .version = "0.1"}),
          seed(3, Refused{.text = "no", .over = true}),
          seed(4, WorkerExited{.rank = 1, .pid = 2, .text = "exit code 3"}),
          seed(5, GoAway{.text = "over", .exit_code = 1}),
          seed(6, RendezvousSet{.key = "k", .bytes = "ab"}),
          seed(10, WorkerFailed{.rank = 1, .text = "no"}),
          seed(11, ShardWritten{.step = 10, .rank = 1, .record = "{}"}),
          seed(12, ShardOrder{.step = 10, .task = ShardTask::send, .manifest = "{}"}),
          seed(14, NodeJoined{.node = 1}),
          seed(15, GenerationOver{.again = true})};
}

}  // namespace

Target control_target() {
  return {"control",
          run,
          seeds,
          {"127.0.0.1:", ":65536", "[1-65536]", "[01-03]", "],", "\xff\xff\xff\xff\x0f",
           std::string("\x80\x80\x80\x80\x08", 5)}};
}

}  // namespace train::fuzz
