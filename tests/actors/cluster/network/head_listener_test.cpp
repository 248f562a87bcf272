// The control port against unauthenticated peers, with real processes: a head, workers, and 100 who
// have no business there.
#include "actors/cluster/network/head_listener.hpp"

#include <atomic>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <list>
#include <map>
#include <optional>
#include <thread>

#include "actors/cluster/network/rendezvous.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "actors/cluster/nodes/control_files.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/harness/sanitized.hpp"
#include "tests/support/processes/process.hpp"
#include "tests/support/processes/stranger.hpp"
#include "tests/support/processes/until_killed.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using test::connect_to;
using test::read_to_end;
using test::tls_gets_in;

constexpr auto kJoinTimeout = test::hang_limit;
/// A sanitizer keeps what has been freed.
double most_growth_mib() { return test::sanitized() ? 600 : 16; }

// ---- The processes: this program again, in a directory of its own. ----
/// Set for them alone: who names a test by hand shall not get their files into his directory.
constexpr const char* kIsProcess = "HEAD_DOOR_TEST_PROCESS";

std::vector<std::string> again_as(const char* tag) {
  return {"/usr/bin/env", std::string(kIsProcess) + "=1",
          std::filesystem::read_symlink("/proc/self/exe").string(), tag};
}

bool is_process() { return std::getenv(kIsProcess) != nullptr; }

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Says on standard output what reaches its actor.
caf::behavior head_behavior(caf::event_based_actor* self) {
  self->set_default_handler([](caf::scheduled_actor*, caf::message_view&) {
    say("unexpected");
    return caf::result<caf::message>(caf::sec::unexpected_message);
  });
  auto ranks = std::make_shared<std::map<caf::actor_addr, std::int32_t>>();
  self->set_down_handler(
      [ranks](const caf::down_msg& down) { say("lost " + std::to_string((*ranks)[down.source])); });
  return {[self, ranks](const JoinCluster& join) {
    const auto worker = caf::actor_cast<caf::actor>(self->current_sender());
    self->monitor(worker);
    (*ranks)[worker.address()] = join.rank;
    say("joined " + std::to_string(join.rank));
    Assignment answer;
    answer.generation = 4;
    answer.config_text = "c";
    answer.index = caf::actor_cast<caf::strong_actor_ptr>(self);
    return answer;
  }};
}

/// Says which keys it is asked for, and hands all on to the store.
caf::behavior store_behavior(caf::event_based_actor* self, const caf::actor& store) {
  return {[self, store](const RendezvousGet& get) {
            const auto answer = self->delegate(store, get);
            say("asked for " + get.key);
            return answer;
          },
          [self, store](const RendezvousSet& set) { return self->delegate(store, set); }};
}

void be_head(caf::actor_system& system, const caf::actor& actor) {
  const auto files = make_credentials("control");
  REQUIRE(files.ok());
  const auto listener = HeadListener::open(system, actor, *files, {});
  REQUIRE(listener.ok());
  REQUIRE(write_endpoint("control/endpoint", (*listener)->endpoint(), "").ok());
  test::last_until_killed();
}

TEST_CASE("head_door: (a head)", "[.head_of_test]") {
  if (!is_process()) {
    return;
  }
  ControlConfig config;
  caf::actor_system system(config);
  be_head(system, system.spawn(head_behavior));
}

TEST_CASE("head_door: (a head with a store)", "[.store_of_test]") {
  if (!is_process()) {
    return;
  }
  ControlConfig config;
  caf::actor_system system(config);
  be_head(system, system.spawn(store_behavior, spawn_rendezvous(system)));
}

/// Joins as rank 7, and stays until it is killed if told to.
void be_worker(bool stay) {
  if (!is_process()) {
    return;
  }
  ControlConfig config;
  caf::actor_system system(config);
  const auto endpoint = find_head({}, 0, "control/endpoint", kJoinTimeout);
  REQUIRE(endpoint.ok());
  const auto files = load_credentials("control");
  REQUIRE(files.ok());
  const auto head = connect_to_head(system, *files, *endpoint, kJoinTimeout);
  INFO((head ? "" : head.error().message));
  REQUIRE(head.ok());
  caf::scoped_actor self(system);
  std::optional<Assignment> assignment;
  self->request(*head, kJoinTimeout, JoinCluster{.rank = 7, .host = "here", .version = "v"})
      .receive([&](const Assignment& answer) { assignment = answer; }, [](const caf::error&) {});
  REQUIRE(assignment.has_value());
  CHECK(assignment->generation == 4);
  CHECK(assignment->config_text == "c");
  CHECK(assignment->index == caf::actor_cast<caf::strong_actor_ptr>(*head));  // a handle travels
  CHECK(assignment->rendezvous == nullptr);
  if (stay) {
    test::last_until_killed();
  }
}

TEST_CASE("head_door: (a worker)", "[.worker_of_test]") { be_worker(false); }
TEST_CASE("head_door: (a worker that stays)", "[.staying_worker_of_test]") { be_worker(true); }

class Head {
 public:
  explicit Head(const char* tag = "[.head_of_test]") : process_(again_as(tag), directory_.path()) {
    const auto endpoint = find_head({}, 0, directory_ / "control/endpoint", kJoinTimeout);
    REQUIRE(endpoint.ok());
    endpoint_ = *endpoint;
  }

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_.path(); }
  [[nodiscard]] pid_t pid() const { return process_.pid(); }
  bool running() { return process_.running(); }

  [[nodiscard]] std::size_t heard(const std::string& word) const {
    const std::string text = process_.out();
    std::size_t count = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      ++count;
    }
    return count;
  }
  [[nodiscard]] bool hears(const std::string& word) const {
    return test::comes_true([&] { return heard(word) > 0; });
  }

  [[nodiscard]] double memory_mib() const {
    std::ifstream file("/proc/" + std::to_string(pid()) + "/status");
    std::string word;
    while (file >> word) {
      if (word == "VmRSS:") {
        double kib = 0;
        file >> kib;
        return kib / 1024;
      }
    }
    return 0;
  }
  /// Times that its threads went to sleep so far: one that looks again and again goes on counting.
  [[nodiscard]] std::uint64_t sleeps() const {
    std::uint64_t sum = 0;
    const std::string tasks = "/proc/" + std::to_string(pid()) + "/task";
    for (const std::string& task : test::names_in(tasks)) {
      std::ifstream file(tasks + "/" + task + "/status");
      std::string word;
      while (file >> word) {
        if (word == "voluntary_ctxt_switches:") {
          std::uint64_t count = 0;
          file >> count;
          sum += count;
        }
      }
    }
    return sum;
  }
  [[nodiscard]] std::size_t open_files() const {
    return test::names_in("/proc/" + std::to_string(pid()) + "/fd").size();
  }

  void let_worker_join() {
    test::Process worker(again_as("[.worker_of_test]"), directory_.path());
    const auto end = worker.wait();
    INFO(end.out);
    CHECK(end.exit_code == 0);
  }

 private:
  test::TempDirectory directory_;
  test::Process process_;
  Endpoint endpoint_;
};

TEST_CASE("head_door: a hundred unauthenticated peers get nothing",
          "[actors][head_door][slow][world]") {
  std::signal(SIGPIPE, SIG_IGN);
  Head head;
  const test::TempDirectory elsewhere;
  const auto foreign = make_credentials(elsewhere / "control");
  const auto own = load_credentials(head.directory() / "control");
  REQUIRE((foreign.ok() && own.ok()));
  head.let_worker_join();
  // The check itself can tell who gets in.
  REQUIRE(tls_gets_in(head.endpoint(), own->worker.c_str()));
  const double memory = head.memory_mib();
  const std::size_t files = head.open_files();

  std::vector<Descriptor> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(connect_to(head.endpoint()));
  }
  const std::string garbage(100'000, 'G');
  for (int i = 0; i < 20; ++i) {
    const Descriptor socket = connect_to(head.endpoint());
    (void)!::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    const auto answer = read_to_end(socket, test::hang_limit);
    REQUIRE(answer.has_value());
    CHECK(*answer < 64);  // at most TLS's own "no"
    CHECK_FALSE(tls_gets_in(head.endpoint(), nullptr));
    CHECK_FALSE(tls_gets_in(head.endpoint(), foreign->worker.c_str()));
  }
  {
    ControlConfig config;
    caf::actor_system plain(config);
    for (int i = 0; i < 20; ++i) {
      CHECK_FALSE(plain.middleman().remote_actor(head.endpoint().host, head.endpoint().port));
    }
  }
  head.let_worker_join();  // while the silent ones are there, or just gone
  for (const Descriptor& socket : silent) {
    CHECK(read_to_end(socket, test::hang_limit) == std::optional<std::size_t>(0));
  }
  head.let_worker_join();

  CHECK(head.running());
  CHECK(head.heard("joined 7") == 3);
  CHECK(head.heard("unexpected") == 0);
  const double grown = head.memory_mib() - memory;
  std::printf("head_door: 100 unauthenticated peers: +%.1f MiB\n", grown);
  CHECK(grown <= most_growth_mib());
  // The last worker's connection may just be closing.
  CHECK(test::comes_true([&] { return head.open_files() <= files; }));
}

TEST_CASE("head_door: a crowd of silent unauthenticated peers keeps no worker out",
          "[actors][head_door][slow][world]") {
  Head head;
  const double memory = head.memory_mib();
  const std::uint64_t sleeps = head.sleeps();
  std::vector<Descriptor> silent;
  for (int i = 0; i < 500; ++i) {  // many times as many as may wait
    silent.push_back(connect_to(head.endpoint()));
  }
  head.let_worker_join();
  for (const Descriptor& socket : silent) {
    CHECK(read_to_end(socket, test::hang_limit) == std::optional<std::size_t>(0));
  }
  const std::uint64_t slept = head.sleeps() - sleeps;
  std::printf("head_door: 500 silent unauthenticated peers: +%.1f MiB, %llu sleeps\n",
              head.memory_mib() - memory, static_cast<unsigned long long>(slept));
  CHECK(head.memory_mib() - memory <= most_growth_mib());
  CHECK(slept < 2 * silent.size());  // nobody looks again and again while they are tolerated
  CHECK(test::comes_true([&] { return head.open_files() < 40; }));
}

TEST_CASE("head_door: a worker joins while unauthenticated peers come without end",
          "[actors][head_door][slow][world]") {
  Head head;
  const double memory = head.memory_mib();
  std::atomic<bool> done = false;
  std::atomic<std::size_t> came = 0;
  std::thread flood([&] {
    std::list<Descriptor> open;
    while (!done) {
      open.push_back(connect_to(head.endpoint()));
      came += open.back() ? 1 : 0;
      if (open.size() > 300) {
        open.pop_front();
      }
    }
  });
  CHECK(test::comes_true([&] { return came >= 200; }));
  const std::size_t before = came;
  head.let_worker_join();
  done = true;
  flood.join();
  std::printf("head_door: joined among %zu unauthenticated peers: +%.1f MiB\n", came.load(),
              head.memory_mib() - memory);
  CHECK(came > before);  // and they went on while it joined
  CHECK(head.memory_mib() - memory <= most_growth_mib());
}

TEST_CASE("head_door: a worker's certificate is not the head's", "[actors][head_door][world]") {
  ControlConfig config;
  caf::actor_system system(config);
  const test::TempDirectory directory;
  const auto files = make_credentials(directory / "control");
  REQUIRE(files.ok());
  CredentialFiles swapped = *files;  // a worker that plays the head
  swapped.head = files->worker;
  const caf::actor actor = spawn_rendezvous(system);
  const auto listener = HeadListener::open(system, actor, swapped, {});
  REQUIRE(listener.ok());
  const auto head = connect_to_head(system, *files, (*listener)->endpoint(), 120s);
  REQUIRE_FALSE(head.ok());
  CHECK(head.error().message.find("certificate is not of this run") != std::string::npos);
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

TEST_CASE("head_door: a killed worker is lost at once, a stopped one within seconds",
          "[actors][.full][head_door][slow][world]") {
  Head head;
  test::Process first(again_as("[.staying_worker_of_test]"), head.directory());
  REQUIRE(head.hears("joined 7"));
  first.send(SIGKILL);
  REQUIRE(head.hears("lost 7"));

  Head other;
  test::Process second(again_as("[.staying_worker_of_test]"), other.directory());
  REQUIRE(other.hears("joined 7"));
  second.send(SIGSTOP);
  CHECK(other.hears("lost 7"));
  second.send(SIGKILL);
}

TEST_CASE("head_door: messages of any size arrive whole, both ways", "[actors][head_door][world]") {
  Head head("[.store_of_test]");
  ControlConfig config;
  caf::actor_system system(config);
  const auto files = load_credentials(head.directory() / "control");
  REQUIRE(files.ok());
  const auto actor = connect_to_head(system, *files, head.endpoint(), kJoinTimeout);
  REQUIRE(actor.ok());
  // Around the size of a TLS record (16 KiB), and as many as go at a time.
  const std::vector<std::size_t> sizes = {0,     1,     1000,  16250, 16300,  16383,
                                          16384, 16385, 32768, 65536, 500000, 1U << 20U};
  std::vector<std::thread> workers;
  std::atomic<int> right = 0;
  for (int worker = 0; worker < 3; ++worker) {
    workers.emplace_back([&, worker] {
      RemoteStore store(system, *actor, "g" + std::to_string(worker) + "/");
      for (const std::size_t size : sizes) {
        std::vector<char> value(size);
        for (std::size_t i = 0; i < size; ++i) {
          value[i] = static_cast<char>(i * 7 + i / 251 + size);
        }
        const auto key = std::to_string(size);
        const bool set = store.set(key, value).ok();
        const auto got = store.get(key, kJoinTimeout);
        right += set && got && *got == value ? 1 : 0;
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  CHECK(right == static_cast<int>(3 * sizes.size()));
  RemoteStore store(system, *actor, "x/");
  std::thread death([&] {
    (void)head.hears("asked for x/never");
    ::kill(head.pid(), SIGKILL);
  });
  const auto lost = store.get("never", test::beyond_hang_limit);
  death.join();
  REQUIRE_FALSE(lost.ok());
  CHECK(lost.error().message.find("the head is gone") != std::string::npos);
}

TEST_CASE("head_door: what cannot listen is a user's error", "[actors][head_door][world]") {
  ControlConfig config;
  caf::actor_system system(config);
  const test::TempDirectory directory;
  const auto files = make_credentials(directory / "control");
  REQUIRE(files.ok());
  const caf::actor actor = spawn_rendezvous(system);
  const auto listener = HeadListener::open(system, actor, *files, {});
  REQUIRE(listener.ok());
  const auto port = (*listener)->endpoint().port;
  const auto taken = HeadListener::open(system, actor, *files, {.port = port});
  REQUIRE_FALSE(taken.ok());
  CHECK(taken.error().kind == ErrorKind::user);
  CHECK(taken.error().message == "parallel.port = " + std::to_string(port) +
                                     ": 127.0.0.1:" + std::to_string(port) +
                                     " is taken; choose another, or 0 for any free one");
  const auto absent = HeadListener::open(system, actor, *files, {.address = "192.0.2.1"});
  REQUIRE_FALSE(absent.ok());
  CHECK(absent.error().kind == ErrorKind::user);
  CHECK(absent.error().message.find("parallel.interface") != std::string::npos);
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

TEST_CASE("head_door: where nobody listens nobody is joined", "[actors][head_door][world]") {
  ControlConfig config;
  caf::actor_system system(config);
  const test::TempDirectory directory;
  const auto files = make_credentials(directory / "control");
  REQUIRE(files.ok());
  const auto nobody = connect_to_head(system, *files, {.host = "127.0.0.1", .port = 1}, 300ms);
  REQUIRE_FALSE(nobody.ok());
  CHECK(nobody.error().message.find("cannot join the head at 127.0.0.1:1") != std::string::npos);
}

}  // namespace
}  // namespace train::actors
