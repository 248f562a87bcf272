// Safetensors files that someone made to hurt: an error, with work bounded by their size.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/files/untrusted_text.hpp"
#include "storage/safetensors.hpp"
#include "storage/safetensors_header.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/long_text.hpp"
#include "tests/support/processes/contained.hpp"

using namespace train;
using namespace train::storage;
using train::test::glued;
using train::test::repeated;
using train::test::TempDirectory;

namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes;
  for (unsigned i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(length >> (8 * i))));
  }
  return bytes + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\x01'));
}

/// `count` tensors of one byte each, with shapes as given.
std::string many_tensors(std::size_t count, const std::string& shape) {
  std::string header = "{";
  for (std::size_t i = 0; i < count; ++i) {
    fmt::format_to(std::back_inserter(header),
                   R"({}"{}":{{"dtype":"U8","shape":{},"data_offsets":[{},{}]}})",
                   i == 0 ? "" : ",", i, shape, i, i + 1);
  }
  return file_of(header + "}", count);
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                     offsets);
}

struct Case {
  const char* what;
  std::string bytes;
};

std::vector<Case> length_cases() {
  return {
      {"nothing", ""},
      {"seven bytes", std::string(7, '\0')},
      {"a length alone", with_length(8, "")},
      {"length one beyond the file", with_length(3, "{}")},
      {"length of 100 MB and a byte", with_length(100'000'001, "{}")},
      {"length of 2^32", with_length(std::uint64_t{1} << 32, "{}")},
      {"length of 2^63", with_length(std::uint64_t{1} << 63, "{}")},
      {"length that wraps to 8", with_length(~std::uint64_t{0} - 7 + 8 - 8, "{}")},
  };
}

std::vector<Case> grammar_cases() {
  return {
      {"a byte order mark first", file_of("\xef\xbb\xbf{}", 0)},
      {"an array", file_of("[]", 0)},
      {"null", file_of("null", 0)},
      {"NUL bytes", file_of(std::string(64, '\0'), 0)},
      {"bad UTF-8 in a name", file_of("{\"\xc3\x28\":{}}", 0)},
      {"half a surrogate",
       file_of(R"({"\ud800":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1)},
      {"a million brackets", file_of(glued({"{\"a\":", std::string(1'000'000, '[')}), 0)},
      {"a million objects", file_of(repeated(1'000'000, "{\"a\":"), 0)},
      {"nested tensors",
       file_of(R"({"a":{"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}})", 1)},
      {"a name twice, in other words",
       file_of(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
               R"("\u0061":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})",
               2)},
      {"a name twice, with another between",
       file_of(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
               R"("b":{"dtype":"U8","shape":[],"data_offsets":[1,2]},)"
               R"("a":{"dtype":"U8","shape":[],"data_offsets":[2,3]}})",
               3)},
      {"dtype twice",
       file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1)},
      {"offsets twice",
       file_of(R"({"a":{"shape":[],"data_offsets":[0,1],"data_offsets":[0,1],"dtype":"U8"}})", 1)},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0)},
      {"a metadata key twice", file_of(R"({"__metadata__":{"a":"b","a":"b"}})", 0)},
      {"metadata of objects", file_of(R"({"__metadata__":{"a":{}}})", 0)},
      {"metadata a string", file_of(R"({"__metadata__":"a"})", 0)},
      {"a comment", file_of("{/* */}", 0)},
      {"a comma too many", file_of(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},})", 1)},
      {"a line of Python", file_of("{'a': None}", 0)},
      {"a pickle", file_of("\x80\x04\x95\x10{}", 0)},
      {"two objects", file_of("{}{}", 0)},
  };
}

std::vector<Case> number_cases() {
  const auto a = [](const std::string& shape, const std::string& offsets, std::size_t data = 8) {
    return file_of(tensor("\"F32\"", shape, offsets), data);
  };
  return {
      {"negative begin", a("[2]", "[-8,0]")},
      {"negative zero", a("[2]", "[-0,8]")},
      {"float offsets", a("[2]", "[0.0,8.0]")},
      {"1e400", a("[2]", "[0,1e400]")},
      {"1e2", a("[1e0]", "[0,8]")},
      {"NaN", a("[NaN]", "[0,8]")},
      {"2^64 offsets", a("[2]", "[0,18446744073709551616]")},
      {"2^64 - 1 offsets", a("[2]", "[18446744073709551608,18446744073709551615]")},
      {"2^63 offsets", a("[2]", "[9223372036854775808,9223372036854775816]")},
      {"end before begin", a("[2]", "[8,0]")},
      {"end beyond the file by one", a("[2]", "[0,9]")},
      {"end beyond the file by far", a("[1073741824]", "[0,4294967296]")},
      {"a byte at the end that is nobody's", a("[2]", "[0,8]", 9)},
      {"a hole of one byte", a("[2]", "[1,9]", 9)},
      {"offsets of strings", a("[2]", "[\"0\",\"8\"]")},
      {"no offsets", a("[2]", "[]")},
      {"a product of 2^64", a("[4294967296,4294967296]", "[0,8]")},
      {"a product of 2^62 elements", a("[2147483648,2147483648]", "[0,8]")},
      {"a product that wraps to 2", a("[2,9223372036854775807,3]", "[0,8]")},
      {"zero times too much", a("[0,9223372036854775807]", "[0,8]")},
      {"no dimensions, two elements", a("[]", "[0,8]")},
      {"33 dimensions", a(glued({"[2", repeated(32, ",1"), "]"}), "[0,8]")},
      {"a million dimensions", a(glued({"[2", repeated(1'000'000, ",1"), "]"}), "[0,8]")},
      {"half a byte", file_of(tensor("\"F4\"", "[2]", "[0,1]"), 1)},
      {"unknown dtype", file_of(tensor("\"f32\"", "[2]", "[0,8]"), 8)},
      {"dtype null", file_of(tensor("null", "[2]", "[0,8]"), 8)},
      {"dtype a line feed", file_of(tensor("\"F\\n32\"", "[2]", "[0,8]"), 8)},
      {"dtype of a megabyte",
       file_of(tensor(glued({"\"", std::string(1'000'000, 'F'), "\""}), "[2]", "[0,8]"), 8)},
      {"the same bytes a hundred thousand times",
       [] {
         std::string header = "{";
         for (int i = 0; i < 100'000; ++i) {
           fmt::format_to(std::back_inserter(header),
                          R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          i == 0 ? "" : ",", i);
         }
         return file_of(header + "}", 1);
       }()},
  };
}

std::vector<Case> long_cases() {
  return {
      {"a header of 40 MB of spaces", file_of(glued({"{", std::string(40'000'000, ' '), "}"}), 0)},
      {"a header of 30 MB of spaces", file_of(glued({"{", std::string(30'000'000, ' '), "}"}), 0)},
      {"a name of 30 MB", file_of(glued({"{\"", std::string(30'000'000, 'a'), "\":{}}"}), 0)},
      {"a number of 30 MB",
       file_of(tensor("\"U8\"", glued({"[1", std::string(30'000'000, '0'), "]"}), "[0,1]"), 1)},
      {"three million pairs of metadata", file_of(
                                              [] {
                                                std::string text = R"({"__metadata__":{)";
                                                for (int i = 0; i < 2'000'000; ++i) {
                                                  fmt::format_to(std::back_inserter(text),
                                                                 "\"{}\":\"\",", i);
                                                }
                                                return text + "\"z\":\"\"}}";
                                              }(),
                                              0)},
      {"a million tensors", many_tensors(1'000'000, "[]")},
      {"a quarter million tensors and one", many_tensors(kTensorCountLimit + 1, "[1]")},
  };
}

void require_all_refused(const std::vector<std::vector<Case> (*)()>& kinds, std::size_t at_least) {
  const TempDirectory directory;
  const auto path = directory / "x.safetensors";
  std::size_t cases = 0;
  test::Used most;
  for (const auto make : kinds) {
    for (const Case& hostile : make()) {
      INFO(hostile.what);
      test::overwrite_bytes(path, hostile.bytes);
      const auto result = test::run_contained([&] {
        const auto file = SafetensorsFile::open(path);
        return file ? std::string() : file.error().message;
      });
      test::require_refused(result, hostile.bytes.size());
      REQUIRE_THAT(result.text, Catch::Contains("x.safetensors"));
      most = test::most_of(most, result.used);
      ++cases;
    }
  }
  fmt::print("safetensors: {} hostile files refused; at most {} MiB at once, {} allocations\n",
             cases, most.growth_bytes >> 20, most.allocations);
  REQUIRE(cases >= at_least);
}

}  // namespace

TEST_CASE("safetensors: files made to hurt are refused with bounded work",
          "[storage][safetensors][ST-3][fork]") {
  require_all_refused({length_cases, grammar_cases, number_cases}, 55);
}

TEST_CASE("safetensors: long files made to hurt are refused with bounded work",
          "[storage][safetensors][ST-3][fork][exhaustive]") {
  require_all_refused({long_cases}, 7);
}

TEST_CASE("safetensors: a file that is cut anywhere has bad bytes, not a disk that cannot be read",
          "[storage][safetensors][ST-3]") {
  const TempDirectory directory;
  const auto path = directory / "x.safetensors";
  const std::string whole = file_of(tensor("\"F32\"", "[2]", "[0,8]"), 8);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size << " of " << whole.size() << " bytes");
    test::overwrite_bytes(path, whole.substr(0, size));
    auto file = InputFile::open(path);
    REQUIRE(file);
    bool malformed = false;
    REQUIRE_FALSE(SafetensorsFile::parse(std::move(*file), &malformed));
    REQUIRE(malformed);
  }
}

TEST_CASE("safetensors: unusual files that keep the format are read",
          "[storage][.full][safetensors][ST-3][fork]") {
  const TempDirectory directory;
  const auto path = directory / "x.safetensors";
  const Case good[] = {
      {"no tensor", file_of("{}", 0)},
      {"no dimension", file_of(tensor("\"F32\"", "[]", "[0,4]"), 4)},
      {"no element", file_of(tensor("\"F32\"", "[0,7]", "[0,0]"), 0)},
      {"a name like a path",
       file_of(R"({"../../etc/passwd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1)},
      {"no name", file_of(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1)},
      {"as many tensors as may be", many_tensors(kTensorCountLimit, "[1,1,1,1]")},
  };
  for (const Case& unusual : good) {
    INFO(unusual.what);
    test::write_bytes(path, unusual.bytes);
    const auto result = test::run_contained([&] {
      const auto file = SafetensorsFile::open(path);
      return file ? std::string("read") : file.error().message;
    });
    REQUIRE(result.signal == 0);
    REQUIRE(result.text == "read");
    test::require_bounded(result.used, unusual.bytes.size());
  }
}

TEST_CASE("input_file: pipes, directories and links are refused, never waited for",
          "[storage][input_file][fork]") {
  const TempDirectory directory;
  REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  std::filesystem::create_directory(directory / "directory");
  test::write_bytes(directory / "file", "text");
  std::filesystem::create_symlink(directory / "file", directory / "link");
  std::filesystem::create_symlink(directory / "loop", directory / "loop");
  std::filesystem::create_symlink("/dev/zero", directory / "endless");
  for (const char* name : {"pipe", "directory", "loop", "endless", "missing"}) {
    for (const Links links : {Links::follow, Links::refuse}) {
      INFO(name);
      const auto result = test::run_contained([&] {
        const auto file = InputFile::open(directory / name, links);
        return file ? std::string() : file.error().message;
      });
      test::require_refused(result, 0);
    }
  }
  REQUIRE(InputFile::open(directory / "link"));
  const auto link = InputFile::open(directory / "link", Links::refuse);
  REQUIRE_FALSE(link);
  REQUIRE_THAT(link.error().message, Catch::Contains("symbolic link"));
  auto file = InputFile::open(directory / "file", Links::refuse);
  REQUIRE(file);
  const InputFile moved = std::move(*file);
  REQUIRE(*moved.read_text(4) == "text");
}

TEST_CASE("untrusted_text: limits and quoting", "[storage][untrusted_text]") {
  const JsonLimits limits = {.bytes = 100, .values = 5, .run = 10, .depth = 2};
  for (const char* good :
       {"", "{}", "[1,2]", R"({"a":"[[[,,,:"})", "}}}}", R"(["\"[[["])", "[[1]]", "0123456789"}) {
    INFO(good);
    REQUIRE(json_excess(good, limits).empty());
  }
  for (const std::string& bad :
       {std::string(101, ' '), std::string("[[["), std::string("[1,2,3,4,5]"),
        std::string(R"({"a":{"b":{}}})"), std::string("\"01234567890\""), std::string(12, ' '),
        std::string("[12345678901]"), std::string(R"("\\\\\\\\\\\\\\\\\\\\")")}) {
    INFO(bad);
    REQUIRE_FALSE(json_excess(bad, limits).empty());
  }
  REQUIRE(shown("a b") == "\"a b\"");
  REQUIRE(shown("a\n\"\\\x7f\xc3") == R"("a\x0a\"\\\x7f\xc3")");
  REQUIRE(shown(std::string(1000, 'x')).size() == 85);
}
