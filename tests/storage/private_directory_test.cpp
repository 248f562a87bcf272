#include "storage/files/private_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <optional>

#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/few_descriptors.hpp"
#include "tests/support/disks/other_user.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::storage;
using train::test::as_another_user;
using train::test::can_be_another_user;
using train::test::names_in;
using train::test::TempDirectory;
using train::test::write_bytes;

namespace {

namespace fs = std::filesystem;

mode_t mode_of(const fs::path& path) {
  struct stat facts {};
  REQUIRE(::lstat(path.c_str(), &facts) == 0);
  return facts.st_mode & 07777;
}

/// A directory in which everybody may make names, as /tmp.
struct SharedDirectory {
  TempDirectory home;
  fs::path path = home / "shared";

  SharedDirectory() {
    REQUIRE(::chmod(home.path().c_str(), 0755) == 0);
    REQUIRE(::mkdir(path.c_str(), 0755) == 0);
    REQUIRE(::chmod(path.c_str(), 01777) == 0);
  }
  [[nodiscard]] Result<Descriptor> open(const fs::path& below = "run/checkpoints") const {
    return open_private_directory(path, below, "move it away");
  }
  void check_refused(const std::string& name, const std::string& what) const {
    const auto opened = open();
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().kind == ErrorKind::user);
    CHECK(opened.error().message.starts_with((path / name).string() + ": "));
    CHECK_THAT(opened.error().message, Catch::Contains(what) && Catch::EndsWith("; move it away"));
  }
};

}  // namespace

TEST_CASE("private directory: what is made is this user's alone, whatever the umask",
          "[storage][private_directory][ST-11]") {
  const SharedDirectory shared;
  const mode_t before = ::umask(0);
  const auto opened = shared.open();
  ::umask(before);
  REQUIRE(opened.ok());
  CHECK(mode_of(shared.path / "run") == 0700);
  CHECK(mode_of(shared.path / "run/checkpoints") == 0700);
  CHECK(mode_of(shared.path) == 01777);
  CHECK(shared.open("run/checkpoints/").ok());  // again
  struct stat by_name {};
  struct stat by_descriptor {};
  REQUIRE(::stat((shared.path / "run/checkpoints").c_str(), &by_name) == 0);
  REQUIRE(::fstat(opened->get(), &by_descriptor) == 0);
  CHECK(by_name.st_ino == by_descriptor.st_ino);
}

TEST_CASE("private directory: its base may be missing, or be reached through a link",
          "[storage][private_directory]") {
  const TempDirectory home;
  CHECK(open_private_directory(home / "a/b", "run", "").ok());
  fs::create_directory_symlink(home / "a", home / "link");
  CHECK(open_private_directory(home / "link", "run", "").ok());
  CHECK(names_in(home / "a") == std::vector<std::string>{"b", "run"});
}

TEST_CASE("private directory: one that others could only read is shut",
          "[storage][private_directory][ST-11]") {
  const SharedDirectory shared;
  fs::create_directories(shared.path / "run/checkpoints");
  REQUIRE(::chmod((shared.path / "run").c_str(), 0755) == 0);
  REQUIRE(::chmod((shared.path / "run/checkpoints").c_str(), 0755) == 0);
  REQUIRE(shared.open().ok());
  CHECK(mode_of(shared.path / "run") == 0700);
  CHECK(mode_of(shared.path / "run/checkpoints") == 0700);
}

TEST_CASE("private directory: no link is followed and nothing that others may write is used",
          "[storage][private_directory][ST-11]") {
  const SharedDirectory shared;
  const fs::path theirs = shared.home / "theirs";
  fs::create_directories(theirs / "checkpoints");
  SECTION("a link in its place") {
    fs::create_directory_symlink(theirs, shared.path / "run");
    shared.check_refused("run", "is a symbolic link");
  }
  SECTION("a link that leads nowhere") {
    fs::create_symlink(shared.home / "nothing", shared.path / "run");
    shared.check_refused("run", "is a symbolic link");
    CHECK_FALSE(fs::exists(shared.home / "nothing"));
  }
  SECTION("a link further down") {
    fs::create_directory(shared.path / "run");
    REQUIRE(::chmod((shared.path / "run").c_str(), 0700) == 0);
    fs::create_directory_symlink(theirs / "checkpoints", shared.path / "run/checkpoints");
    shared.check_refused("run/checkpoints", "is a symbolic link");
  }
  SECTION("a file") {
    write_bytes(shared.path / "run", "x");
    shared.check_refused("run", "is no directory");
  }
  SECTION("the group may write") {
    fs::create_directory(shared.path / "run");
    REQUIRE(::chmod((shared.path / "run").c_str(), 0770) == 0);
    shared.check_refused("run", "other users may write to it (mode 770)");
    CHECK(mode_of(shared.path / "run") == 0770);
  }
  SECTION("all may write") {
    fs::create_directory(shared.path / "run");
    REQUIRE(::chmod((shared.path / "run").c_str(), 0702) == 0);
    shared.check_refused("run", "other users may write to it (mode 702)");
  }
  CHECK(names_in(theirs) == std::vector<std::string>{"checkpoints"});
  CHECK(names_in(theirs / "checkpoints").empty());
}

TEST_CASE("private directory: what another user has put there is refused",
          "[storage][private_directory][ST-11]") {
  if (!can_be_another_user()) {
    return;
  }
  const SharedDirectory shared;
  const std::string name = (shared.path / "run").string();
  SECTION("a directory") {
    REQUIRE(as_another_user([&] { return ::mkdir(name.c_str(), 0755) == 0; }));
    shared.check_refused("run", "belongs to user 65534");
  }
  SECTION("a link to a directory of this user's") {
    const std::string own = (shared.home / "own").string();
    fs::create_directories(own + "/checkpoints");
    REQUIRE(as_another_user([&] { return ::symlink(own.c_str(), name.c_str()) == 0; }));
    shared.check_refused("run", "is a symbolic link made by user 65534");
  }
  SECTION("it cannot enter what is made here") {
    REQUIRE(shared.open().ok());
    write_bytes(name + "/checkpoints/shard", "x");
    const std::string file = name + "/checkpoints/shard";
    CHECK(as_another_user([&] { return ::open(file.c_str(), O_RDONLY) < 0 && errno == EACCES; }));
    CHECK(as_another_user([&] { return ::symlink("/", (name + "/l").c_str()) != 0; }));
  }
}

TEST_CASE("private directory: all that is below is looked at, and no link in it followed",
          "[storage][private_directory][ST-11]") {
  const SharedDirectory shared;
  const auto opened = shared.open();
  REQUIRE(opened.ok());
  const fs::path own = shared.path / "run/checkpoints";
  fs::create_directories(own / "step-00000010");
  write_bytes(own / "step-00000010/manifest.json", "x");
  const auto check = [&] { return check_private_tree(opened->get(), own, "move it away"); };
  REQUIRE(check().ok());
  CHECK(mode_of(own / "step-00000010") == 0700);
  std::string wanted;
  SECTION("a link to a step") {
    fs::create_directory_symlink(own / "step-00000010", own / "step-00000020");
    wanted = "step-00000020: is a symbolic link";
  }
  SECTION("a link to a file") {
    fs::create_symlink("manifest.json", own / "step-00000010/shard");
    wanted = "step-00000010/shard: is a symbolic link";
  }
  SECTION("a step that others could write") {
    REQUIRE(::chmod((own / "step-00000010").c_str(), 0777) == 0);
    wanted = "step-00000010: other users may write to it (mode 777)";
  }
  SECTION("another user's file") {
    if (!can_be_another_user()) {
      return;
    }
    const fs::path file = own / "step-00000010/manifest.json";
    REQUIRE(::lchown(file.c_str(), test::kOtherUser, test::kOtherUser) == 0);
    wanted = "manifest.json: belongs to user 65534";
  }
  const Status refused = check();
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, Catch::Contains(wanted) && Catch::EndsWith("; move it away"));
}

TEST_CASE("private directory: one of this user's is taken over, a link never",
          "[storage][private_directory]") {
  const TempDirectory home;
  REQUIRE(make_private_directory(home / "a/control").ok());
  CHECK(mode_of(home / "a/control") == 0700);
  REQUIRE(::chmod((home / "a/control").c_str(), 0775) == 0);
  REQUIRE(make_private_directory(home / "a/control/").ok());
  CHECK(mode_of(home / "a/control") == 0700);
  fs::create_directory_symlink(home / "a", home / "link");
  const mode_t before = mode_of(home / "a");
  CHECK_FALSE(make_private_directory(home / "link").ok());
  CHECK(mode_of(home / "a") == before);
}

TEST_CASE("private directory: whatever fails while it is made is named, and the next makes it",
          "[storage][private_directory][ST-11]") {
  for (const int error_number : {EIO, EEXIST}) {  // the latter: made and removed by somebody else
    for (std::int64_t at = 0;; ++at) {
      REQUIRE(at < 20);
      const SharedDirectory shared;
      std::optional<test::FailingDisk> disk(
          test::DiskFault{.error_number = error_number, .at = at});
      const auto opened = shared.open();
      const bool failed = disk->failed() > 0;
      disk.reset();
      if (!failed) {
        REQUIRE(opened.ok());
        REQUIRE(at >= 4);  // two names, each made and synced
        break;
      }
      REQUIRE_FALSE(opened.ok());
      CHECK_THAT(opened.error().message, Catch::Contains(shared.path.string()));
      CHECK(shared.open().ok());
    }
  }
}

TEST_CASE("private directory: without descriptors nothing counts as looked at",
          "[storage][private_directory][ST-11]") {
  const SharedDirectory shared;
  const auto opened = shared.open("run/checkpoints");
  REQUIRE(opened.ok());
  REQUIRE(::mkdir((shared.path / "run/checkpoints/step").c_str(), 0700) == 0);
  for (const rlim_t more : {rlim_t{0}, rlim_t{1}}) {
    const test::FewDescriptors few(more);
    const Status below =
        check_private_tree(opened->get(), shared.path / "run/checkpoints", "move it away");
    const Status made = make_private_directory(shared.path / "run");
    CHECK_THAT(shared.open().error().message,
               Catch::EndsWith("Too many open files; raise `ulimit -n`"));
    REQUIRE_FALSE(below);
    CHECK_THAT(below.error().message, Catch::EndsWith("Too many open files; raise `ulimit -n`"));
    REQUIRE_FALSE(made);
    CHECK_THAT(made.error().message, Catch::EndsWith("Too many open files; raise `ulimit -n`"));
  }
  CHECK(check_private_tree(opened->get(), shared.path / "run/checkpoints", "move it away"));
}
