#include "actors/cluster/network/credentials.hpp"

#include <sys/stat.h>

#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include "actors/cluster/network/head_listener.hpp"
#include "actors/cluster/network/rendezvous.hpp"
#include "actors/cluster/network/secure_stream.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "storage/files/atomic_file.hpp"
#include "tests/support/disks/full_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/processes/stranger.hpp"

namespace train::actors {
namespace {

unsigned mode_of(const std::filesystem::path& path) {
  struct stat facts {};
  REQUIRE(::stat(path.c_str(), &facts) == 0);
  return facts.st_mode & 07777U;
}

const std::vector<std::string> kCredentialFiles = {"authority.pem", "head.pem", "worker.pem"};

TEST_CASE("credentials: only the owner can read them", "[actors][credentials]") {
  const test::TempDirectory directory;
  const auto control = directory / "run/control";
  const auto old = ::umask(0);
  const auto files = make_credentials(control);
  ::umask(old);
  REQUIRE(files.ok());
  CHECK(mode_of(control) == 0700);
  CHECK(test::names_in(control) == kCredentialFiles);
  for (const std::string& name : kCredentialFiles) {
    INFO(name);
    CHECK(mode_of(control / name) == 0600);
  }
  CHECK(load_credentials(control).ok());
}

TEST_CASE("credentials: a directory that others could read is closed to them",
          "[actors][credentials]") {
  const test::TempDirectory directory;
  const auto control = directory / "control";
  std::filesystem::create_directory(control);
  ::chmod(control.c_str(), 0777);
  REQUIRE(make_credentials(control).ok());
  CHECK(mode_of(control) == 0700);
}

TEST_CASE("credentials: each start makes others, and keeps no key of the authority",
          "[actors][credentials]") {
  const test::TempDirectory directory;
  const auto first = make_credentials(directory / "control");
  REQUIRE(first.ok());
  const std::string authority = test::read_bytes(first->authority);
  const std::string key = test::read_bytes(first->worker);
  CHECK(authority.find("PRIVATE") == std::string::npos);
  CHECK(key.find("PRIVATE") != std::string::npos);
  const auto second = make_credentials(directory / "control");
  REQUIRE(second.ok());
  CHECK(test::read_bytes(second->authority) != authority);
  CHECK(test::read_bytes(second->worker) != key);
  CHECK(test::names_in(directory / "control") == kCredentialFiles);
}

TEST_CASE("credentials: a missing or open file is named", "[actors][credentials]") {
  const test::TempDirectory directory;
  const auto none = load_credentials(directory / "control");
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().kind == ErrorKind::user);
  CHECK(none.error().message.find("authority.pem") != std::string::npos);

  const auto files = make_credentials(directory / "control");
  REQUIRE(files.ok());
  ::chmod(files->worker.c_str(), 0644);
  const auto open = load_credentials(directory / "control");
  REQUIRE_FALSE(open.ok());
  CHECK(open.error().kind == ErrorKind::user);
  CHECK(open.error().message.find("worker.pem can be read by others") != std::string::npos);
}

TEST_CASE("credentials: a damaged file is named when it is used", "[actors][credentials]") {
  const test::TempDirectory directory;
  const auto files = make_credentials(directory / "control");
  REQUIRE(files.ok());
  REQUIRE(load_identity(*files, StreamEnd::head).ok());
  REQUIRE(load_identity(*files, StreamEnd::worker).ok());
  test::write_bytes(files->head, "nothing");
  const auto damaged = load_identity(*files, StreamEnd::head);
  REQUIRE_FALSE(damaged.ok());
  CHECK(damaged.error().kind == ErrorKind::user);
  CHECK(damaged.error().message.find("head.pem") != std::string::npos);
  CHECK(load_identity(*files, StreamEnd::worker).ok());
}

TEST_CASE("credentials: a place that cannot be written is a value", "[actors][credentials]") {
  const test::TempDirectory directory;
  test::write_bytes(directory / "file", "x");
  const auto files = make_credentials(directory / "file/control");
  REQUIRE_FALSE(files.ok());
  CHECK(files.error().message.find("file") != std::string::npos);
}

TEST_CASE("credentials: a full disk is a failure", "[actors][credentials]") {
  const test::TempDirectory directory;
  const test::SmallDisk disk(directory / "small", "8k");
  if (!disk.mounted()) {
    return;
  }
  const auto files = make_credentials(disk.path() / "control");
  REQUIRE_FALSE(files.ok());
  CHECK(files.error().kind == ErrorKind::failure);
  CHECK(files.error().message.find("disk full") != std::string::npos);
}

TEST_CASE("credentials: a private file is replaced whole", "[actors][credentials]") {
  const test::TempDirectory directory;
  REQUIRE(storage::write_private_file(directory / "endpoint", "one\n").ok());
  REQUIRE(storage::write_private_file(directory / "endpoint", "two\n").ok());
  CHECK(test::read_bytes(directory / "endpoint") == "two\n");
  CHECK(mode_of(directory / "endpoint") == 0600);
  CHECK(test::names_in(directory.path()) == std::vector<std::string>{"endpoint"});
}

TEST_CASE("credentials: a certificate that has expired lets nobody in",
          "[actors][credentials][world]") {
  ControlConfig config;
  caf::actor_system system(config);
  const bool heads = GENERATE(true, false);
  CAPTURE(heads);
  const test::TempDirectory directory;
  CredentialLife life;
  (heads ? life.head : life.worker) = -std::chrono::hours(1);
  const auto files = make_credentials(directory / "control", life);
  REQUIRE(files.ok());
  const caf::actor actor = spawn_rendezvous(system);
  const auto listener = HeadListener::open(system, actor, *files, {});
  REQUIRE(listener.ok());
  if (heads) {
    const auto head = connect_to_head(system, *files, (*listener)->endpoint(), test::hang_limit);
    REQUIRE_FALSE(head.ok());
    CHECK(head.error().message.find("certificate has expired") != std::string::npos);
  } else {  // whose client trusts anybody
    CHECK_FALSE(test::tls_gets_in((*listener)->endpoint(), files->worker.c_str()));
  }
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

}  // namespace
}  // namespace train::actors
