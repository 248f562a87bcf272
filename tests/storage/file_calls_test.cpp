#include "storage/files/file_calls.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "storage/files/atomic_file.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::storage;
using train::test::DiskFault;
using train::test::FailingDisk;
using train::test::names_in;
using train::test::read_bytes;
using train::test::TempDirectory;

namespace {

// Lets writes have one byte, or a third of what they ask for, and interrupts every other call.
class Grudging final : public FileCallHook {
 public:
  explicit Grudging(std::size_t divisor)
      : divisor_(divisor), outer_(install_file_call_hook(this)) {}
  ~Grudging() override { install_file_call_hook(outer_); }
  int before(FileCall& call) override {
    const bool repeated = call.kind == FileCallKind::write || call.kind == FileCallKind::open ||
                          call.kind == FileCallKind::sync;
    if (repeated && ++calls % 2 == 1) {
      return EINTR;
    }
    if (call.kind == FileCallKind::write) {
      call.bytes = call.bytes.first(divisor_ == 0 ? 1 : 1 + call.bytes.size() / divisor_);
    }
    return 0;
  }
  void after(const FileCall& /*call*/, int error_number) override { REQUIRE(error_number == 0); }
  int calls = 0;

 private:
  std::size_t divisor_;
  FileCallHook* outer_;
};

}  // namespace

TEST_CASE("file_calls: short writes and interrupted calls lose nothing",
          "[storage][file_calls][ST-1]") {
  const TempDirectory directory;
  const std::string text = "a text of some length, so that thirds of thirds are left";
  const std::size_t divisor = GENERATE(std::size_t{0}, std::size_t{3});
  {
    Grudging hook(divisor);
    REQUIRE(write_file_atomically(directory / "f", text));
    REQUIRE(hook.calls > 8);
  }
  REQUIRE(read_bytes(directory / "f") == text);
  REQUIRE(names_in(directory.path()) == std::vector<std::string>{"f"});
}

TEST_CASE("file_calls: whatever call fails, the old content stands and nothing is left over",
          "[storage][file_calls][ST-1]") {
  const TempDirectory directory;
  const int error_number = GENERATE(ENOSPC, EIO);
  std::int64_t calls = 0;
  {
    const FailingDisk counting({.error_number = error_number, .at = -1});
    REQUIRE(write_file_atomically(directory / "f", "old content"));
    calls = counting.seen();
  }
  REQUIRE(calls == 6);  // open, write, sync, close, rename, sync of the directory
  for (std::int64_t at = 0; at < calls; ++at) {
    INFO("call " << at << ", error " << error_number);
    {
      const FailingDisk disk({.error_number = error_number, .at = at});
      const Status status = write_file_atomically(directory / "f", "new content");
      REQUIRE_FALSE(status);
      REQUIRE(disk.failed() == 1);
      REQUIRE_THAT(status.error().message, Catch::Contains(directory.path().string()));
    }
    // Only the last call fails after the rename.
    const bool renamed = at == calls - 1;
    REQUIRE(read_bytes(directory / "f") == (renamed ? "new content" : "old content"));
    REQUIRE(names_in(directory.path()) == std::vector<std::string>{"f"});
  }
}

TEST_CASE("file_calls: a file whose fsync failed is abandoned, never synced again",
          "[storage][file_calls][ST-1]") {
  const TempDirectory directory;
  const FailingDisk disk({.error_number = EIO, .at = 0, .only = FileCallKind::sync});
  auto file = AtomicFile::create(directory / "f");
  REQUIRE(file);
  REQUIRE(file->write("bytes that the disk refused"));
  REQUIRE_FALSE(file->sync());
  REQUIRE(names_in(directory.path()).empty());
  REQUIRE_THROWS_AS(file->sync(), CheckFailed);
  REQUIRE_THROWS_AS(file->commit(), CheckFailed);
  REQUIRE_THROWS_AS(file->write("more"), CheckFailed);
  REQUIRE(disk.seen() == 1);
}

TEST_CASE("file_calls: a failure that only close() tells of is seen", "[storage][file_calls]") {
  const TempDirectory directory;
  const FailingDisk disk({.error_number = EDQUOT, .at = 0, .only = FileCallKind::close});
  const Status status = write_file_atomically(directory / "f", "content");
  REQUIRE_FALSE(status);
  REQUIRE_THAT(status.error().message, Catch::Contains("disk full"));
  REQUIRE(names_in(directory.path()).empty());
}

TEST_CASE("file_calls: large files are written in order and whole", "[storage][file_calls]") {
  const TempDirectory directory;
  std::string text((std::size_t{20} << 20) + 12345, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(i * 2654435761U >> 13U);
  }
  auto file = AtomicFile::create(directory / "f");
  REQUIRE(file);
  REQUIRE(file->write(std::string_view(text).substr(0, 777)));
  REQUIRE(file->write(std::string_view(text).substr(777)));
  REQUIRE(file->size_bytes() == text.size());
  REQUIRE(file->commit());
  REQUIRE((read_bytes(directory / "f") == text));
}

TEST_CASE("remove_tree: goes down into directories and never through links",
          "[storage][remove_tree]") {
  const TempDirectory directory;
  REQUIRE(make_directory(directory / "kept"));
  test::write_bytes(directory / "kept/file", "x");
  REQUIRE(make_directory(directory / "tree/a/b"));
  test::write_bytes(directory / "tree/a/b/file", "y");
  ::mkfifo((directory / "tree/a/fifo").c_str(), 0600);
  std::filesystem::create_directory_symlink(directory / "kept", directory / "tree/a/link");
  std::filesystem::create_directory_symlink(directory / "kept", directory / "link");
  REQUIRE(remove_tree(directory / "tree/"));
  REQUIRE(remove_tree(directory / "link"));
  REQUIRE(names_in(directory.path()) == std::vector<std::string>{"kept"});
  REQUIRE(read_bytes(directory / "kept/file") == "x");
}

TEST_CASE("remove_tree: what cannot go does not keep the rest", "[storage][remove_tree]") {
  const TempDirectory directory;
  REQUIRE(make_directory(directory / "tree"));
  for (int i = 0; i < 5; ++i) {
    test::write_bytes(directory / fmt::format("tree/{}", i), "x");
  }
  {
    const FailingDisk disk({.error_number = EIO, .at = 1, .only = FileCallKind::unlink});
    const Status status = remove_tree(directory / "tree");
    REQUIRE_FALSE(status);
    REQUIRE_THAT(status.error().message, Catch::Contains("tree/1"));
  }
  REQUIRE(names_in(directory / "tree") == std::vector<std::string>{"1"});
  REQUIRE(remove_tree(directory / "tree"));
  REQUIRE_FALSE(std::filesystem::exists(directory / "tree"));
}
