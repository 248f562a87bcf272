#include <unistd.h>

#include <cstdio>

#include "actors/head/run_plan.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "storage/tokens/prepare.hpp"

namespace train::cli {
namespace {

constexpr int kBarWidth = 40;

/// A bar on a terminal; a line every ten per cent elsewhere.
class ProgressBar {
 public:
  void show(std::uint64_t done, std::uint64_t total) {
    const int percent =
        total == 0
            ? 100
            : static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
    if (percent == shown_ || (!terminal_ && percent / 10 == shown_ / 10 && shown_ >= 0)) {
      return;
    }
    shown_ = percent;
    const auto filled = static_cast<std::size_t>(percent * kBarWidth / 100);
    const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
    std::fputs(
        fmt::format("{}preparing [{}] {:3} %  {} of {}{}", terminal_ ? "\r" : "", bar, percent,
                    format_bytes(done), format_bytes(total), terminal_ && percent < 100 ? "" : "\n")
            .c_str(),
        stderr);
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  int shown_ = -1;
};

Status prepare(const PrepareOptions& options) {
  allow_signals();
  ProgressBar bar;
  storage::PrepareRequest request{.inputs = {options.inputs.begin(), options.inputs.end()},
                                  .tokenizer = options.tokenizer,
                                  .out = options.out,
                                  .val_fraction = options.val_fraction,
                                  .document_separator = options.separator,
                                  .seed = options.seed,
                                  .threads = actors::resolve_threads(options.threads),
                                  .force = options.force};
  const auto report = storage::prepare_dataset(
      request, [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); });
  TRAIN_RETURN_IF_ERROR(report);
  log_info(fmt::format("data_prepared out={} documents={} train_tokens={} val_tokens={}{}",
                       options.out, report->documents, report->train_tokens, report->val_tokens,
                       report->whole_documents ? "" : " (validation is the tail of the text)"));
  if (report->replaced > 0) {
    log_warning(
        fmt::format("text_replaced {} places were not UTF-8 and became U+FFFD", report->replaced));
  }
  return {};
}

}  // namespace

void describe_data_prepare(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("data prepare", "Turn text files into the token files that runs read.");
  PrepareOptions& options = command.runs(prepare);
  command.app
      .add_option("--input", options.inputs,
                  "Text files, or .jsonl files with a member \"text\" on each line")
      ->required()
      ->type_name("FILE");
  command.text("--out", options.out, "Directory to write, created if missing", "DIR")->required();
  command
      .text("--tokenizer", options.tokenizer,
            "bytes: a token is a byte; or a model's directory, or a tokenizer's file",
            "bytes|DIR|FILE")
      ->capture_default_str();
  command.app.add_option("--val-fraction", options.val_fraction, "Share of the text held out")
      ->capture_default_str();
  command.text("--document-separator", options.separator,
               "Text between two documents of a file; none: a file is one document", "TEXT");
  command.integer("--threads", options.threads, "That encode; 0: all", 0)->default_str("0");
  command.integer("--seed", options.seed, "Chooses the documents held out")->default_str("0");
  command.app.add_flag("--force", options.force, "Replace token files already in DIR");
  command.check([&options] {
    if (!(options.val_fraction > 0 && options.val_fraction < 1)) {
      return fmt::format("--val-fraction must be above 0 and below 1, not {}",
                         options.val_fraction);
    }
    return std::string(options.out.empty() ? "--out is empty" : "");
  });
}

}  // namespace train::cli
