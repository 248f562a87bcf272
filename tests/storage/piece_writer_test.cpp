#include "storage/files/direct_io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::storage::testing::piece_writer_test {

using train::test::DiskFault;
using train::test::FailingDisk;
using train::test::read_bytes;
using train::test::TempDirectory;

namespace {

constexpr std::size_t kPiece = std::size_t{2} << 20;

std::string counted_text(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) {
    text[i] = static_cast<char>(i * 2654435761U >> 13U);
  }
  return text;
}

// A file open to write, and nothing else.
class OpenFile {
 public:
  explicit OpenFile(std::filesystem::path path)
      : path_(std::move(path)), descriptor_(disk_open(path_, O_RDWR | O_TRUNC)) {
    REQUIRE(descriptor_ >= 0);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { ::close(descriptor_); }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] bool direct() const { return (::fcntl(descriptor_, F_GETFL) & O_DIRECT) != 0; }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

// Writes in parts of random sizes. The first error number, or 0.
int write_in_parts(PieceWriter& writer, std::string_view text, std::mt19937_64& random) {
  while (!text.empty()) {
    const std::size_t longest = std::size_t{1} << (random() % 23);
    const auto part = text.substr(0, 1 + random() % longest);
    if (const int error_number = writer.write(std::as_bytes(std::span(part))); error_number != 0) {
      return error_number;
    }
    text.remove_prefix(part.size());
  }
  return writer.finish();
}

std::size_t pages_in_cache(const OpenFile& file, std::size_t size) {
  void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  REQUIRE(bytes != MAP_FAILED);
  std::vector<unsigned char> resident((size + 4095) / 4096);
  REQUIRE(::mincore(bytes, size, resident.data()) == 0);
  ::munmap(bytes, size);
  return static_cast<std::size_t>(
      std::count_if(resident.begin(), resident.end(), [](auto page) { return (page & 1U) != 0; }));
}

// Refuses what the writer asks for first: as a file system does that takes no direct writes, or
// wants another alignment.
class Refusing final : public FileCallHook {
 public:
  Refusing() : outer_(install_file_call_hook(this)) {}
  ~Refusing() override { install_file_call_hook(outer_); }
  int before(FileCall& call) override {
    return call.kind == FileCallKind::write && writes++ == 0 ? EINVAL : 0;
  }
  void after(const FileCall& /*call*/, int /*error_number*/) override {}
  int writes = 0;

 private:
  FileCallHook* outer_;
};

// Lets every write have part of what it asks for, which moves the offset off any alignment.
class Grudging final : public FileCallHook {
 public:
  Grudging() : outer_(install_file_call_hook(this)) {}
  ~Grudging() override { install_file_call_hook(outer_); }
  int before(FileCall& call) override {
    if (call.kind == FileCallKind::write && writes++ < 20) {
      call.bytes = call.bytes.first(1 + call.bytes.size() / 3);
    }
    return 0;
  }
  void after(const FileCall& /*call*/, int /*error_number*/) override {}
  int writes = 0;

 private:
  FileCallHook* outer_;
};

}  // namespace

TEST_CASE("piece_writer: every byte in its place, whatever the sizes", "[storage][piece_writer]") {
  std::mt19937_64 random(Catch::rngSeed());
  const TempDirectory on_disk;
  const TempDirectory in_memory(test::quick_directory());
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, kPiece - 1,
                                 kPiece, kPiece + 1, 2 * kPiece + 4096 + 7, 3 * kPiece}) {
    const std::string text = counted_text(size);
    for (const TempDirectory* home : {&on_disk, &in_memory}) {
      INFO(fmt::format("{} bytes, {}", size, home->path().string()));
      const OpenFile file(*home / "f");
      {
        PieceWriter writer(file.descriptor(), file.path());
        REQUIRE(write_in_parts(writer, text, random) == 0);
      }
      REQUIRE((read_bytes(file.path()) == text));
      REQUIRE(fsync_file(file.path()).ok());
      const auto digest = digest_on_disk(file.path());
      REQUIRE(digest);
      CHECK(*digest == digest_text(text));
    }
  }
}

TEST_CASE("piece_writer: large files leave the page cache to others", "[storage][piece_writer]") {
  const TempDirectory home;
  const OpenFile file(home / "f");
  const std::string text = counted_text(4 * kPiece + 100);
  PieceWriter writer(file.descriptor(), file.path());
  REQUIRE(writer.write(std::as_bytes(std::span(text))) == 0);
  const bool direct = file.direct();
  REQUIRE(writer.finish() == 0);
  if (direct) {
    CHECK(pages_in_cache(file, text.size()) <= 1);
  } else {
    WARN("skipped: no direct writes in " << home.path().string());
  }
  REQUIRE((read_bytes(file.path()) == text));
}

TEST_CASE("piece_writer: goes on through the page cache where direct writes are refused",
          "[storage][piece_writer]") {
  const TempDirectory home;
  const OpenFile file(home / "f");
  const std::string text = counted_text(3 * kPiece + 5);
  if (GENERATE(false, true)) {
    const Refusing hook;
    PieceWriter writer(file.descriptor(), file.path());
    const int error_number = writer.write(std::as_bytes(std::span(text)));
    // Where the disk takes none at all, the hook's EINVAL is the error of an ordinary write.
    if (error_number == 0 && writer.finish() == 0) {
      REQUIRE((read_bytes(file.path()) == text));
      REQUIRE(hook.writes > 3);
    }
    CHECK_FALSE(file.direct());
  } else {
    const Grudging hook;
    PieceWriter writer(file.descriptor(), file.path());
    REQUIRE(writer.write(std::as_bytes(std::span(text))) == 0);
    REQUIRE(writer.finish() == 0);
    REQUIRE((read_bytes(file.path()) == text));
    REQUIRE(hook.writes > 20);
    CHECK_FALSE(file.direct());
  }
}

TEST_CASE("piece_writer: an error stays, and nothing is written after it",
          "[storage][piece_writer][ST-1]") {
  const TempDirectory home;
  const std::string text = counted_text(6 * kPiece + 5);
  for (std::int64_t at = 0; at < 7; ++at) {
    INFO("write " << at);
    const OpenFile file(home / fmt::format("f{}", at));
    const FailingDisk disk({.error_number = ENOSPC, .at = at, .only = FileCallKind::write});
    PieceWriter writer(file.descriptor(), file.path());
    std::mt19937_64 random(Catch::rngSeed());
    REQUIRE(write_in_parts(writer, text, random) == ENOSPC);
    REQUIRE(writer.finish() == ENOSPC);
    REQUIRE(disk.seen() == at + 2);  // the half that is written, and the failure
  }
}

TEST_CASE("disk_digest: of a link or of nothing it is an error", "[storage][disk_digest]") {
  const TempDirectory home;
  test::write_bytes(home / "f", "content");
  std::filesystem::create_symlink(home / "f", home / "link");
  CHECK_FALSE(digest_on_disk(home / "link"));
  CHECK_FALSE(digest_on_disk(home / "missing"));
  CHECK_FALSE(digest_on_disk(home.path()));
}

}  // namespace train::storage::testing::piece_writer_test
