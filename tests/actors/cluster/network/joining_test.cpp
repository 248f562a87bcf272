// Joining: messages known by name, nodes and ranks, the rendezvous.
#include <caf/all.hpp>
#include <catch2/catch.hpp>
#include <regex>
#include <set>

#include "actors/cluster/network/rendezvous.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "actors/cluster/nodes/control_files.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "storage/files/atomic_file.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<char>;

Bytes bytes(const std::string& text) { return {text.begin(), text.end()}; }

TEST_CASE("cluster: every message that may leave its process is known by name",
          "[actors][cluster]") {
  ControlConfig config;
  caf::actor_system system(config);
  std::set<std::string> names;
  static const std::regex kStruct("struct (\\w+) \\{");
  for (const char* file : {"command", "event", "save", "cluster", "watch"}) {
    const std::string text = test::read_bytes(std::string(ACTORTRAIN_SOURCE_DIR) +
                                              "/actors/messages/" + file + "_messages.hpp");
    for (std::sregex_iterator match(text.begin(), text.end(), kStruct), end; match != end;
         ++match) {
      const std::string name = (*match)[1];
      if (text.find("TRAIN_LOCAL_MESSAGE(train::actors::" + name + ")") == std::string::npos) {
        INFO(name);
        CHECK(text.find("TRAIN_CROSSING_MESSAGE(train::actors::" + name + ")") !=
              std::string::npos);
        names.insert(name);
      }
    }
  }
  CHECK(names.size() > 20);
  for (const std::string& name : names) {
    INFO(name);
    CHECK(system.types().make_value(name) != nullptr);
  }
}

TEST_CASE("cluster: a message is the same after the wire", "[actors][cluster]") {
  ControlConfig config;
  caf::actor_system system(config);
  const auto sent = caf::make_message(JoinCluster{.rank = 3, .host = "n1", .version = "0.1"});
  Bytes wire;
  caf::binary_serializer sink(system, wire);
  REQUIRE_FALSE(sink(sent));
  caf::binary_deserializer source(system, wire);
  caf::message got;
  REQUIRE_FALSE(source(got));
  REQUIRE(got.match_elements<JoinCluster>());
  const auto& join = got.get_as<JoinCluster>(0);
  CHECK(join.rank == 3);
  CHECK(join.host == "n1");
  CHECK(join.version == "0.1");
}

TEST_CASE("cluster: where a rank is crosses the wire whole", "[actors][cluster]") {
  ControlConfig config;
  caf::actor_system system(config);
  RankObserved observed{.rank = 3, .pid = 77, .host = "n1", .command = "TrainStep 4"};
  observed.command_age_ns = 5;
  observed.begun = 4;
  observed.finished = 2;
  observed.unchanged_ns = 6;
  observed.waits = {{"buffers", "gathered weights", 7}};
  observed.streams = {{"compute", "block 1 (forward) of step 4", "block 1 (forward)", 8, true}};
  observed.channels = {{1, 4, 9, 3, "reduce #9", 10, {0, 2}}};
  observed.credits = {{"lane slots", 1, 4}};
  observed.mailboxes = {{"rank", 2, -1}};
  Bytes wire;
  caf::binary_serializer sink(system, wire);
  REQUIRE_FALSE(sink(caf::make_message(observed)));
  caf::binary_deserializer source(system, wire);
  caf::message got;
  REQUIRE_FALSE(source(got));
  REQUIRE(got.match_elements<RankObserved>());
  CHECK(caf::deep_to_string(got.get_as<RankObserved>(0)) == caf::deep_to_string(observed));
  Bytes again;
  caf::binary_serializer resink(system, again);
  REQUIRE_FALSE(resink(got));
  CHECK(again == wire);
}

TEST_CASE("cluster: the nodes' ranks are contiguous and all there", "[actors][cluster]") {
  for (std::int64_t nodes = 1; nodes <= 7; ++nodes) {
    for (std::int64_t all = nodes; all <= 23; ++all) {
      std::int64_t next = 0;
      for (std::int64_t node = 0; node < nodes; ++node) {
        const auto [first, last] = run::NodePosition{.node = node, .nodes = nodes}.ranks(all);
        CHECK(first == next);
        CHECK(last - first >= all / nodes);
        CHECK(last - first <= all / nodes + 1);
        next = last;
      }
      CHECK(next == all);
    }
  }
}

TEST_CASE("cluster: a node waits for the endpoint of its own start", "[actors][cluster][world]") {
  const test::TempDirectory directory;
  const auto file = directory / "endpoint";
  const run::NodePosition position{.node = 1, .nodes = 2, .start = "12.0."};
  const auto none = find_head(position, 0, file, 60ms);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message.find("endpoint") != std::string::npos);
  REQUIRE(storage::write_private_file(file, "10.0.0.1:7000\n11.0.\n0\n").ok());
  const auto old = find_head(position, 0, file, 60ms);
  REQUIRE_FALSE(old.ok());
  CHECK(old.error().message.find("another start") != std::string::npos);
  // The head writes after a look that has found the old one.
  const auto found = find_head(position, 0, file, 120s, [&] {
    (void)storage::write_private_file(file, "10.0.0.2:7001\n12.0.\n0\n").ok();
    return false;
  });
  REQUIRE(found.ok());
  CHECK(to_string(*found) == "10.0.0.2:7001");
  // What the head of one generation of ranks wrote is not the next one's.
  CHECK_FALSE(find_head(position, 1, file, 60ms).ok());
  REQUIRE(write_endpoint(file, {.host = "10.0.0.2", .port = 7002, .generation = 1}, position.start)
              .ok());
  CHECK(test::read_bytes(file) == "10.0.0.2:7002\n12.0.\n1\n");
  CHECK(find_head(position, 1, file, 120s)->generation == 1);
}

TEST_CASE("cluster: an endpoint is a host and a port", "[actors][cluster]") {
  const auto endpoint = parse_endpoint("127.0.0.1:80");
  REQUIRE(endpoint.ok());
  CHECK(endpoint->host == "127.0.0.1");
  CHECK(endpoint->port == 80);
  for (const char* wrong : {"", "x", ":1", "h:", "h:0", "h:65536", "h:1x", "h:-1"}) {
    INFO(wrong);
    CHECK_FALSE(parse_endpoint(wrong).ok());
  }
  CHECK(*interface_address("") == "127.0.0.1");
  CHECK(*interface_address("lo") == "127.0.0.1");
  const auto unknown = interface_address("no-such0");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().message.find("lo") != std::string::npos);
}

/// Asks a store, and reads what it has been answered so far.
struct Asker {
  Asker(caf::actor_system& system, caf::actor asked) : self(system), store(std::move(asked)) {}
  void get(const std::string& key) { self->send(store, RendezvousGet{key}); }
  void set(const std::string& key, const std::string& bytes) {
    self->send(store, RendezvousSet{key, bytes});
  }
  /// "key=value" or "key!refusal"; empty: nothing more. A store answers in the order in which it
  /// is asked, so nothing has come if a later word's answer is next.
  std::string next() {
    std::string text;
    self->receive(
        [&](const RendezvousAnswer& answer) {
          text = answer.key + (answer.refusal.empty() ? "=" + answer.bytes : "!" + answer.refusal);
        },
        caf::after(test::hang_limit) >> [] {});
    return text;
  }
  caf::scoped_actor self;
  caf::actor store;
};

TEST_CASE("cluster: who asks early is answered when the key is set", "[actors][cluster][world]") {
  ControlConfig config;
  caf::actor_system system(config);
  const caf::actor store = spawn_rendezvous(system);
  Asker early(system, store);
  Asker twin(system, store);
  Asker other(system, store);
  early.get("g1/a");
  early.set("g1/early", "e");
  CHECK(early.next() == "g1/early=");  // and nothing of the key that it has asked for before
  twin.get("g1/a");
  twin.set("g1/twin", "t");
  CHECK(twin.next() == "g1/twin=");
  other.get("g1/b");
  other.set("g1/a", "x");
  CHECK(other.next() == "g1/a=");
  CHECK(early.next() == "g1/a=x");
  CHECK(twin.next() == "g1/a=x");
  other.get("g1/a");
  CHECK(other.next() == "g1/a=x");
  other.set("g1/a", "x");
  CHECK(other.next() == "g1/a=");
  other.set("g1/a", "y");
  CHECK(other.next() == "g1/a!rendezvous: g1/a is set to something else already");
  early.set("g1/b", "z");
  CHECK(early.next() == "g1/b=");
  CHECK(other.next() == "g1/b=z");
  caf::anon_send_exit(store, caf::exit_reason::kill);
}

TEST_CASE("cluster: the rendezvous has a bound", "[actors][cluster][world]") {
  ControlConfig config;
  caf::actor_system system(config);
  const caf::actor store = spawn_rendezvous(
      system, {.key_bytes = 4, .value_bytes = 8, .stored_bytes = 16, .waiting = 1});
  Asker asker(system, store);
  const auto answer = [&](const std::string& key, std::size_t size) {
    asker.set(key, std::string(size, 'x'));
    return asker.next();
  };
  CHECK(answer("12345", 0) == "12345!rendezvous: 1234 (0 bytes) is more than it may hold");
  CHECK(answer("a", 9).starts_with("a!"));
  CHECK(answer("a", 8) == "a=");
  CHECK(answer("b", 8).starts_with("b!"));
  CHECK(answer("b", 6) == "b=");
  asker.get("c");
  asker.get("d");
  CHECK(asker.next().starts_with("d!rendezvous: too many wait"));
  asker.get("12345");
  CHECK(asker.next().starts_with("12345!"));
  caf::anon_send_exit(store, caf::exit_reason::kill);
}

/// Stands before a store: what is to happen while somebody waits for a key happens when his
/// question has come. "set me" is set then, and "end" ends it.
caf::behavior before_store(caf::event_based_actor* self, const caf::actor& store) {
  return {[self, store](const RendezvousGet& get) {
            const bool to_be_set = get.key.ends_with("set me");
            const bool end = get.key.ends_with("end");
            const auto answer = self->delegate(store, get);
            if (to_be_set) {
              caf::anon_send(store, RendezvousSet{get.key, "z"});
            }
            if (end) {
              self->quit(caf::exit_reason::kill);
            }
            return answer;
          },
          [self, store](const RendezvousSet& set) { return self->delegate(store, set); }};
}

TEST_CASE("cluster: a store's calls wait, time out and end with the head",
          "[actors][cluster][world]") {
  ControlConfig config;
  caf::actor_system system(config);
  const caf::actor actor = spawn_rendezvous(system);
  const caf::actor head = system.spawn(before_store, actor);
  RemoteStore store(system, head, "g1/");
  RemoteStore next(system, head, "g2/");
  REQUIRE(store.set("a", bytes("x")).ok());
  CHECK(*store.get("a", 120s) == bytes("x"));
  REQUIRE(next.set("a", bytes("of the next")).ok());  // a generation has keys of its own
  CHECK(*next.get("a", 120s) == bytes("of the next"));
  CHECK(*store.get("a", 120s) == bytes("x"));
  CHECK_FALSE(next.get("b", 50ms).ok());
  CHECK_FALSE(store.set("a", bytes("y")).ok());
  const auto waited = next.get("set me", 120s);
  REQUIRE(waited.ok());
  CHECK(*waited == bytes("z"));
  const auto gone = store.get("end", 120s);
  REQUIRE_FALSE(gone.ok());
  CHECK(gone.error().message.find("the head is gone") != std::string::npos);
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

}  // namespace
}  // namespace train::actors
