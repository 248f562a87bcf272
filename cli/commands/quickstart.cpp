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
#include "configs/error_place.hpp"
#include "configs/load_config.hpp"
#include "data/prepare/prepare.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/directory/run_directory.hpp"
#include "run/model/model_files.hpp"
#include "run/plan/run_plan.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/input_file.hpp"
#include "storage/inputs/binary_content.hpp"
#include "storage/inputs/byte_source.hpp"
#include "storage/inputs/input_reader.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

// Files of the directory, as the run file names them.
constexpr const char* kRunFile = "quickstart.toml";
constexpr const char* kText = "data/quickstart.txt";
constexpr const char* kTokens = "data/quickstart";
constexpr const char* kTextDigest = "data/quickstart.digest";  // Of the text of the tokens.
constexpr std::uint64_t kLargestRunFile = 1 << 20;             // bytes
constexpr std::uint64_t kLargestDigest = 4096;                 // bytes
constexpr std::size_t kTextPiece = 1 << 20;                    // bytes
constexpr std::size_t kTextHead = 1 << 16;                     // bytes

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

/// Checks that the file of --text holds text. Errors (user): it does not; says what it is.
Status check_text(const QuickstartOptions& options) {
  const fs::path text = options.text;
  const auto refused = [&text](const std::string& reason) {
    return user_error(fmt::format("--text {}: {}", text.string(), reason));
  };
  std::error_code failed;
  if (!fs::exists(text, failed)) {
    return refused(is_prepared(options.directory)
                       ? fmt::format("no such file; leave out --text to train on what {} has",
                                     options.directory)
                       : "no such file");
  }
  if (!is_file(text)) {
    return refused("not a regular file; give a text file");
  }
  const auto source = TRAIN_TRY(storage::open_byte_source(text));
  std::string head(kTextHead, '\0');
  head.resize(TRAIN_TRY(source->read(std::span(head))));
  if (const std::string binary = storage::binary_content(head); !binary.empty()) {
    return refused(fmt::format("holds {}", binary));
  }
  const auto reader = storage::InputReader::open(text);
  if (!reader) {
    return refused(
        "not text, or in another encoding; convert it to UTF-8 (`iconv -f ENCODING -t UTF-8`)");
  }
  if (reader->layout() != storage::InputLayout::text) {
    return refused(
        fmt::format("holds records, not one text; prepare them for a run file by "
                    "`actortrain data prepare --input {} --out DIR`",
                    text.string()));
  }
  return {};
}

/// True: the tokens are those of the file of --text. False also where an earlier version has
/// written them, without the digest.
Result<bool> has_tokens_of(const fs::path& directory, const std::string& text) {
  if (!is_file(directory / kTextDigest)) {
    return false;
  }
  const auto recorded = TRAIN_TRY(storage::read_file(directory / kTextDigest, kLargestDigest));
  return recorded == TRAIN_TRY(storage::digest_file(text)) + "\n";
}

/// True: run file and tokens are there, and are those of this call. Tokens of another text are
/// replaced (false) until a run has begun with them. Errors (user): the directory is of other use.
Result<bool> resumes(const QuickstartOptions& options) {
  const fs::path directory = options.directory;
  if (!is_prepared(directory)) {
    TRAIN_RETURN_IF_ERROR(check_directory(directory));
    return false;
  }
  if (options.text.empty() || TRAIN_TRY(has_tokens_of(directory, options.text))) {
    return true;
  }
  if (check_directory(directory).ok()) {
    return false;
  }
  return user_error(fmt::format(
      "--text {}: not known as the text of the tokens in {}; leave out --text to resume the run "
      "there, or train on this text in a new directory: actortrain quickstart DIRECTORY --text {}",
      options.text, directory.string(), options.text));
}

/// Checks the settings of a run whose tokens are still to be written.
Status check_settings(const GivenConfig& given) {
  if (run::is_published(given.config.model)) {
    return {};  // Its relative path begins in the directory.
  }
  const auto plan = run::plan_without_data(given.config, data::kBytesVocabSize);
  const Status status = plan ? engine::check_device(plan->config.runtime.device, plan->engine.model,
                                                    "set runtime.device = \"cpu\"")
                             : Status(plan.error());
  return status.ok() ? status
                     : Status(configs::with_place(status.error(), given.config, given.places));
}

/// The configuration of the run, checked before anything is written.
Result<GivenConfig> read_settings(const QuickstartOptions& options, bool is_written) {
  const std::string file = (fs::path(options.directory) / kRunFile).string();
  GivenConfig given;
  if (is_written) {
    given.config = TRAIN_TRY(configs::load_config(file, options.set, &given.places));
    return given;
  }
  given.config =
      TRAIN_TRY(configs::parse_config(quickstart_file(), file, options.set, &given.places));
  TRAIN_RETURN_IF_ERROR(check_settings(given));
  return given;
}

/// Checks that both splits have a sequence. If not, the directory is as before the tokens.
Status check_length(const QuickstartOptions& options, const data::PrepareReport& report,
                    const configs::RunConfig& config) {
  const auto wanted = static_cast<std::uint64_t>(config.data.sequence_length) + 1;
  const bool evaluates = config.eval.interval_steps > 0;
  if (config.data.dir != kTokens ||
      (report.train_tokens >= wanted && (!evaluates || report.val_tokens >= wanted))) {
    return {};
  }
  std::error_code ignored;
  fs::remove(fs::path(options.directory) / kTokens / "meta.json", ignored);
  return user_error(fmt::format(
      "{}: too short: {} tokens for training and {} for validation, where a sequence needs "
      "{} (data.sequence_length + 1); give a longer text or lower data.sequence_length: {} can be "
      "used again",
      options.text.empty() ? "the quickstart's own text" : "--text " + options.text,
      report.train_tokens, report.val_tokens, wanted, options.directory));
}

/// Writes run file, text and tokens. The run file comes first: by it the next call knows what is
/// half done; the tokens' meta.json comes last.
Status prepare(const QuickstartOptions& options, const configs::RunConfig& config) {
  const fs::path directory = options.directory;
  const fs::path source = options.text.empty() ? TRAIN_TRY(packed_text()) : fs::path(options.text);
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
  const auto digest = TRAIN_TRY(storage::digest_file(source));
  fs::remove(directory / kTextDigest, failed);  // Until the tokens are those of this text.
  const auto report =
      data::prepare_dataset({.inputs = {options.text.empty() ? directory / kText : source},
                             .out = directory / kTokens,
                             .document_separator = "\n\n\n",
                             .threads = run::resolve_threads(0),
                             .force = true});
  TRAIN_RETURN_IF_ERROR(report);
  TRAIN_RETURN_IF_ERROR(check_length(options, *report, config));
  TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(directory / kTextDigest, digest + "\n"));
  log_info(fmt::format("data_prepared out={} documents={} train_tokens={} val_tokens={}",
                       (directory / kTokens).string(), report->documents, report->train_tokens,
                       report->val_tokens));
  return {};
}

/// Says what to do after the run, or where it has stopped.
void print_next(const configs::RunConfig& config, const std::string& place, int code) {
  const std::string root = run::run_root(config).string();
  const bool finished = code == kExitFinished;
  print(fmt::format(
      "\nnext: {}cd {}\n"
      "  actortrain generate {} --prompt \"In the beginning \"\n"
      "  actortrain board {}/\n",
      finished ? "" : "the same command resumes the run; or ", place, root, config.run.dir));
  if (finished) {
    print(
        fmt::format("  actortrain run {} --set run.name=mine --set optimizer.lr=1e-3\n", kRunFile));
  }
}

Result<int> quickstart(const QuickstartOptions& options) {
  if (!options.text.empty()) {
    TRAIN_RETURN_IF_ERROR(check_text(options));
  }
  const bool is_written = TRAIN_TRY(resumes(options));
  const GivenConfig given = TRAIN_TRY(read_settings(options, is_written));
  if (!is_written) {
    TRAIN_RETURN_IF_ERROR(prepare(options, given.config));
  }
  std::error_code failed;
  fs::current_path(options.directory, failed);  // The run file's paths begin here.
  if (failed) {
    return storage::os_error(storage::Access::read, options.directory, failed.value());
  }
  const std::string place = fs::current_path(failed).string();
  log_info(
      fmt::format("quickstart directory={} run_file={}; the paths below begin in this directory",
                  place, kRunFile));
  const int code = TRAIN_TRY(run_given_config(given));
  if (code == kExitFinished || code == kExitStopped) {
    print_next(given.config, place, code);
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
