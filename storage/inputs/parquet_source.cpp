#include "storage/inputs/parquet_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/process/descriptor.hpp"
#include "base/process/process.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/input_file.hpp"

namespace train::storage {
namespace {

/// Arguments: the descriptor to write to, the file, its format. Dates and bytes become text, and
/// numbers that JSON lacks become null, so that no row is lost for such a column. A struct has
/// every member that any row has, null where a row lacks it: those are omitted.
constexpr const char* kRowScript = R"PYTHON(
import json, math, sys
out = open(int(sys.argv[1]), "w", encoding="utf-8", errors="replace", newline="\n")
try:
    if sys.argv[3] == "Parquet":
        import pyarrow.parquet
    else:
        import pyarrow.ipc
except Exception as error:
    print(f"no pyarrow ({error})", file=sys.stderr)
    sys.exit(3)
def other(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
def finite(value):
    if isinstance(value, dict):
        return {key: finite(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
def present(value):
    if isinstance(value, dict):
        return {key: present(member) for key, member in value.items() if member is not None}
    return [present(member) for member in value] if isinstance(value, (list, tuple)) else value
def line(row):
    row = present(row)
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=other)
    except ValueError:
        return json.dumps(finite(row), ensure_ascii=False, allow_nan=False, default=other)
def batches(path, form):
    if form == "Parquet":
        with pyarrow.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=1024)
        return
    source = pyarrow.memory_map(path)
    if source.read_buffer(6).to_pybytes() == b"ARROW1":
        file = pyarrow.ipc.open_file(source)
        yield from (file.get_batch(at) for at in range(file.num_record_batches))
        return
    source.seek(0)
    yield from pyarrow.ipc.open_stream(source)
try:
    for batch in batches(sys.argv[2], sys.argv[3]):
        for row in batch.to_pylist():
            out.write(line(row) + "\n")
    out.close()
except Exception as error:
    print(" ".join(str(error).split()), file=sys.stderr)
    sys.exit(4)
)PYTHON";
constexpr int kNoPyarrowCode = 3;

/// Rows that a process writes to a pipe.
class RowSource : public ByteSource {
 public:
  RowSource(std::filesystem::path path, const char* format, Process process, Descriptor rows,
            Descriptor errors)
      : path_(std::move(path)),
        format_(format),
        process_(std::move(process)),
        rows_(std::move(rows)),
        errors_(std::move(errors)) {}

  Result<std::size_t> read(std::span<char> out) override {
    const ssize_t size = retried(rows_.get(), out);
    if (size < 0) {
      return failure(fmt::format("{}: {}", path_.string(), std::generic_category().message(errno)));
    }
    consumed_ += static_cast<std::uint64_t>(size);
    if (size > 0) {
      return static_cast<std::size_t>(size);
    }
    TRAIN_RETURN_IF_ERROR(ended());
    return std::size_t{0};
  }
  /// Counts bytes of the rows as text, more than the file has.
  [[nodiscard]] std::uint64_t consumed() const override { return consumed_; }

 private:
  static ssize_t retried(int descriptor, std::span<char> out) {
    ssize_t size = -1;
    do {
      size = ::read(descriptor, out.data(), out.size());
    } while (size < 0 && errno == EINTR);
    return size;
  }

  Status ended() {
    if (!end_) {
      end_ = process_.reap();
    }
    if (end_->exit_code == 0) {
      return {};
    }
    std::array<char, 1024> text{};
    const ssize_t size = retried(errors_.get(), text);
    std::string said(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    said.erase(said.find_last_not_of('\n') + 1);
    if (end_->exit_code == kNoPyarrowCode) {
      return user_error(fmt::format(
          "{}: {} needs python3 with pyarrow, but there is {}; install it with `pip install "
          "pyarrow`, or give the rows as .jsonl",
          path_.string(), format_, said));
    }
    return user_error(
        fmt::format("{}: not readable as {}: {}", path_.string(), format_,
                    said.empty() ? fmt::format("its reader ended by {}", end_->text()) : said));
  }

  std::filesystem::path path_;
  const char* format_;
  Process process_;
  Descriptor rows_;
  Descriptor errors_;
  std::optional<ProcessEnd> end_;
  std::uint64_t consumed_ = 0;
};

/// Exits with 0 if there is a pyarrow, without the time to import it.
constexpr const char* kProbeScript =
    "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyarrow') is None)";

/// The first of python_programs() that has pyarrow, otherwise the first; nullopt: there is none.
std::optional<std::string> find_python() {
  std::vector<std::string> found;
  std::set<std::string> seen;
  for (const std::string& name : python_programs()) {
    if (const auto program = find_program(name); program && seen.insert(*program).second) {
      found.push_back(*program);
    }
  }
  for (const std::string& program : found) {
    if (found.size() == 1) {
      break;  // The rows themselves say what it lacks.
    }
    const auto probe =
        run_child({program, "-c", kProbeScript}, {.timeout = std::chrono::seconds(10)});
    if (probe && probe->exit_code == 0) {
      return program;
    }
  }
  return found.empty() ? std::nullopt : std::optional(found.front());
}

struct Pipe {
  Descriptor from;
  Descriptor to;
};
Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return failure(fmt::format("a pipe: {}", std::generic_category().message(errno)));
  }
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace

Result<std::unique_ptr<ByteSource>> open_row_source(const std::filesystem::path& path,
                                                    RowFormat format) {
  const char* const name = format == RowFormat::parquet ? "Parquet" : "Arrow";
  TRAIN_RETURN_IF_ERROR(InputFile::open(path));
  const auto program = find_python();
  if (!program) {
    return user_error(fmt::format(
        "{}: {} needs python3 with pyarrow, but there is no python3; install both, or give "
        "the rows as .jsonl",
        path.string(), name));
  }
  const auto absolute = TRAIN_TRY(absolute_path(path));
  auto rows = TRAIN_TRY(make_pipe());
  auto errors = TRAIN_TRY(make_pipe());
  const std::array<int, 1> inherited = {rows.to.get()};
  auto process = Process::start(
      {*program, "-c", kRowScript, std::to_string(rows.to.get()), absolute.string(), name},
      {.inherited = inherited, .errors = errors.to.get()});
  if (!process) {
    return failure(fmt::format("{}: {}", *program, process.error().message));
  }
  std::unique_ptr<ByteSource> source = std::make_unique<RowSource>(
      path, name, std::move(*process), std::move(rows.from), std::move(errors.from));
  return source;
}

}  // namespace train::storage
