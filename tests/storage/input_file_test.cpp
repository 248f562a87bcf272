#include "storage/files/input_file.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <string>

#include "storage/files/copy_file.hpp"
#include "storage/files/digest.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::storage;
using train::test::FailingReads;
using train::test::TempDirectory;

TEST_CASE("input_file: a read that fails says why, one that is interrupted goes on",
          "[storage][input_file]") {
  const TempDirectory directory;
  test::write_bytes(directory / "f", "hello");
  const auto text_with = [&](int error_number, std::int64_t at) -> Result<std::string> {
    const FailingReads reads("/f", error_number, at);
    const auto file = InputFile::open(directory / "f");
    TRAIN_RETURN_IF_ERROR(file);
    auto text = file->read_text(5);
    CHECK(reads.failed());
    return text;
  };
  CHECK(text_with(EINTR, 1).value() == "hello");
  for (const std::int64_t at : {0, 1}) {  // the opening, and the first bytes
    const auto failed = text_with(EIO, at);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind == ErrorKind::failure);
    CHECK_THAT(failed.error().message, Catch::EndsWith("/f: Input/output error"));
  }
  CHECK_THAT(text_with(0, 0).error().message,
             Catch::EndsWith("/f: it shrank to 0 of 5 bytes while it was read"));
}

TEST_CASE("input_file: only bytes that a regular file has are read", "[storage][input_file]") {
  const TempDirectory directory;
  test::write_bytes(directory / "f", "hello");
  std::string text(4, ' ');
  const auto file = InputFile::open(directory / "f");
  REQUIRE(file->read(1, std::as_writable_bytes(std::span(text))));
  CHECK(text == "ello");
  for (const std::uint64_t offset : {std::uint64_t{2}, std::uint64_t{6}, ~std::uint64_t{0}}) {
    const Status beyond = file->read(offset, std::as_writable_bytes(std::span(text)));
    REQUIRE_FALSE(beyond);
    CHECK_THAT(beyond.error().message,
               Catch::Contains("4 bytes from byte ") && Catch::EndsWith(" on, of a file of 5"));
  }
  CHECK_FALSE(file->read_text(4));
  REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(InputFile::open(directory / "pipe").error().message,
             Catch::EndsWith("not a regular file; check the path"));
  std::filesystem::create_symlink(directory / "f", directory / "link");
  CHECK(InputFile::open(directory / "link"));
  CHECK_THAT(InputFile::open(directory / "link", Links::refuse).error().message,
             Catch::Contains("symbolic links are not allowed here"));
}

TEST_CASE("digest_file: that of the bytes, however many pieces they are read in",
          "[storage][input_file]") {
  const TempDirectory directory;
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, (std::size_t{4} << 20) + 1}) {
    std::string content(size, 'a');
    if (size > 0) {
      content.back() = 'b';
    }
    test::write_bytes(directory / "f", content);
    CHECK(digest_file(directory / "f").value() == digest_text(content));
  }
  CHECK_THAT(digest_file(directory / "none").error().message, Catch::Contains("none"));
}

TEST_CASE("copy_file: the copy is whole or absent", "[storage][copy_file][ST-1]") {
  const TempDirectory directory;
  test::write_bytes(directory / "f", "hello");
  {
    const test::FailingDisk disk({.error_number = ENOSPC, .at = 1});
    CHECK_FALSE(storage::copy_file(directory / "f", directory / "copy"));
  }
  CHECK_FALSE(std::filesystem::exists(directory / "copy"));
  CHECK_FALSE(storage::copy_file(directory / "none", directory / "copy"));
  REQUIRE(storage::copy_file(directory / "f", directory / "copy"));
  CHECK(test::read_bytes(directory / "copy") == "hello");
}

TEST_CASE("mapped_file: holds the bytes, refuses what is no file", "[storage][mapped_file]") {
  const TempDirectory directory;
  test::write_bytes(directory / "f", "hello");
  test::write_bytes(directory / "empty", "");
  auto mapped = InputFile::open(directory / "f")->map();
  REQUIRE(mapped);
  const Mapping moved = std::move(*mapped);
  REQUIRE(moved.get_deleter().size_bytes == 5);
  REQUIRE(std::to_integer<char>(moved.get()[4]) == 'o');
  REQUIRE(*InputFile::open(directory / "empty")->map() == nullptr);
  REQUIRE(InputFile::open(directory.path()).error().exit_code() == 2);
  REQUIRE(InputFile::open(directory / "none").error().exit_code() == 2);
}
