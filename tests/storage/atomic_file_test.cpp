#include "storage/files/atomic_file.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <optional>

#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/few_descriptors.hpp"
#include "tests/support/disks/full_disk.hpp"
#include "tests/support/disks/recording_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::storage;
using train::test::FailingDisk;
using train::test::names_in;
using train::test::read_bytes;
using train::test::TempDirectory;
namespace fs = std::filesystem;

TEST_CASE("atomic_file: the name appears at commit, whole", "[storage][atomic_file][ST-1]") {
  const TempDirectory directory;
  test::write_bytes(directory / "a.txt", "old");
  auto file = AtomicFile::create(directory / "a.txt");
  REQUIRE(file);
  REQUIRE(file->write("new "));
  REQUIRE(file->write("content"));
  REQUIRE(read_bytes(directory / "a.txt") == "old");
  REQUIRE(file->size_bytes() == 11);
  REQUIRE(file->commit());
  REQUIRE(read_bytes(directory / "a.txt") == "new content");
  REQUIRE(names_in(directory.path()) == std::vector<std::string>{"a.txt"});
}

TEST_CASE("atomic_file: dropped without commit leaves nothing", "[storage][atomic_file][ST-1]") {
  const TempDirectory directory;
  {
    auto file = AtomicFile::create(directory / "a.txt");
    REQUIRE(file);
    REQUIRE(file->write("half"));
    const AtomicFile moved = std::move(*file);
    REQUIRE(names_in(directory.path()).size() == 1);
  }
  REQUIRE(names_in(directory.path()).empty());
}

TEST_CASE("atomic_file: a limit met in the middle keeps the old content",
          "[storage][atomic_file][ST-1]") {
  const TempDirectory directory;
  test::write_bytes(directory / "a.txt", "old");
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 1000, .rlim_max = old_limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const Status status = write_file_atomically(directory / "a.txt", std::string(5000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  REQUIRE_FALSE(status);
  REQUIRE(status.error().exit_code() == 1);
  REQUIRE(names_in(directory.path()) == std::vector<std::string>{"a.txt"});
  REQUIRE(read_bytes(directory / "a.txt") == "old");
}

TEST_CASE("atomic_file: a full disk is named as such", "[storage][atomic_file][ST-1]") {
  const TempDirectory directory;
  const test::SmallDisk disk(directory / "disk", "64k");
  if (!disk.mounted()) {
    return;
  }
  const Status status = write_file_atomically(disk.path() / "big", std::string(1 << 20, 'x'));
  REQUIRE_FALSE(status);
  REQUIRE(status.error().exit_code() == 1);
  REQUIRE_THAT(status.error().message, Catch::Contains("disk full: free space in"));
  REQUIRE(names_in(disk.path()).empty());
}

TEST_CASE("atomic_file: errors name path, reason and mend", "[storage][atomic_file]") {
  const TempDirectory directory;
  fs::create_directory(directory / "a");
  const std::string here = (directory / "a").string();
  const Error full = os_error(Access::write, directory / "a/x.bin", ENOSPC);
  REQUIRE(full.kind == ErrorKind::failure);
  REQUIRE_THAT(full.message, Catch::Contains((directory / "a/x.bin").string()) &&
                                 Catch::EndsWith("disk full: free space in " + here));
  // The directory that is named exists: nothing above a missing one refused.
  for (const char* const file : {"a/x.bin", "a/b", "a/b/c/x.bin"}) {
    for (const int number : {EACCES, EPERM, EROFS}) {
      const Error denied = os_error(Access::write, directory / file, number);
      REQUIRE(denied.kind == ErrorKind::user);
      REQUIRE_THAT(denied.message, Catch::Contains("no write permission in " + here + ";"));
    }
  }
  CHECK_THAT(os_error(Access::write, "no-such-directory/x", EROFS).message,
             Catch::StartsWith("cannot write no-such-directory/x: ") &&
                 Catch::Contains("no write permission in " + fs::current_path().string() + ";"));
  REQUIRE(os_error(Access::read, "x", EIO).kind == ErrorKind::failure);
  for (const int number : {ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG}) {
    REQUIRE(os_error(Access::read, "x", number).kind == ErrorKind::user);
  }

  const auto missing = AtomicFile::create(directory / "no/such/file");
  REQUIRE_FALSE(missing);
  REQUIRE(missing.error().exit_code() == 2);
  REQUIRE_THAT(missing.error().message, Catch::Contains("no/such/file"));
}

TEST_CASE("make_directory: an error names the directory that was asked for",
          "[storage][atomic_file]") {
  const TempDirectory directory;
  test::write_bytes(directory / "file", "");
  const auto message = [&](const char* path) {
    const Status made = make_directory(directory / path);
    REQUIRE_FALSE(made);
    CHECK(made.error().exit_code() == 2);
    return made.error().message;
  };
  const std::string file = (directory / "file").string();
  CHECK(message("file") == "cannot create directory " + file + ": a file has that name; move it");
  CHECK(message("file/a/b") ==
        "cannot create directory " + file + "/a/b: " + file + " is a file; move it");
}

TEST_CASE("atomic_file: a link under the hidden name leads nowhere",
          "[storage][atomic_file][ST-1]") {
  const TempDirectory directory;
  test::write_bytes(directory / "victim", "untouched");
  // The name is that of the process and of how many files it has made.
  std::string probe;
  {
    const auto file = AtomicFile::create(directory / "f");
    REQUIRE(file);
    for (const std::string& name : names_in(directory.path())) {
      probe = name.starts_with(".f.tmp-") ? name : probe;
    }
  }
  const std::size_t dash = probe.rfind('-');
  REQUIRE(dash != std::string::npos);
  const int next = std::stoi(probe.substr(dash + 1)) + 1;
  const auto hidden = directory / (probe.substr(0, dash + 1) + std::to_string(next));
  fs::create_symlink(directory / "victim", hidden);
  const Status status = write_file_atomically(directory / "f", "new");
  CHECK(read_bytes(directory / "victim") == "untouched");
  CHECK_FALSE(fs::is_symlink(directory / "f"));
  REQUIRE_FALSE(status);
  REQUIRE_THAT(status.error().message, Catch::Contains("symbolic link"));
}

TEST_CASE("atomic_file: a rename into another directory is durable in both",
          "[storage][atomic_file][ST-1]") {
  const TempDirectory directory;
  fs::create_directory(directory / "from");
  fs::create_directory(directory / "to");
  test::write_bytes(directory / "from/f", "x");
  const test::RecordingDisk disk(directory.path());
  REQUIRE(rename_durably(directory / "from/f", directory / "to/f"));
  REQUIRE(disk.calls().size() == 3);
  CHECK(disk.calls()[0].kind == FileCallKind::rename);
  std::vector<std::string> synced;
  for (const test::RecordedCall& call : disk.calls()) {
    if (call.kind == FileCallKind::sync_directory) {
      synced.push_back(call.path);
    }
  }
  CHECK(synced == std::vector<std::string>{"to", "from"});
}

TEST_CASE("atomic_file: directories are made with their parents", "[storage][atomic_file]") {
  const TempDirectory directory;
  REQUIRE(make_directory(directory / "a/b/c"));
  REQUIRE(make_directory(directory / "a/b/c/"));
  REQUIRE(std::filesystem::is_directory(directory / "a/b/c"));
  test::write_bytes(directory / "file", "x");
  const Status status = make_directory(directory / "file");
  REQUIRE_FALSE(status);
  REQUIRE(status.error().exit_code() == 2);
  REQUIRE(remove_tree(directory / "a"));
  REQUIRE(remove_tree(directory / "a"));
  REQUIRE_FALSE(std::filesystem::exists(directory / "a"));
}

TEST_CASE("atomic_file: reading stops at the limit", "[storage][atomic_file]") {
  const TempDirectory directory;
  test::write_bytes(directory / "f", std::string(200'000, 'y'));
  REQUIRE(read_file(directory / "f", 200'000).value().size() == 200'000);
  REQUIRE_FALSE(read_file(directory / "f", 199'999));
  REQUIRE(read_file(directory / "none", 10).error().exit_code() == 2);
}

namespace {

/// Makes the calls of `work` fail one after the other, each with EIO and each in a fresh directory:
/// `judge` sees what is left.
template <class Work, class Judge>
void fail_each_call(const Work& work, const Judge& judge) {
  for (std::int64_t at = 0;; ++at) {
    REQUIRE(at < 100);
    const TempDirectory directory;
    test::write_bytes(directory / "a.txt", "old");
    fs::create_directories(directory / "tree/below");
    test::write_bytes(directory / "tree/below/f", "x");
    std::optional<FailingDisk> disk(test::DiskFault{.error_number = EIO, .at = at});
    const Status status = work(directory.path());
    const bool failed = disk->failed() > 0;
    disk.reset();
    if (!failed) {
      REQUIRE(status);
      REQUIRE(at > 0);
      return;
    }
    INFO("call " << at);
    REQUIRE_FALSE(status);
    CHECK(status.error().kind == ErrorKind::failure);
    CHECK_THAT(status.error().message,
               Catch::Contains(directory.path().string()) && Catch::Contains("Input/output error"));
    judge(directory.path());
  }
}

}  // namespace

TEST_CASE("atomic_file: whatever call of a write fails, the old content or the new is there",
          "[storage][atomic_file][ST-1]") {
  for (const auto write : {&write_file_atomically, &write_private_file}) {
    fail_each_call([&](const fs::path& home) { return write(home / "a.txt", "new"); },
                   [&](const fs::path& home) {
                     const std::string found = read_bytes(home / "a.txt");
                     CHECK((found == "old" || found == "new"));
                     CHECK(names_in(home) == std::vector<std::string>{"a.txt", "tree"});
                     CHECK(write(home / "a.txt", "newer"));
                     CHECK(read_bytes(home / "a.txt") == "newer");
                   });
  }
}

TEST_CASE("atomic_file: whatever call of a rename fails, one of the names is there",
          "[storage][atomic_file][ST-1]") {
  fail_each_call(
      [](const fs::path& home) { return rename_durably(home / "a.txt", home / "tree/b.txt"); },
      [](const fs::path& home) {
        CHECK(fs::exists(home / "a.txt") != fs::exists(home / "tree/b.txt"));
      });
}

TEST_CASE("atomic_file: whatever call of a removal fails, the next removes the rest",
          "[storage][atomic_file]") {
  fail_each_call([](const fs::path& home) { return remove_tree(home / "tree"); },
                 [](const fs::path& home) {
                   CHECK(remove_tree(home / "tree/"));
                   CHECK_FALSE(fs::exists(home / "tree"));
                 });
  const TempDirectory directory;
  fs::create_directories(directory / "tree/below");
  {
    const test::FewDescriptors none(0);
    const Status status = remove_tree(directory / "tree");
    REQUIRE_FALSE(status);
    CHECK_THAT(status.error().message,
               Catch::EndsWith("tree: Too many open files; raise `ulimit -n`"));
  }
  CHECK(fs::exists(directory / "tree/below"));
}

TEST_CASE("atomic_file: a directory that cannot be made is named", "[storage][atomic_file]") {
  fail_each_call([](const fs::path& home) { return make_directory(home / "made/below"); },
                 [](const fs::path& home) {
                   CHECK(make_directory(home / "made/below"));
                   CHECK(fs::is_directory(home / "made/below"));
                 });
  const TempDirectory directory;
  const FailingDisk disk({.error_number = EEXIST, .at = 0});
  CHECK(make_directory(directory / "other").error().kind == ErrorKind::user);
}

TEST_CASE("atomic_file: names are listed in order, of nothing none", "[storage][atomic_file]") {
  const TempDirectory directory;
  for (const char* name : {"b", "a", ".c"}) {
    test::write_bytes(directory / name, "x");
  }
  CHECK(entry_names(directory.path()).value() == std::vector<std::string>{".c", "a", "b"});
  CHECK(entry_names(directory / "none").value().empty());
  CHECK(entry_names(directory / "a").error().message ==
        fmt::format("cannot read {}: Not a directory; check the path", (directory / "a").string()));
}
