#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "base/units.hpp"
#include "cli/report_error.hpp"
#include "cli/run_command.hpp"
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

}  // namespace

int prepare_command(const PrepareOptions& options) {
  allow_signals();
  ProgressBar bar;
  storage::PrepareRequest request{.inputs = {},
                                  .tokenizer = options.tokenizer,
                                  .out = options.out,
                                  .val_fraction = options.val_fraction,
                                  .document_separator = options.separator,
                                  .seed = options.seed,
                                  .force = options.force};
  for (const std::string& input : options.inputs) {
    request.inputs.emplace_back(input);
  }
  const auto report = storage::prepare_dataset(
      request, [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); });
  if (!report) {
    return report_error(report.error());
  }
  log_info(fmt::format("data_prepared out={} documents={} train_tokens={} val_tokens={}{}",
                       options.out, report->documents, report->train_tokens, report->val_tokens,
                       report->whole_documents ? "" : " (validation is the tail of the text)"));
  return kExitFinished;
}

}  // namespace train::cli
