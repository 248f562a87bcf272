#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

#include "base/exit_codes.hpp"
#include "base/process/own_program.hpp"
#include "base/text/log.hpp"
#include "cli/command.hpp"
#include "cli/commands/quickstart_file.hpp"
#include "cli/commands/run.hpp"
#include "data/prepare/prepare.hpp"
#include "run/plan/run_plan.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/input_file.hpp"
#include "storage/inputs/byte_source.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

// Files of the directory, as the run file names them.
constexpr const char* kRunFile = "quickstart.toml";
constexpr const char* kText = "data/quickstart.txt";
constexpr const char* kTokens = "data/quickstart";
constexpr const char* kRun = "runs/quickstart";
constexpr std::uint64_t kLargestRunFile = 1 << 20;  // bytes
constexpr std::size_t kTextPiece = 1 << 20;         // bytes

bool is_file(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent);
}

/// The text that a package has beside its program, compressed, or an installed program as it is.
Result<fs::path> packed_text() {
  const fs::path folder = fs::path(own_program()).parent_path().parent_path() / "share/actortrain";
  for (const char* const name : {"quickstart.txt.bz2", "quickstart.txt"}) {
    if (is_file(folder / name)) {
      return folder / name;
    }
  }
  return user_error(fmt::format(
      "{}: no such file, the text of the quickstart, which comes with a package; name a text of "
      "a megabyte or more by --text FILE",
      (folder / "quickstart.txt.bz2").string()));
}

/// Writes the content of `packed`, decompressed, to the file `text`.
Status unpack_text(const fs::path& packed, const fs::path& text) {
  const auto source = TRAIN_TRY(storage::open_byte_source(packed));
  std::string content;
  for (std::size_t size = 0, count = 1; count != 0; size += count) {
    content.resize(size + kTextPiece);
    count = TRAIN_TRY(source->read(std::span(content).subspan(size)));
    content.resize(size + count);
  }
  return storage::write_file_atomically(text, content);
}

/// True: the directory has all that is written before the run, by an earlier call. Its owner may
/// have changed the run file since.
bool is_prepared(const fs::path& directory) {
  return is_file(directory / kRunFile) && is_file(directory / kTokens / "meta.json");
}

/// Refuses a directory with files that no call has written; what one left half done is allowed.
Status check_directory(const fs::path& directory) {
  const auto refused = [&directory](const std::string& reason) {
    return user_error(fmt::format("{}: {}; name a new directory: actortrain quickstart DIRECTORY",
                                  directory.string(), reason));
  };
  std::error_code failed;
  if (!fs::exists(directory, failed)) {
    return {};
  }
  if (!fs::is_directory(directory, failed)) {
    return refused("it is no directory");
  }
  std::vector<std::string> names;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    names.push_back(entry->path().filename().string());
  }
  if (failed) {
    return storage::os_error(storage::Access::read, directory, failed.value());
  }
  bool begun = false;
  if (is_file(directory / kRunFile)) {
    const auto file = TRAIN_TRY(storage::InputFile::open(directory / kRunFile));
    begun = TRAIN_TRY(file.read_text(kLargestRunFile)) == quickstart_file();
  }
  std::sort(names.begin(), names.end());
  const auto other = std::find_if(names.begin(), names.end(), [begun](const std::string& name) {
    return !begun || (name != kRunFile && name != "data");
  });
  return other == names.end() ? Status()
                              : refused(fmt::format("it has files already ({})", *other));
}

/// Writes run file, text and tokens. The run file comes first: by it the next call knows what is
/// half done; the tokens' meta.json comes last.
Status prepare(const fs::path& directory, const QuickstartOptions& options) {
  TRAIN_RETURN_IF_ERROR(check_directory(directory));
  const fs::path source = options.text.empty() ? TRAIN_TRY(packed_text()) : fs::path(options.text);
  if (!is_file(source)) {
    return user_error(fmt::format("--text {}: no such file", source.string()));
  }
  std::error_code failed;
  fs::create_directories(directory / "data", failed);
  if (failed) {
    return storage::os_error(storage::Access::write, directory / "data", failed.value());
  }
  TRAIN_RETURN_IF_ERROR(
      storage::write_file_atomically(directory / kRunFile, std::string(quickstart_file())));
  if (options.text.empty()) {
    TRAIN_RETURN_IF_ERROR(unpack_text(source, directory / kText));
  }
  const auto report =
      data::prepare_dataset({.inputs = {options.text.empty() ? directory / kText : source},
                             .out = directory / kTokens,
                             .document_separator = "\n\n\n",
                             .threads = run::resolve_threads(0),
                             .force = true});
  TRAIN_RETURN_IF_ERROR(report);
  log_info(fmt::format("data_prepared out={} documents={} train_tokens={} val_tokens={}",
                       (directory / kTokens).string(), report->documents, report->train_tokens,
                       report->val_tokens));
  return {};
}

Result<int> quickstart(const QuickstartOptions& options) {
  const fs::path directory = options.directory;
  if (!is_prepared(directory)) {
    TRAIN_RETURN_IF_ERROR(prepare(directory, options));
  } else if (!options.text.empty()) {
    return user_error(fmt::format(
        "--text {}: {} has its tokens already; name a new directory: actortrain quickstart "
        "DIRECTORY --text {}",
        options.text, directory.string(), options.text));
  }
  std::error_code failed;
  fs::current_path(directory, failed);  // The run file's paths begin here.
  if (failed) {
    return storage::os_error(storage::Access::read, directory, failed.value());
  }
  const std::string place = fs::current_path(failed).string();
  log_info(fmt::format("quickstart directory={} run_file={}", place, kRunFile));
  RunOptions run;
  run.config = kRunFile;
  run.set = options.set;
  const int code = TRAIN_TRY(run_training(run));
  if (code == kExitFinished) {
    print(
        fmt::format("\nnext: cd {}\n"
                    "  actortrain generate {} --prompt \"In the beginning \"\n"
                    "  actortrain board runs/\n"
                    "  actortrain run {} --set run.name=mine --set optimizer.lr=1e-3\n",
                    place, kRun, kRunFile));
  }
  return code;
}

}  // namespace

/// REQUIRES: block_signals().
void describe_quickstart(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "quickstart",
      "Write a run file, a text and its tokens into a new directory, and train there for some "
      "minutes; or resume that run.");
  QuickstartOptions& options = command.runs(quickstart);
  command.text("directory", options.directory, "Directory to write", "DIRECTORY")
      ->capture_default_str();
  command.text("--text", options.text,
               "Train on this text instead of the King James Version, which the package has",
               "FILE");
  command.app.add_option("--set", options.set, "Override a key of the run file, as `run` does")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  command.check([&options] {
    return options.directory.empty() ? "the directory's name is empty" : std::string();
  });
  command.app.footer(kExitCodes);
}

}  // namespace train::cli
