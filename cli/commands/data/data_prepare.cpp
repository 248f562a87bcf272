#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "base/text/units.hpp"
#include "cli/command.hpp"
#include "data/examples/prepare_rows.hpp"
#include "data/prepare/prepare.hpp"
#include "run/plan/run_plan.hpp"
#include "storage/inputs/input_folder.hpp"

namespace train::cli {
namespace {

constexpr int kBarWidth = 40;

/// Progress bar on a terminal; otherwise a line every ten per cent. Its bytes are those of the
/// inputs, however often they are read.
class ProgressBar {
 public:
  explicit ProgressBar(const std::vector<std::string>& inputs) {
    for (const std::string& input : inputs) {
      std::error_code unknown;  // Opening the file reports the error.
      const auto size = std::filesystem::file_size(input, unknown);
      bytes_ += unknown ? 0 : size;
    }
  }

  void show(std::uint64_t done, std::uint64_t total) {
    const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
    const int percent = static_cast<int>(100.0 * share);
    if (percent == shown_ || (!terminal_ && percent / 10 == shown_ / 10 && shown_ >= 0)) {
      return;
    }
    shown_ = percent;
    const auto filled = static_cast<std::size_t>(percent * kBarWidth / 100);
    const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
    std::fputs(
        fmt::format("{}preparing [{}] {:3} %  {} of {}{}", terminal_ ? "\r" : "", bar, percent,
                    format_bytes(static_cast<std::uint64_t>(share * static_cast<double>(bytes_))),
                    format_bytes(bytes_), terminal_ && percent < 100 ? "" : "\n")
            .c_str(),
        stderr);
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  int shown_ = -1;
  std::uint64_t bytes_ = 0;
};

/// Prepares conversations, prompts, pairs or texts as rows.
Status prepare_rows(const PrepareOptions& options, storage::SaidLayout layout) {
  data::PrepareRowsRequest request{.inputs = {options.inputs.begin(), options.inputs.end()},
                                   .layout = layout,
                                   .tokenizer = options.tokenizer,
                                   .out = options.out,
                                   .row_length = options.row_length,
                                   .chat_template = options.chat_template,
                                   .date = options.date,
                                   .train_on_last = options.train_on == "last",
                                   .part = data::answer_part_named(options.train_on),
                                   .source_key = options.source_key,
                                   .keywords = options.keywords,
                                   .val_fraction = options.val_fraction,
                                   .most_dropped = options.max_dropped,
                                   .seed = options.seed,
                                   .threads = run::resolve_threads(options.threads),
                                   .force = options.force};
  if (!options.packing.empty()) {
    const auto packing = data::packing_of(options.packing);
    if (!packing) {
      return user_error(fmt::format("--packing: {}", packing.error().message));
    }
    request.packing = *packing;
  }
  if (!options.kind.empty()) {
    const auto kind = data::example_kind_named(options.kind);
    if (!kind) {
      return user_error(fmt::format("--kind: {}", kind.error().message));
    }
    request.kind = *kind;
  }
  ProgressBar bar(options.inputs);
  const auto report = data::prepare_rows(
      request, [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); });
  TRAIN_RETURN_IF_ERROR(report);
  if (report->up_to_date) {
    print(
        fmt::format("{} is up to date: the same was prepared from the same files\n", options.out));
    return {};
  }
  for (const std::string& line : report->lines()) {
    print(fmt::format("{}\n", line));
  }
  log_info(fmt::format("data_prepared out={} kind={} rows={} val_rows={} row_length={} packing={}",
                       options.out, report->facts.kind, report->facts.train.rows,
                       report->facts.val.rows, report->facts.row_length, report->facts.packing));
  return {};
}

/// Reports inputs that are no files, and were meant as something else.
Status check_inputs(const std::vector<std::string>& inputs) {
  std::error_code ignored;
  for (const std::string& input : inputs) {
    if (std::filesystem::exists(input, ignored)) {
      continue;
    }
    if (input == "-") {
      return user_error("--input -: standard input is not read; write the text to a file");
    }
    if (input.find(',') != std::string::npos) {
      return user_error(
          fmt::format("--input {}: no such file; put spaces between several files", input));
    }
  }
  return {};
}

/// The inputs with the data files of each folder in its place.
Result<std::vector<std::string>> without_folders(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const std::string& input : inputs) {
    if (!std::filesystem::is_directory(input, ignored)) {
      files.push_back(input);
      continue;
    }
    auto folder = storage::list_input_folder(input);
    if (!folder) {
      return user_error(fmt::format("--input {}", folder.error().message));
    }
    for (const std::string& note : folder->notes) {
      log_info(fmt::format("input_folder {}", note));
    }
    for (const std::filesystem::path& file : folder->files) {
      files.push_back(file.string());
    }
  }
  return files;
}

Status prepare(const PrepareOptions& given) {
  TRAIN_RETURN_IF_ERROR(check_inputs(given.inputs));
  PrepareOptions options = given;
  options.inputs = TRAIN_TRY(without_folders(given.inputs));
  std::error_code ignored;
  if (std::filesystem::exists(options.out, ignored) &&
      !std::filesystem::is_directory(options.out, ignored)) {
    return user_error(fmt::format("--out {}: is not a directory; name another", options.out));
  }
  if (std::filesystem::exists(std::filesystem::path(options.out) / "config.toml", ignored)) {
    return user_error(fmt::format("--out {}: is a run's directory; name another", options.out));
  }
  const auto layout = storage::said_layout_named(options.layout);
  if (!layout) {
    return user_error(fmt::format("--input-format: {}", layout.error().message));
  }
  allow_signals();
  if (options.row_length > 0) {
    return prepare_rows(options, *layout);
  }
  ProgressBar bar(options.inputs);
  data::PrepareRequest request{.inputs = {options.inputs.begin(), options.inputs.end()},
                               .layout = *layout,
                               .tokenizer = options.tokenizer,
                               .out = options.out,
                               .val_fraction = options.val_fraction,
                               .most_dropped = options.max_dropped,
                               .document_separator = options.separator,
                               .seed = options.seed,
                               .threads = run::resolve_threads(options.threads),
                               .force = options.force};
  const auto report = data::prepare_dataset(
      request, [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); });
  TRAIN_RETURN_IF_ERROR(report);
  log_info(fmt::format("data_prepared out={} documents={} train_tokens={} val_tokens={}{}",
                       options.out, report->documents, report->train_tokens, report->val_tokens,
                       report->whole_documents ? "" : " (validation is the tail of the text)"));
  for (const std::string& line : report->dropped_lines()) {
    print(fmt::format("{}\n", line));
  }
  for (const std::string& note : report->notes) {
    log_warning(fmt::format("tokenizer_note {}", note));
  }
  if (report->kept_breaks > 0) {
    log_warning(
        fmt::format("text_not_utf8 {} places are not UTF-8, and --tokenizer bytes keeps their "
                    "bytes as they are; if the text is in another encoding, convert it to UTF-8 "
                    "(`iconv -f ENCODING -t UTF-8`)",
                    report->kept_breaks));
  }
  if (report->replaced > 0) {
    log_warning(
        fmt::format("text_replaced {} places were not UTF-8 and became U+FFFD", report->replaced));
  }
  return {};
}

void describe_rows(CommandSyntax& command, PrepareOptions& options) {
  command
      .integer("--row-length", options.row_length, "Tokens of a row; 0: token files, not rows", 0)
      ->default_str("0");
  command.text("--kind", options.kind,
               "Kind of every line; by default told by the members of the first one",
               "chat|prompt|preference|kto|text");
  command.text("--packing", options.packing,
               "Packing of documents into rows: best fit; best fit that cuts long ones (the "
               "default for texts); in order, cut or whole; one per row",
               "bfd|bfd_split|wrapped|greedy|none");
  command.text("--template", options.chat_template,
               "Chat template: a built-in one's name, a file or a model's directory; by default "
               "the tokenizer's",
               "NAME|PATH");
  command.date(options.date);
  command
      .text("--train-on", options.train_on,
            "Train on every answer of a conversation, or on its last one; or on the thoughts of "
            "every answer, or on what follows them",
            "all|last|thinking|final")
      ->capture_default_str();
  command.text("--source-key", options.source_key,
               "Member that names a line's source; by default each file is a source", "KEY");
  command.text("--keywords", options.keywords,
               "File of regular expressions, one per line, case ignored: only the tokens of texts "
               "that they match are trained, or forgotten; lines without a match are dropped",
               "FILE");
}

std::string mistake_of(const PrepareOptions& options) {
  const bool rows = options.row_length > 0;
  if (!(options.val_fraction < 1 &&
        (rows ? options.val_fraction >= 0 : options.val_fraction > 0))) {
    return fmt::format(
        "--val-fraction must be above 0 and below 1 (0 too with --row-length), not {}",
        options.val_fraction);
  }
  if (options.out.empty()) {
    return "--out is empty";
  }
  if (options.train_on != "all" && options.train_on != "last" &&
      data::answer_part_named(options.train_on) == data::AnswerPart::whole) {
    return fmt::format("--train-on must be all, last, thinking or final, not \"{}\"",
                       options.train_on);
  }
  if (!(options.max_dropped >= 0 && options.max_dropped <= 1)) {
    return fmt::format("--max-dropped must be from 0 to 1, not {}", options.max_dropped);
  }
  if (rows && !options.separator.empty()) {
    return "--document-separator is for token files, not for rows";
  }
  if (!rows && !(options.kind.empty() && options.packing.empty() && options.chat_template.empty() &&
                 options.source_key.empty() && options.keywords.empty())) {
    return "--kind, --packing, --template, --source-key and --keywords are for rows; use "
           "--row-length too";
  }
  return "";
}

}  // namespace

void describe_data_prepare(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("data prepare",
                   "Turn texts, conversations or pairs into the files that runs read.\nWithout "
                   "--row-length: token files, from texts. With it: rows of that many tokens, from "
                   "JSON lines with \"messages\", \"conversations\", \"instruction\" and "
                   "\"output\", \"prompt\" and \"completion\" (and \"label\"), \"chosen\" and "
                   "\"rejected\", or \"text\"; the assistant's messages are trained.");
  PrepareOptions& options = command.runs(prepare);
  command.app
      .add_option("--input", options.inputs,
                  "Texts, or JSON lines, JSON arrays, CSV, TSV, Parquet or Arrow with a member "
                  "\"text\" (or others, for rows); recognised by content; may be compressed by "
                  "gzip, Zstandard, xz or bzip2; or a folder of such files, of "
                  "datasets.save_to_disk, or of a data set in the Hugging Face cache")
      ->required()
      ->type_name("FILE|DIR");
  command.text("--out", options.out, "Directory to write, created if missing", "DIR")->required();
  command
      .text("--tokenizer", options.tokenizer,
            "bytes (a token is a byte), a model's directory, or a tokenizer's file",
            "bytes|DIR|FILE")
      ->capture_default_str();
  command.number("--val-fraction", options.val_fraction, "Share of the text held out");
  command.number("--max-dropped", options.max_dropped,
                 "Largest share of lines, table rows or array elements that may be dropped");
  command.text("--input-format", options.layout,
               "Format of the inputs, where content and names do not tell", "text|json|csv|tsv");
  command.text("--document-separator", options.separator,
               "Text between two documents of a file; by default a file is one document", "TEXT");
  command.integer("--threads", options.threads, "Encoding threads; 0: all cores", 0)
      ->default_str("0");
  command
      .integer("--seed", options.seed,
               "Seed of the choice of validation documents and of the order of rows")
      ->default_str("0");
  command.app.add_flag("--force", options.force, "Replace data already in DIR");
  describe_rows(command, options);
  command.check([&options] { return mistake_of(options); });
}

}  // namespace train::cli
