#include "storage/rsync.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "base/process/process.hpp"
#include "tests/support/disks/full_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/processes/leave.hpp"
#include "tests/support/processes/script.hpp"

using namespace train;
using namespace train::storage;
using train::test::comes_true;
using train::test::EnvironmentVariable;
using train::test::names_in;
using train::test::read_bytes;
using train::test::TempDirectory;
using train::test::write_bytes;
using train::test::write_script;
using namespace std::chrono_literals;

namespace {

// A file to copy, a directory to copy to, and a place for scripts.
struct Site {
  Site() {
    std::filesystem::create_directory(home / "from");
    std::filesystem::create_directory(home / "to");
    write_bytes(file, content);
  }
  [[nodiscard]] std::string copied() const { return read_bytes(to / "shard"); }

  TempDirectory home;
  std::filesystem::path to = home / "to";
  std::filesystem::path file = home / "from/shard";
  std::string content = std::string(300'000, 'x') + "end";
};

pid_t pid_in(const std::filesystem::path& file) {
  REQUIRE(comes_true([&] { return std::filesystem::exists(file) && read_bytes(file).size() > 1; }));
  return static_cast<pid_t>(std::stol(read_bytes(file)));
}

bool alive(pid_t pid) {
  // A zombie that nobody reaps does nothing any more.
  const std::filesystem::path facts = fmt::format("/proc/{}/stat", pid);
  std::ifstream file(facts);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t end = text.rfind(") ");
  return end != std::string::npos && text[end + 2] != 'Z';
}

}  // namespace

TEST_CASE("rsync: the file arrives under its name, and replaces another", "[storage][rsync]") {
  const Site site;
  REQUIRE(rsync_file(site.file, site.to));
  REQUIRE(site.copied() == site.content);
  // Of the same size, and so young that a clock of whole seconds sees no difference.
  std::string other = site.content;
  other[0] = 'y';
  write_bytes(site.file, other);
  std::filesystem::last_write_time(site.file, std::filesystem::last_write_time(site.to / "shard"));
  REQUIRE(rsync_file(site.file, site.to));
  REQUIRE(site.copied() == other);
  REQUIRE(names_in(site.to) == std::vector<std::string>{"shard"});
}

TEST_CASE("rsync: names that look like options or hosts are names", "[storage][rsync]") {
  const TempDirectory home;
  std::filesystem::create_directory(home / "host:dir ' $x");
  write_bytes(home / "--delete", "a");
  write_bytes(home / "a:b", "b");
  REQUIRE(rsync_file(home / "--delete", home / "host:dir ' $x"));
  REQUIRE(rsync_file(home / "a:b", home / "host:dir ' $x"));
  REQUIRE(names_in(home / "host:dir ' $x") == std::vector<std::string>{"--delete", "a:b"});
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(home.path());
  const Status status = rsync_file("a:b", "host:dir ' $x");
  std::filesystem::current_path(before);
  REQUIRE(status);
}

TEST_CASE("rsync: a program that is missing is the user's to install", "[storage][rsync]") {
  const Site site;
  const Status status = rsync_file(site.file, site.to, {.program = "no-such-rsync"});
  REQUIRE_FALSE(status);
  REQUIRE(status.error().exit_code() == 2);
  REQUIRE_THAT(status.error().message, Catch::Contains("install the package rsync"));
  const EnvironmentVariable other("ACTORTRAIN_RSYNC", "/none/such");
  REQUIRE_THAT(rsync_file(site.file, site.to).error().message, Catch::Contains("/none/such"));
}

TEST_CASE("rsync: a failure carries its exit code and its last words", "[storage][rsync]") {
  const Site site;
  const Status missing = rsync_file(site.home / "from/none", site.to);
  REQUIRE_FALSE(missing);
  REQUIRE(missing.error().exit_code() == 1);
  REQUIRE_THAT(missing.error().message, Catch::Contains("exit code 23") &&
                                            Catch::Contains("No such file") &&
                                            Catch::Contains("rsync error:"));
  REQUIRE(missing.error().message.find('\n') == std::string::npos);

  const auto noisy = write_script(site.home / "noisy",
                                  "for i in $(seq 20000); do echo line $i >&2; done; exit 12");
  const Status status = rsync_file(site.file, site.to, {.program = noisy.string()});
  REQUIRE_FALSE(status);
  REQUIRE_THAT(status.error().message, Catch::EndsWith("exit code 12: line 19999; line 20000"));

  const auto killed = write_script(site.home / "killed", "kill -9 $$");
  REQUIRE_THAT(rsync_file(site.file, site.to, {.program = killed.string()}).error().message,
               Catch::Contains("killed by signal 9"));
  const auto liar = write_script(site.home / "liar", "exit 0");
  REQUIRE_THAT(rsync_file(site.file, site.to, {.program = liar.string()}).error().message,
               Catch::Contains("the file is missing"));
}

TEST_CASE("rsync: half a copy is none, whatever the program says", "[storage][rsync][CK-1]") {
  const Site site;
  const auto half = write_script(site.home / "half",
                                 fmt::format("head -c 1000 {} > {}; exit 0", site.file.string(),
                                             (site.to / "shard").string()));
  REQUIRE_THAT(rsync_file(site.file, site.to, {.program = half.string()}).error().message,
               Catch::Contains("has another size"));
}

TEST_CASE("rsync: a full disk is named, and nothing has the file's name", "[storage][rsync]") {
  const Site site;
  const test::SmallDisk disk(site.home / "small", "100k");
  if (!disk.mounted()) {
    return;
  }
  const Status status = rsync_file(site.file, disk.path());
  REQUIRE_FALSE(status);
  REQUIRE_THAT(status.error().message,
               Catch::Contains("No space left") && Catch::Contains("exit code 11"));
  REQUIRE(names_in(disk.path()).empty());
}

TEST_CASE("rsync: a stop ends it and all of its children at once", "[storage][rsync]") {
  const Site site;
  const auto slow =
      write_script(site.home / "slow",
                   fmt::format("tail -f /dev/null & echo $! > {0}/child; echo $$ > {0}/self; wait",
                               site.home.path().string()));
  std::stop_source stop;
  Status status;
  std::thread copy([&] {
    status = rsync_file(site.file, site.to, {.program = slow.string(), .stop = stop.get_token()});
  });
  const pid_t self = pid_in(site.home / "self");
  const pid_t child = pid_in(site.home / "child");
  const bool ran = alive(self) && alive(child) && ::getpgid(child) == self;
  stop.request_stop();
  copy.join();
  REQUIRE(ran);
  REQUIRE_THAT(status.error().message, Catch::EndsWith(": stopped"));
  REQUIRE_FALSE(alive(self));
  REQUIRE(comes_true([&] { return !alive(child); }));  // has let go of its files, and ends

  std::stop_source earlier;
  earlier.request_stop();
  REQUIRE_FALSE(
      rsync_file(site.file, site.to, {.program = slow.string(), .stop = earlier.get_token()}));
}

TEST_CASE("rsync: a copy that takes too long is ended", "[storage][rsync]") {
  const Site site;
  const auto slow = write_script(site.home / "slow", "exec tail -f /dev/null");
  const Status status =
      rsync_file(site.file, site.to, {.program = slow.string(), .timeout = 100ms});
  REQUIRE_THAT(status.error().message, Catch::Contains("not done after 0.1 s"));
}

TEST_CASE("rsync: it does not outlive a parent that is killed", "[storage][rsync]") {
  const Site site;
  const auto slow = write_script(
      site.home / "slow",
      fmt::format("echo $$ > {}/self; exec tail -f /dev/null", site.home.path().string()));
  const pid_t parent = ::fork();
  if (parent == 0) {
    std::ignore = rsync_file(site.file, site.to, {.program = slow.string()});
    test::leave(0);
  }
  const pid_t self = pid_in(site.home / "self");
  const bool ran = alive(self);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  REQUIRE(ran);
  REQUIRE(comes_true([&] { return !alive(self); }));
}

TEST_CASE("child_process: a child has its own group, a low priority, and nothing of ours",
          "[storage][rsync]") {
  const TempDirectory home;
  const int ours = ::dup(STDERR_FILENO);  // without CLOEXEC
  const auto script =
      write_script(home / "s",
                   "echo nice $(nice) stdin $(wc -c) >&2; ls /proc/self/fd | wc -l >&2; "
                   "grep SigBlk /proc/self/status >&2; ps -o pgid= $$ > /dev/null; exit 3");
  const int nice = std::max(::getpriority(PRIO_PROCESS, 0), 10);
  const auto end = run_child({script.string()}, {.nice = 10});
  ::close(ours);
  REQUIRE(end);
  REQUIRE(end->exit_code == 3);
  REQUIRE_THAT(end->errors, Catch::Contains(fmt::format("nice {} stdin 0\n", nice)) &&
                                Catch::Contains("SigBlk:\t0000000000000000"));
  REQUIRE_THAT(end->errors, Catch::Contains("\n4\n"));  // 0, 1, 2 and what ls itself opens
  REQUIRE_FALSE(run_child({home.path().string()}, {}));
}
