// What processes tell each other before and while they train together: messages as the actor
// framework reads them off the wire, addresses, and Slurm's list of hosts. Peers have proved who
// they are before (actors/cluster/network/peer_acceptor); the first byte says which reader is
// meant.
#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/proxy_registry.hpp>
#include <cstdint>

#include "actors/cluster/network/endpoint.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "tests/fuzz/target.hpp"

namespace train::fuzz {
namespace {

using namespace actors;

/// What handles of actors are read with: those of other processes are nobody here.
class UnauthenticatedPeers : caf::proxy_registry::backend {
 public:
  static UnauthenticatedPeers& instance() {
    // Never destroyed: at the end of the process the framework's own variables go first.
    static auto* const strangers = new UnauthenticatedPeers;
    return *strangers;
  }
  caf::execution_unit* context() {
    proxies_.clear();  // every address leaves an entry
    return &unit_;
  }

 private:
  struct Config : caf::actor_system_config {
    Config() { set("scheduler.max-threads", 1); }
  };

  UnauthenticatedPeers() { unit_.proxy_registry_ptr(&proxies_); }
  caf::strong_actor_ptr make_proxy(caf::node_id, caf::actor_id) override { return nullptr; }
  void set_last_hop(caf::node_id*) override {}

  Config config_;
  caf::actor_system system_{config_};
  caf::proxy_registry proxies_{system_, *this};
  caf::scoped_execution_unit unit_{&system_};
};

template <class Message>
std::vector<char> bytes_of(Message message) {
  std::vector<char> bytes;
  caf::binary_serializer sink(UnauthenticatedPeers::instance().context(), bytes);
  require(!sink(message), "a message is written");
  return bytes;
}

template <class Message>
void read_message(std::string_view bytes) {
  Message message;
  caf::binary_deserializer source(UnauthenticatedPeers::instance().context(), bytes.data(),
                                  bytes.size());
  if (source(message)) {
    return;
  }
  const auto written = bytes_of(message);
  Message again;
  caf::binary_deserializer second(UnauthenticatedPeers::instance().context(), written);
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

using Reader = void (*)(std::string_view);
constexpr Reader readers[] = {
    read_endpoint,
    read_message<JoinCluster>,
    read_message<Refused>,
    read_message<WorkerExited>,
    read_message<Shutdown>,
    read_message<RendezvousSet>,
    read_message<RendezvousGet>,
    read_message<RendezvousAnswer>,
    read_message<WorkerFailed>,
    read_message<ShardWritten>,
    read_message<ShardOrder>,
    read_message<ShardDone>,
    read_message<NodeJoined>,
    read_message<GenerationOver>,
    read_message<NodeIdle>,
    read_message<Assignment>,
    read_message<WorkerReady>,
    read_message<StartRanks>,
    read_message<RestoreMemory>,
    read_message<MemoryRestored>,
    read_message<TakePosition>,
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

/// The same with handles of actors of another process: an actor's number and its process's.
template <class... Fields>
std::string seed_of_fields(std::size_t reader, Fields... fields) {
  std::vector<char> bytes;
  caf::binary_serializer sink(UnauthenticatedPeers::instance().context(), bytes);
  require(!sink(fields...), "fields are written");
  return std::string(1, static_cast<char>(reader)) + std::string(bytes.begin(), bytes.end());
}

/// As inspect() of the two messages has them.
std::vector<std::string> seeds_with_handles() {
  const auto node = caf::make_node_id(77, "0123456789abcdef0123456789abcdef01234567");
  require(static_cast<bool>(node), "a process has a name");
  const caf::actor_id actor = 12;
  return {seed_of_fields(15, std::uint32_t{2}, std::string("[run]\n"), std::string("step-00000010"),
                         std::int64_t{30}, std::int64_t{2}, std::vector<std::int32_t>{0, 1},
                         std::string("runs/a"), true, std::string("4-1"), std::string(),
                         std::int32_t{1}, actor, *node, actor, *node, actor, *node, actor, *node),
          seed_of_fields(16, std::int32_t{1}, std::uint64_t{5}, std::string("avx512"), actor, *node,
                         actor, *node)};
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = seeds_with_handles();
  const std::vector<std::string> others = {
      std::string(1, 0) + "127.0.0.1:4242",
      seed(1, JoinCluster{.rank = 3, .host = "n1", .version = "0.1"}),
      seed(2, Refused{.text = "no", .over = true}),
      seed(3, WorkerExited{.rank = 1, .text = "exit code 3"}),
      seed(4, Shutdown{.exit_code = 1}),
      seed(5, RendezvousSet{.key = "k", .bytes = "ab"}),
      seed(8, WorkerFailed{.rank = 1, .text = "no"}),
      seed(9, ShardWritten{.step = 10, .rank = 1, .record = "{}"}),
      seed(10, ShardOrder{.step = 10, .task = ShardTask::send, .manifest = "{}"}),
      seed(12,
           NodeJoined{.node = 1, .held = {.own = {20}, .buddy = {}}, .snapshots = "10.0.0.2:4000"}),
      seed(13, GenerationOver{.again = true, .exit_code = 75}),
      seed(15, Assignment()),
      seed(16, WorkerReady()),
      seed(17, StartRanks{.buddy = "10.0.0.2:4000"}),
      seed(18, RestoreMemory{.step = 20, .give_to = "10.0.0.2:4000", .take = true}),
      seed(19, MemoryRestored{.node = 1, .failure = "no answer"}),
      seed(20, TakePosition{.node = 1, .nodes = 2, .ranks = 4, .memory_step = 20})};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

}  // namespace

Target control_target() {
  return {"control",
          run,
          seeds,
          {"127.0.0.1:", ":65536", "\xff\xff\xff\xff\x0f", std::string("\x80\x80\x80\x80\x08", 5)}};
}

}  // namespace train::fuzz
