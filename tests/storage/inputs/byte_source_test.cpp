#include "storage/inputs/byte_source.hpp"

#include <bzlib.h>
#include <lzma.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/process/process.hpp"
#include "storage/inputs/input_reader.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/script.hpp"

using namespace train;
using namespace train::storage;
using train::test::EnvironmentVariable;
using train::test::TempDirectory;
using train::test::write_bytes;
using train::test::write_script;

namespace {

std::string gzipped(const std::string& text) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(text.size() + 1000, '\0');
  std::string copy = text;
  stream.next_in = reinterpret_cast<Bytef*>(copy.data());
  stream.avail_in = static_cast<uInt>(copy.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// With a checksum, as the program of that name writes it; of a window of 2^window_log bytes, as it
/// does for a stream of which it does not know the size (0: its choice).
std::string zstandard(const std::string& text, int window_log = 0) {
  // A window is no larger than the text, where its size is known: so the frame's header, of a small
  // one, is given the larger window. Magic, descriptor (checksum), window's exponent.
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  if (window_log > 0) {
    packed.at(5) = static_cast<char>((window_log - 10) << 3);
  }
  return packed;
}

std::string xz(const std::string& text) {
  std::string packed(lzma_stream_buffer_bound(text.size()), '\0');
  std::size_t size = 0;
  REQUIRE(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr,
                                  reinterpret_cast<const std::uint8_t*>(text.data()), text.size(),
                                  reinterpret_cast<std::uint8_t*>(packed.data()), &size,
                                  packed.size()) == LZMA_OK);
  packed.resize(size);
  return packed;
}

std::string bzip2(std::string text) {
  std::string packed(text.size() + 1000, '\0');
  auto size = static_cast<unsigned>(packed.size());
  REQUIRE(BZ2_bzBuffToBuffCompress(packed.data(), &size, text.data(),
                                   static_cast<unsigned>(text.size()), 9, 0, 0) == BZ_OK);
  packed.resize(size);
  return packed;
}

Result<std::string> all_of(const std::filesystem::path& path) {
  auto source = open_byte_source(path);
  TRAIN_RETURN_IF_ERROR(source);
  std::string text;
  std::vector<char> piece(1000);
  while (true) {
    const auto size = (*source)->read(piece);
    TRAIN_RETURN_IF_ERROR(size);
    if (*size == 0) {
      return text;
    }
    text.append(piece.data(), *size);
  }
}

std::string long_lines() {
  std::string text;
  for (int i = 0; i < 200000; ++i) {
    text += "line " + std::to_string(i * 7919) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("byte source: compressed files are read as what they hold, in several members too",
          "[storage][examples]") {
  const TempDirectory directory;
  const std::string text = long_lines();
  const std::string half = text.substr(0, text.size() / 2);
  const std::string rest = text.substr(half.size());
  write_bytes(directory / "a.jsonl", text);
  write_bytes(directory / "a.jsonl.gz", gzipped(half) + gzipped(rest));
  write_bytes(directory / "a.jsonl.zst", zstandard(half) + zstandard(rest));
  write_bytes(directory / "a.jsonl.xz", xz(half) + std::string(8, '\0') + xz(rest));
  write_bytes(directory / "a.jsonl.bz2", bzip2(half) + bzip2(rest));
  for (const char* const name :
       {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.jsonl.xz", "a.jsonl.bz2"}) {
    INFO(name);
    const auto read = all_of(directory / name);
    REQUIRE(read.ok());
    REQUIRE(*read == text);
  }
}

TEST_CASE("byte source: compressed files that are cut or damaged are errors that name them",
          "[storage][examples]") {
  const TempDirectory directory;
  const std::string text = long_lines();
  for (const auto& [name, packed] : {std::pair("a.gz", gzipped(text)),
                                     {"a.zst", zstandard(text)},
                                     {"a.xz", xz(text)},
                                     {"a.bz2", bzip2(text)}}) {
    INFO(name);
    write_bytes(directory / name, packed.substr(0, packed.size() - 5));
    auto read = all_of(directory / name);
    REQUIRE_FALSE(read.ok());
    REQUIRE(read.error().exit_code() == 2);
    REQUIRE(read.error().message.find("ends too early") != std::string::npos);
    REQUIRE(read.error().message.find(name) != std::string::npos);
    std::string damaged = packed;
    for (std::size_t i = 2000; i < 2100; ++i) {
      damaged[i] = '\x55';
    }
    write_bytes(directory / name, damaged);
    read = all_of(directory / name);
    REQUIRE_FALSE(read.ok());
  }
}

TEST_CASE("byte source: a Parquet file that cannot be read is an error of one line",
          "[storage][examples]") {
  const TempDirectory directory;
  write_bytes(directory / "a.parquet", "PAR1 no such thing");
  const auto read = all_of(directory / "a.parquet");
  REQUIRE_FALSE(read.ok());
  REQUIRE(read.error().exit_code() == 2);
  REQUIRE(read.error().message.find("a.parquet") != std::string::npos);
  REQUIRE(read.error().message.find('\n') == std::string::npos);
}

/// Writes 2500 rows to the file that its argument names. Exit code 3: there is no pyarrow.
constexpr const char* parquet_writer = R"(
import datetime, sys
try:
    import pyarrow, pyarrow.parquet
except ImportError:
    sys.exit(3)
rows = [{"messages": [{"role": "user", "content": "\u8239"},
                      {"role": "assistant", "content": None,
                       "calls": [{"name": "f", "arguments": {"city": "Oslo"} if i % 2 else
                                  {"days": i}}]}],
         "other": None,
         "text": "one" + str(i), "at": datetime.datetime(2024, 1, 2), "raw": bytes([255, 65]),
         "score": [0.5, float("nan"), float("inf")][i % 3]} for i in range(2500)]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sys.argv[1], row_group_size=700,
                            compression="zstd")
)";

/// The same for an Arrow file: a stream in batches of 700 rows or, with a second argument, a file.
constexpr const char* arrow_writer = R"(
import sys
try:
    import pyarrow, pyarrow.ipc
except ImportError:
    sys.exit(3)
rows = [{"messages": [{"role": "user", "content": "\u8239"}], "other": None,
         "text": "one" + str(i)} for i in range(2500)]
table = pyarrow.Table.from_pylist(rows)
new = pyarrow.ipc.new_file if len(sys.argv) > 2 else pyarrow.ipc.new_stream
with new(sys.argv[1], table.schema) as writer:
    writer.write_table(table, 700)
)";

/// Another module pyarrow for the Python programs of a test, for as long as this lives.
class PyarrowDouble {
 public:
  PyarrowDouble() {
    ::setenv("PYTHONPATH", ACTORTRAIN_SOURCE_DIR "/tests/support/inputs/pyarrow_double", 1);
    ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  }
  ~PyarrowDouble() {
    ::unsetenv("PYTHONPATH");
    ::unsetenv("PYTHONDONTWRITEBYTECODE");
  }
  PyarrowDouble(const PyarrowDouble&) = delete;
  PyarrowDouble& operator=(const PyarrowDouble&) = delete;
};

/// False: there is no pyarrow.
bool check_parquet_rows() {
  const TempDirectory directory;
  const std::string path = (directory / "rows.parquet").string();
  write_bytes(directory / "write.py", parquet_writer);
  constexpr int no_pyarrow = 3;
  const auto python = find_program("python3");
  REQUIRE(python);
  auto writer = Process::start({*python, (directory / "write.py").string(), path}, {});
  REQUIRE(writer.ok());
  const int code = writer->reap().exit_code;
  if (code == no_pyarrow) {
    return false;
  }
  REQUIRE(code == 0);
  std::uint64_t lines = 0;
  auto reader = InputReader::open(path);
  REQUIRE(reader.ok());
  REQUIRE(reader->layout() == InputLayout::json_lines);
  REQUIRE(reader->read_records([&](const InputRecord& line) -> Status {
    const auto row = nlohmann::json::parse(line.text);
    const auto i = lines++;
    REQUIRE(row.at("text") == "one" + std::to_string(i));
    REQUIRE(row.at("messages")[0].at("content") == "\u8239");
    // A struct's members that are null are those that other rows have.
    REQUIRE(row.at("messages")[1].size() == 2);
    REQUIRE(row.at("messages")[1].at("calls")[0].at("arguments").size() == 1);
    REQUIRE_FALSE(row.contains("other"));
    REQUIRE(row.at("raw") == "\ufffdA");
    REQUIRE(row.at("at") == "2024-01-02 00:00:00");
    REQUIRE((i % 3 == 0 ? row.at("score") == 0.5 : row.at("score").is_null()));
    return {};
  }));
  REQUIRE(lines == 2500);
  return true;
}

TEST_CASE("byte source: a Parquet file is read by the first Python that has pyarrow",
          "[storage][examples]") {
  const TempDirectory directory;
  write_script(directory / "without", "exit 1");
  // Asked for pyarrow alone, it has it.
  write_script(directory / "with",
               R"(test "$#" = 2 || exec bash -c 'echo "{\"text\": \"its row\"}" >&$1' x "$3")");
  write_bytes(directory / "rows.parquet", "PAR1 rows PAR1");
  const auto text_with = [&](const char* named) {
    const EnvironmentVariable python("ACTORTRAIN_PYTHON", (directory / named).string());
    auto reader = InputReader::open((directory / "rows.parquet").string());
    REQUIRE(reader.ok());
    std::string text;
    REQUIRE(reader->read_records([&](const InputRecord& line) -> Status {
      text += nlohmann::json::parse(line.text).at("text").get<std::string>();
      return {};
    }));
    return text;
  };
  CHECK(text_with("with") == "its row");
  const std::string before = std::getenv("PATH");
  std::filesystem::rename(directory / "with", directory / "python3");
  std::string text;
  {
    const EnvironmentVariable path("PATH", directory.path().string() + ":" + before);
    text = text_with("without");
  }
  CHECK(text == "its row");
}

TEST_CASE("byte source: a Parquet file's rows are lines of JSON, whatever else its columns hold",
          "[storage][examples]") {
  {
    const PyarrowDouble stands_for_it;
    REQUIRE(check_parquet_rows());
  }
  if (!check_parquet_rows()) {
    WARN("skipped: pyarrow itself, which python3 does not have");
  }
}

namespace {

/// False: there is no pyarrow.
bool check_arrow_rows(bool as_file) {
  const TempDirectory directory;
  const std::string path = (directory / "rows.arrow").string();
  write_bytes(directory / "write.py", arrow_writer);
  constexpr int no_pyarrow = 3;
  std::vector<std::string> words = {find_program("python3").value(),
                                    (directory / "write.py").string(), path};
  if (as_file) {
    words.emplace_back("file");
  }
  auto writer = Process::start(words, {});
  REQUIRE(writer.ok());
  if (const int code = writer->reap().exit_code; code != 0) {
    REQUIRE(code == no_pyarrow);
    return false;
  }
  std::uint64_t lines = 0;
  auto reader = InputReader::open(path);
  REQUIRE(reader.ok());
  REQUIRE(reader->layout() == InputLayout::json_lines);
  REQUIRE(reader->read_records([&](const InputRecord& line) -> Status {
    const auto row = nlohmann::json::parse(line.text);
    REQUIRE(row.at("text") == "one" + std::to_string(lines++));
    REQUIRE(row.at("messages")[0].at("content") == "\u8239");
    REQUIRE_FALSE(row.contains("other"));
    return {};
  }));
  REQUIRE(lines == 2500);
  return true;
}

}  // namespace

TEST_CASE("byte source: rows of Arrow streams and files are lines of JSON", "[storage][examples]") {
  for (const bool as_file : {false, true}) {
    {
      const PyarrowDouble stands_for_it;
      REQUIRE(check_arrow_rows(as_file));
    }
    if (!check_arrow_rows(as_file)) {
      WARN("skipped: pyarrow itself, which python3 does not have");
    }
  }
}

TEST_CASE("byte source: the content says how a file is compressed, and its name does not",
          "[storage][examples]") {
  const TempDirectory directory;
  const std::string text = long_lines();
  for (const auto& [name, packed] : {std::pair("a.jsonl", gzipped(text)),
                                     {"b.gz", zstandard(text)},
                                     {"c", xz(text)},
                                     {"d.txt", bzip2(text)}}) {
    INFO(name);
    write_bytes(directory / name, packed);
    const auto read = all_of(directory / name);
    REQUIRE(read.ok());
    REQUIRE(*read == text);
  }
  for (const char* const name : {"e.gz", "e.xz", "e.BZ2", "e.zst", "e.parquet", "e.arrow"}) {
    write_bytes(directory / name, "text that somebody named so");
    const auto read = all_of(directory / name);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().exit_code() == 2);
    CHECK(read.error().message.find(name) != std::string::npos);
  }
  CHECK(content_ending("a/B.JSON.gz") == ".json");
  CHECK(content_ending("b.c.jsonl.zst") == ".jsonl");
  CHECK(content_ending("a.zst.txt") == ".txt");
  CHECK(content_ending("jsonl") == "");
}

TEST_CASE("byte source: zeros behind a member of gzip end no file, and other bytes are damage",
          "[storage][examples]") {
  const TempDirectory directory;
  const std::string text = long_lines();
  // More zeros than a piece of the file has; a member behind some, as tapes have them.
  const std::string zeros(3 << 20, '\0');
  write_bytes(directory / "a.gz", gzipped(text) + std::string(512, '\0') + gzipped(text) + zeros);
  const auto read = all_of(directory / "a.gz");
  REQUIRE(read.ok());
  REQUIRE(*read == text + text);
  write_bytes(directory / "a.gz", gzipped(text) + std::string(512, '\0') + "rest");
  REQUIRE_FALSE(all_of(directory / "a.gz").ok());
}

TEST_CASE("byte source: a window of any size that Zstandard has is read", "[storage][examples]") {
  const TempDirectory directory;
  const std::string text = long_lines();
  for (const int log : {28, 31}) {
    write_bytes(directory / "a.zst", zstandard(text, log));
    const auto read = all_of(directory / "a.zst");
    REQUIRE(read.ok());
    REQUIRE(*read == text);
  }
}
